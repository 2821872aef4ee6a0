// SPDX-License-Identifier: Apache-2.0
#include "tuner/rescan.h"

#include <algorithm>
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

bool Contains(const std::vector<VariantPtr>& variants, const Variant& variant) {
  return std::any_of(variants.begin(), variants.end(), [&variant](const VariantPtr& other) {
    return other->op == variant.op && other->name == variant.name;
  });
}

// Can the running catalog take it in?
absl::Status CheckKnown(const Variant& variant, const Catalog& catalog) {
  if (!catalog.FindOp(variant.op).ok()) {
    return Error(
        absl::StatusCode::kFailedPrecondition,
        StrCat(variant.directory, ": operation '", variant.op, "' is not known to this process"),
        "a new operation is taken in at a start: restart");
  }
  const absl::StatusOr<VariantPtr> baseline = catalog.Baseline(variant.op);
  if (variant.is_baseline && baseline.ok() && (*baseline)->name != variant.name) {
    return Error(
        absl::StatusCode::kAlreadyExists,
        StrCat(variant.directory, ": ", variant.op, " has a baseline: '", (*baseline)->name, "'"),
        "state baseline = false");
  }
  return absl::OkStatus();
}

// Variants of the scan that extend one of `brought`, or one that does.
std::vector<VariantPtr> ChildrenOf(const std::vector<VariantPtr>& brought, const Scan& scan) {
  std::vector<VariantPtr> all = brought;
  for (size_t i = 0; i < all.size(); ++i) {
    const VariantPtr parent = all[i];
    for (const VariantPtr& child : scan.variants) {
      if (Extends(*child, *parent) && !Contains(all, *child)) all.push_back(child);
    }
  }
  return {all.begin() + static_cast<ptrdiff_t>(brought.size()), all.end()};
}

}  // namespace

std::string PlaceOf(const Variant& variant) {
  const size_t colon = variant.directory.rfind(':');
  std::error_code error;
  if (colon != std::string::npos && !std::filesystem::is_directory(variant.directory, error)) {
    return variant.directory.substr(0, colon);
  }
  return variant.directory;
}

absl::StatusOr<Rescanned> RescanPlace(const std::string& place, const Catalog& catalog,
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
  Rescanned rescan;
  for (const VariantPtr& variant : scan.variants) {
    if (!LiesIn(variant->directory, where)) continue;
    KVR_RETURN_IF_ERROR(CheckKnown(*variant, catalog));
    rescan.brought.push_back(variant);
  }
  if (rescan.brought.empty()) {
    return Error(absl::StatusCode::kNotFound, StrCat("'", place, "' brings no variant"),
                 "give a bundle's directory or a compiled plugin");
  }
  if (options.still == nullptr) return rescan;
  for (const VariantPtr& child : ChildrenOf(rescan.brought, scan)) {
    if (options.still(*child).ok()) continue;
    // It extends what lies in its own place first, whatever the order of the roots.
    RescanOptions from{.roots = {where}, .check_load = options.check_load};
    from.roots.insert(from.roots.end(), options.roots.begin(), options.roots.end());
    KVR_ASSIGN_OR_RETURN(const Rescanned again, RescanPlace(PlaceOf(*child), catalog, from));
    for (const VariantPtr& variant : again.brought) {
      const bool is_child = variant->op == child->op && variant->name == child->name;
      if (is_child && absl::IsFailedPrecondition(options.still(*variant))) {
        rescan.children.push_back(variant);
      }
    }
  }
  for (const VariantPtr& variant : rescan.brought) {
    for (const VariantPtr& parent : scan.variants) {
      if (!Extends(*variant, *parent) || LiesIn(parent->directory, where) ||
          Contains(rescan.children, *parent)) {
        continue;
      }
      if (absl::Status still = options.still(*parent); !still.ok()) {
        return WithContext(StrCat(variant->directory, " extends '", variant->extends, "'"), still);
      }
    }
  }
  return rescan;
}

}  // namespace kvr
