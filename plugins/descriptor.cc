// SPDX-License-Identifier: Apache-2.0
//
// CheckPlugin: nothing of what a library says of itself is taken on trust.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <tuple>

#include "absl/strings/ascii.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "plugins/module.h"

namespace kvr {
namespace {

constexpr uint32_t kMaxEntries = 1024;      // of a kind
constexpr uint32_t kMaxStructBytes = 4096;  // of one struct
constexpr size_t kMaxNameBytes = 128;
constexpr uint32_t kMaxMeasures = 16;  // of one operation: they stand in tables
constexpr size_t kMaxMeasureBytes = 64;

// Of version 1.0, below which no struct may be.
constexpr uint32_t kPluginBytes = 40, kOperationBytes = 40, kVariantBytes = 56;
static_assert(sizeof(kvr_plugin) == kPluginBytes &&
              offsetof(kvr_operation, quality_count) == kOperationBytes &&
              offsetof(kvr_variant, reference) == kVariantBytes);

absl::Status Refuse(std::string_view where, std::string_view what, std::string_view fix) {
  return Error(absl::StatusCode::kInvalidArgument, StrCat("says of its ", where, ": ", what), fix);
}

template <typename T>
absl::StatusOr<T> Copy(const T* from, uint32_t least, std::string_view where) {
  if (from == nullptr) return Refuse(where, "it is null", "point to a struct");
  uint32_t size = 0;
  std::memcpy(&size, from, sizeof size);
  constexpr std::string_view kFix = "set `size` to sizeof the struct";
  if (size < least) {
    return Refuse(where, StrCat("size ", size, " is too small, version 1.0 has ", least), kFix);
  }
  if (size > kMaxStructBytes) return Refuse(where, StrCat("size ", size, " is too large"), kFix);
  const char* bytes = reinterpret_cast<const char*>(from);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return Refuse(where,
                  StrCat("it uses byte ", i, ", and this kvr (plugin ABI ", KVR_ABI_MAJOR, ".",
                         KVR_ABI_MINOR, ") knows ", sizeof(T), " bytes"),
                  "take a newer kvr, or leave out what this one does not know");
  }
  T copy{};
  std::memcpy(&copy, from, std::min<size_t>(size, sizeof(T)));
  return copy;
}

absl::Status CheckName(const char* name, std::string_view which, std::string_view where) {
  constexpr std::string_view kFix = "give the name that the manifest or definition states";
  if (name == nullptr) return Refuse(where, StrCat("its ", which, " is null"), kFix);
  const std::string_view text(name, strnlen(name, kMaxNameBytes + 1));
  if (text.size() <= kMaxNameBytes && IsIdentifier(text)) return absl::OkStatus();
  return Refuse(where, StrCat("its ", which, " ", Quoted(text), " is no name"), kFix);
}

// lower_snake_case, as ledgers and tables show it.
bool IsMeasureName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxMeasureBytes && absl::ascii_islower(text[0]) &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
         });
}

absl::Status CheckQuality(const kvr_operation& operation, std::string_view where) {
  const uint32_t count = operation.quality_count;
  constexpr std::string_view kFix =
      "set quality_count, quality_names and quality together, or leave out all three";
  if (count > kMaxMeasures) {
    return Refuse(where, StrCat("it has ", count, " quality measures"),
                  StrCat("at most ", kMaxMeasures));
  }
  if ((count > 0) != (operation.quality != nullptr)) {
    return Refuse(where,
                  count > 0 ? StrCat("it has ", count, " quality measures, and quality is null")
                            : std::string("it has a quality function and 0 measures"),
                  kFix);
  }
  if ((count > 0) != (operation.quality_names != nullptr)) {
    return Refuse(where,
                  count > 0
                      ? StrCat("it has ", count, " quality measures, and quality_names is null")
                      : std::string("it has quality_names and 0 measures"),
                  kFix);
  }
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = operation.quality_names[i];
    const std::string_view text(name == nullptr ? "" : name,
                                name == nullptr ? 0 : strnlen(name, kMaxMeasureBytes + 1));
    if (!IsMeasureName(text)) {
      return Refuse(
          where, StrCat("quality measure ", i, " has the name ", Quoted(text)),
          StrCat("names match [a-z][a-z0-9_]*, at most ", kMaxMeasureBytes, " characters"));
    }
    for (uint32_t j = 0; j < i; ++j) {
      if (text == operation.quality_names[j]) {
        return Refuse(where, StrCat("quality measure '", text, "' is there already"),
                      "state each once");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Twice(std::string_view where, std::string_view name) {
  return Refuse(where, StrCat("'", name, "' is there already"), "state each once");
}

}  // namespace

absl::StatusOr<PluginCode> CheckPlugin(const kvr_plugin* plugin, uint32_t abi_minor) {
  KVR_ASSIGN_OR_RETURN(const kvr_plugin head, Copy(plugin, kPluginBytes, "kvr_plugin"));
  if (head.abi_major != KVR_ABI_MAJOR || head.abi_minor != abi_minor) {
    return Refuse("kvr_plugin",
                  StrCat("it is of plugin ABI ", head.abi_major, ".", head.abi_minor,
                         ", and its section of ", KVR_ABI_MAJOR, ".", abi_minor),
                  "build all of it with one kvr_plugin.h");
  }
  for (const auto& [count, array, what] :
       {std::tuple(head.operation_count, static_cast<const void*>(head.operations), "operations"),
        std::tuple(head.variant_count, static_cast<const void*>(head.variants), "variants")}) {
    if (count > kMaxEntries) {
      return Refuse("kvr_plugin", StrCat("it has ", count, " ", what),
                    StrCat("at most ", kMaxEntries));
    }
    if (count > 0 && array == nullptr) {
      return Refuse("kvr_plugin", StrCat("it has ", count, " ", what, ", and their array is null"),
                    "point to the array, or count 0");
    }
  }
  PluginCode code;
  for (uint32_t i = 0; i < head.operation_count; ++i) {
    const std::string where = StrCat("operation ", i);
    KVR_ASSIGN_OR_RETURN(const kvr_operation operation,
                         Copy(head.operations[i], kOperationBytes, where));
    KVR_RETURN_IF_ERROR(CheckName(operation.name, "name", where));
    KVR_RETURN_IF_ERROR(CheckQuality(operation, where));
    for (const kvr_operation& other : code.operations) {
      if (std::strcmp(other.name, operation.name) == 0) return Twice(where, operation.name);
    }
    code.operations.push_back(operation);
  }
  for (uint32_t i = 0; i < head.variant_count; ++i) {
    const std::string where = StrCat("variant ", i);
    KVR_ASSIGN_OR_RETURN(const kvr_variant variant, Copy(head.variants[i], kVariantBytes, where));
    KVR_RETURN_IF_ERROR(CheckName(variant.op, "op", where));
    KVR_RETURN_IF_ERROR(CheckName(variant.name, "name", where));
    for (const kvr_variant& other : code.variants) {
      if (std::strcmp(other.op, variant.op) == 0 && std::strcmp(other.name, variant.name) == 0) {
        return Twice(where, StrCat(variant.op, "/", variant.name));
      }
    }
    code.variants.push_back(variant);
  }
  return code;
}

}  // namespace kvr
