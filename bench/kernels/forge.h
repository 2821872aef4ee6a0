// SPDX-License-Identifier: Apache-2.0
//
// Configs made ready for a worker: those that fit a shape on the device, built once and kept.
//
// Threading: one thread (building uses more). Ownership: the workbench outlives the forge, and the
// forge the work items it gave, whose binaries are its files.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/device_info.h"
#include "registry/catalog.h"
#include "tuner/space.h"
#include "tuner/tune.h"
#include "tuner/worker/client.h"
#include "tuner/worker/protocol.h"

namespace kvr::bench {

struct Contender {
  Candidate candidate;
  WorkItem item;
};

// What cannot be measured, and why: a variant that is for other devices, a config that does not
// build, fit or compute what it should.
struct LeftOut {
  std::string variant, config, reason;
};

class Forge {
 public:
  static absl::StatusOr<std::unique_ptr<Forge>> Create(const Workbench& bench, DeviceInfo device);

  const Workbench& bench() const { return bench_; }
  const DeviceInfo& device() const { return device_; }
  // Where nothing compiles for the device, sessions go without: empty.
  const std::string& sentinel_path() const { return sentinel_path_; }

  // Builds of `candidates` those that can run at `axes` and are not built yet, in their order, the
  // first `needed` in any case and others as long as `keep_building` says so, which any thread may
  // ask.
  absl::Status Build(const Catalog::Op& op, const Axes& axes,
                     const std::vector<Candidate>& candidates, size_t needed,
                     const std::function<bool()>& keep_building);

  // Of `candidates` those that are built and can run at `axes`, in their order. Configs that would
  // repeat another's work there are dropped without a word, the others join `left_out`, one a
  // reason and variant.
  absl::StatusOr<std::vector<Contender>> Ready(const Catalog::Op& op, const Axes& axes,
                                               const std::vector<Candidate>& candidates,
                                               std::vector<LeftOut>* left_out);

 private:
  Forge(const Workbench& bench, DeviceInfo device) : bench_(bench), device_(std::move(device)) {}
  using BuildKey = std::pair<const Variant*, Config>;  // the tunables that enter the source
  void BuildMissing(const Catalog::Op& op, absl::Span<const Candidate> candidates,
                    const std::function<bool()>& keep_building);

  const Workbench& bench_;
  const DeviceInfo device_;
  std::unique_ptr<BinaryFiles> files_;
  std::string sentinel_path_;
  std::map<BuildKey, absl::StatusOr<Built>> built_;
};

}  // namespace kvr::bench
