// SPDX-License-Identifier: Apache-2.0
//
// Proof that a step ran what its generation names: an eager launch under that generation, of the
// same inputs, gives the same bits, and gave them before or apart from the step. What is equal to
// no known generation's bits was torn or mixed; what is equal to another's says which one ran.
//
// Threading: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/serve/model.h"

namespace serve {

class Expected {
 public:
  Expected(kvr::Runtime& runtime, Model& model) : runtime_(runtime), model_(model) {}

  // Launches every bucket with every input set under the current generation.
  absl::Status Learn();
  // Holds what the last step of `bucket` wrote against `generation`. "": as it must be; else what
  // is wrong. What was not learnt yet is learnt first, while `generation` is current; kUnavailable:
  // it no longer is.
  absl::StatusOr<std::string> Check(const kvr::Fingerprint& generation, int64_t bucket,
                                    int input_set);

  // Of the pairs of generations learnt, the share whose bits differ in some bucket.
  int pairs() const;
  int pairs_told_apart() const;

 private:
  using Bits = std::vector<std::string>;  // Model::Outputs
  struct Known {
    std::string name;                              // "w8 {BLOCK_H=16,...}"
    std::map<std::pair<int64_t, int>, Bits> bits;  // by bucket and input set
  };
  absl::StatusOr<const Bits*> Learn(const kvr::Fingerprint& generation, int64_t bucket,
                                    int input_set);
  std::string Describe(const Bits& got, const Known& wanted, int64_t bucket, int input_set) const;

  kvr::Runtime& runtime_;
  Model& model_;
  std::map<std::string, Known> known_;  // by digest
};

}  // namespace serve
