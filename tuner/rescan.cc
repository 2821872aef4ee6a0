// SPDX-License-Identifier: Apache-2.0
#include "tuner/rescan.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "plugins/files.h"
#include "plugins/scan.h"

namespace kvr {
namespace {

// "/p/w8", "/p/w8/variant.toml" and "/p/libx.so:w8" lie in "/p/w8" and "/p/libx.so".
bool LiesIn(std::string_view path, std::string_view place) {
  return path.starts_with(place) &&
         (path.size() == place.size() || path[place.size()] == '/' || path[place.size()] == ':');
}

bool Extends(const Variant& child, const Variant& parent) {
  return child.extends ==
         (parent.op == child.op ? parent.name : StrCat(parent.op, "/", parent.name));
}

}  // namespace

absl::StatusOr<std::vector<VariantPtr>> RescanPlace(const std::string& place,
                                                    const Catalog& catalog,
                                                    const RescanOptions& options) {
  std::error_code error;
  const std::string where = std::filesystem::canonical(place, error).string();
  if (error) {
    return Error(absl::StatusCode::kNotFound,
                 StrCat("'", place, "' cannot be read: ", error.message()),
                 "give a bundle's directory or a compiled plugin");
  }
  // The place comes first, so that its variants win over those of their names elsewhere.
  std::vector<std::string> roots = {where};
  roots.insert(roots.end(), options.roots.begin(), options.roots.end());
  const std::vector<const OpSpec*> specs = catalog.specs();
  const Scan scan = ScanPlugins(roots, {.ops = specs, .check_load = options.check_load});

  for (const Rejection& rejection : scan.rejections) {
    // That a library brings an operation which is there already is as it should be.
    const bool known_op = absl::IsAlreadyExists(rejection.status) &&
                          rejection.path.ends_with(bundle::kDefinitionName);
    if (LiesIn(rejection.path, where) && !known_op) return rejection.status;
  }
  std::vector<VariantPtr> brought;
  for (const VariantPtr& variant : scan.variants) {
    if (!LiesIn(variant->directory, where)) continue;
    if (!catalog.FindOp(variant->op).ok()) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   StrCat(variant->directory, ": operation '", variant->op,
                          "' is not known to this process"),
                   "a new operation is taken in at a start: restart");
    }
    const absl::StatusOr<VariantPtr> baseline = catalog.Baseline(variant->op);
    if (variant->is_baseline && baseline.ok() && (*baseline)->name != variant->name) {
      return Error(absl::StatusCode::kAlreadyExists,
                   StrCat(variant->directory, ": ", variant->op, " has a baseline: '",
                          (*baseline)->name, "'"),
                   "state baseline = false");
    }
    brought.push_back(variant);
  }
  if (brought.empty()) {
    return Error(absl::StatusCode::kNotFound, StrCat("'", place, "' brings no variant"),
                 "give a bundle's directory or a compiled plugin");
  }
  for (const VariantPtr& variant : brought) {
    if (variant->extends.empty() || options.still == nullptr) continue;
    for (const VariantPtr& parent : scan.variants) {
      if (!Extends(*variant, *parent) || LiesIn(parent->directory, where)) continue;
      if (absl::Status still = options.still(*parent); !still.ok()) {
        return WithContext(StrCat(variant->directory, " extends '", variant->extends, "'"), still);
      }
    }
  }
  return brought;
}

}  // namespace kvr
