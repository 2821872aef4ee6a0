// SPDX-License-Identifier: Apache-2.0
//
// What the kernel benchmark writes: one JSON document an operation, and from it a table and plots.
//
//   {"op": ..., "environment": {"device", "driver", "compiler", "date", "mode", ...},
//    "rows": [{"topk", "num_tokens", "num_qo_heads", "variant", "us", "gather_us", ...}],   decode
//            [{"shape", "num_tokens", "active_experts", "variant", "semantics", "us",
//              "stream_us", ...}],                                                          moe
//    "left_out": [{"axes", "variant", "config", "reason"}]}
//
// Of a row beside these: `config`, `config_from`, `selected` (by the race or the selection file),
// `spread` and `roofline_spread` (half the interquartile range over the median), `rounds`, `axes`
// (every axis), `seeds`, `roofline_config`; on the row whose code was loaded twice `again_us` and
// `aa`, the second load's time over the first's less one; `quality` of an approximate variant, as
// `kvr verify` tells it; `scaled` where the shape is a model's
// made smaller; `cut_short`, a list of what there was no time for; `trouble` where the times must
// not be read. Microseconds a launch, graph nodes included.
//
// Threading: values and pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/kernels/meter.h"
#include "bench/kernels/suite.h"

namespace kvr::bench {

using Json = nlohmann::ordered_json;

// One shape, measured.
struct ShapeRecord {
  KernelShape shape;
  Axes axes;  // every axis
  std::vector<uint64_t> seeds;
  std::vector<Entrant> entrants;
  int selected = -1;           // an entrant, by the race or a selection file; -1: nobody
  std::vector<double> active;  // experts, by entrant; empty: the operation has none
  std::vector<int> roofline;   // of result.rooflines, by entrant
  ShapeResult result;
};

Json RowsOf(const Suite& suite, const ShapeRecord& record);
Json LeftOutOf(const ShapeRecord& record);
Json EnvironmentOf(const DeviceInfo& device, const std::string& compiler,
                   const SessionInfo& session, const std::string& date);

// `fresh` with the rows of `stored` at other shapes before its own. Errors: another operation,
// device, driver or compiler: one document is one place.
absl::StatusOr<Json> Merged(const Json& stored, Json fresh);

// A line a shape: the roofline, the fastest exact variant (or what was selected), A against A.
std::string ShapeTable(const Json& document);
// A line a row.
std::string RowTable(const Json& document);

struct Plot {
  std::string name, svg;  // "mla_sparse_decode-h16-k512"
};
std::vector<Plot> PlotsOf(const Json& document);

}  // namespace kvr::bench
