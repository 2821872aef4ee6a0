// SPDX-License-Identifier: Apache-2.0
#include "cli/measured.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/status.h"
#include "core/strings.h"

namespace kvr::cli {
namespace {

using Json = nlohmann::json;

void Take(const Json& row, MeasuredFile* file) {
  const Axes axes = row.at("axes").get<Axes>();
  auto found = std::find_if(file->shapes.begin(), file->shapes.end(),
                            [&](const MeasuredShape& shape) { return shape.axes == axes; });
  const double us = row.at("us");
  if (found == file->shapes.end()) {
    const bool gather = row.contains("gather_us");
    file->shapes.push_back({.axes = axes,
                            .roofline = gather ? "gather" : "stream",
                            .roofline_us = row.at(gather ? "gather_us" : "stream_us"),
                            .variant = row.at("variant"),
                            .variant_us = us,
                            .us = {{row.at("variant"), us}}});
    return;
  }
  if (us < found->variant_us) {
    found->variant = row.at("variant");
    found->variant_us = us;
  }
  const auto [own, added] = found->us.emplace(row.at("variant"), us);
  if (!added) own->second = std::min(own->second, us);
}

}  // namespace

const MeasuredShape* MeasuredFile::Nearest(const Axes& axes,
                                           const std::set<std::string>& named) const {
  const MeasuredShape* nearest = nullptr;
  std::ptrdiff_t most = -1;
  for (const MeasuredShape& shape : shapes) {
    const auto alike = [&](const auto& axis) {
      const auto found = shape.axes.find(axis.first);
      return found != shape.axes.end() && found->second == axis.second;
    };
    if (std::any_of(axes.begin(), axes.end(), [&](const auto& axis) {
          return named.count(axis.first) > 0 && !alike(axis);
        })) {
      continue;
    }
    const std::ptrdiff_t count = std::count_if(axes.begin(), axes.end(), alike);
    if (count > most) nearest = &shape;
    most = std::max(most, count);
  }
  return nearest;
}

absl::StatusOr<MeasuredFile> ReadMeasured(const std::string& path) {
  std::ifstream stream(path);
  if (!stream.is_open()) {
    return Error(absl::StatusCode::kNotFound, StrCat("cannot read ", path),
                 "give a file that kvr-kernels-bench wrote, as bench/results has them");
  }
  MeasuredFile file;
  try {
    const Json document = Json::parse(stream);
    file.op = document.at("op");
    file.device = document.at("environment").at("device");
    file.date = document.at("environment").at("date");
    for (const Json& row : document.at("rows")) {
      if (row.at("semantics") == "exact" && !row.contains("trouble")) Take(row, &file);
    }
  } catch (const Json::exception&) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat(path, " is no file that kvr-kernels-bench wrote"),
                 "give one as bench/results has them");
  }
  return file;
}

}  // namespace kvr::cli
