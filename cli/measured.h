// SPDX-License-Identifier: Apache-2.0
//
// What kvr-kernels-bench measured, as kvr explain shows it beside the model: at a shape the time of
// the roofline kernel, which reads the same bytes and does nothing else, and the fastest exact
// variant's. docs/performance.md says how they are made, bench/kernels/result.h the file's format.
//
// Threading: values and pure functions, but for reading the file.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/axes.h"

namespace kvr::cli {

struct MeasuredShape {
  Axes axes;             // every axis
  std::string roofline;  // "gather" or "stream"
  double roofline_us = 0;
  std::string variant;  // the fastest exact one; empty: there is none
  double variant_us = 0;
  std::map<std::string, double> us;  // of each exact variant's fastest config
};

struct MeasuredFile {
  std::string op, device, date;
  std::vector<MeasuredShape> shapes;

  // The shape that has every axis in `named` as `axes` has it and, of those, the most others alike:
  // the size of a cache, for instance, may differ. Null: there is none.
  const MeasuredShape* Nearest(const Axes& axes, const std::set<std::string>& named) const;
};

// Rows whose times must not be read are left out. Errors: no such file, not one of
// kvr-kernels-bench.
absl::StatusOr<MeasuredFile> ReadMeasured(const std::string& path);

}  // namespace kvr::cli
