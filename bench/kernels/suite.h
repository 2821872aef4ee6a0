// SPDX-License-Identifier: Apache-2.0
//
// What the kernel benchmark measures: for each operation that it knows its shapes, and the roofline
// kernel (bench/rooflines) that reads the same bytes and does nothing else.
//
// Threading: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/axes.h"

namespace kvr::bench {

enum class Roofline {
  kGather,  // roofline_gather: the cache rows that the slot lists name
  kStream,  // roofline_stream: as many blocks of an expert's size as there are active experts
};
std::string_view RooflineOp(Roofline roofline);     // "roofline_gather"
std::string_view RooflineField(Roofline roofline);  // "gather_us", of a result's rows

struct KernelShape {
  Axes axes;           // without those at the operation's default
  std::string model;   // "qwen3-30b-a3b"; empty: of no model in particular
  std::string scaled;  // what of the model is smaller here; empty: nothing
};

struct Suite {
  std::string op;
  Roofline roofline = Roofline::kGather;
  std::vector<KernelShape> shapes;
};

// What a moe operation calls the axes that count here, and a byte size.
struct MoeOp {
  std::string_view name, tokens, hidden, inner, gate_up;
  int64_t weight_bytes;  // of one weight; scales are not counted
  Axes smallest;         // the smallest expert that it admits
};
const MoeOp* FindMoe(std::string_view op);  // null: it is none

std::vector<std::string> SuiteOps();

// `quick`: a few tiny shapes that the host device is done with in seconds. Errors: an operation
// that the benchmark does not know.
absl::StatusOr<Suite> SuiteOf(std::string_view op, bool quick);

// Shapes of `suite` whose axes have the values that `only` names, and whose model is `model`
// (empty: any). Errors: none is left.
absl::StatusOr<Suite> Restricted(Suite suite, const Axes& only, const std::string& model);

// Axes of roofline_gather for one of the decode operations at `axes`, every one of them given.
absl::StatusOr<Axes> GatherAxes(std::string_view op, const Axes& axes);
// Axes of roofline_stream that reads `blocks` experts of a moe operation at `axes`. Errors: an
// operation that is none; an expert that is no multiple of 2 KiB.
absl::StatusOr<Axes> StreamAxes(std::string_view op, const Axes& axes, int64_t blocks);

}  // namespace kvr::bench
