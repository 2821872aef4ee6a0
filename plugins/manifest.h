// SPDX-License-Identifier: Apache-2.0
//
// A variant.toml as written: every statement with the place that makes it, nothing yet checked
// against an op, and everything optional that a bundle which extends another may leave out.
// plugins/extend.h merges two of these; plugins/admit.h turns a complete one into a Variant.
//
// What the parser guarantees: schema 1, no unknown key, right types, legal names, no duplicate
// tunable, plan value, let, region, tensor map, kernel, cubin or file, counts within the limits, no
// control characters.
//
// Threading: values and pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/config.h"
#include "plugins/files.h"

namespace kvr {
class PluginLibrary;
}

namespace kvr::bundle {

inline constexpr int kMaxTunables = 48;
inline constexpr int kMaxValues = 64;          // of one tunable
inline constexpr int64_t kMaxConfigs = 65536;  // of the searched space
inline constexpr int kMaxPlanValues = 32;
inline constexpr int kMaxLets = 64;
inline constexpr int kMaxConstraints = 32;
inline constexpr int kMaxTextBytes = 1024;  // of one string in a manifest

struct Place {
  std::string file;
  int line = 0;
  int column = 0;
};

// The status's what and fix, at a place.
absl::Status At(const Place& place, const absl::Status& status);
absl::Status At(const Place& place, absl::StatusCode code, std::string_view what,
                std::string_view fix);
// kInvalidArgument, which nearly every fault of a manifest is.
absl::Status Invalid(const Place& place, std::string_view what, std::string_view fix);

struct Text {
  std::string value;
  Place at;
};

struct Flag {
  bool value = false;
  Place at;
};

struct FileEntry {
  Text name;
  std::string content;  // filled by LoadFiles
  std::string path;
};

struct CubinEntry {
  Text target;
  FileEntry file;
};

// Which function of a compiled plugin a statement means: the one of `library`'s own variant.
struct CodeEntry {
  std::shared_ptr<const PluginLibrary> library;  // null: there is no such function
  std::string variant;
};

struct TunableEntry {
  Tunable tunable;
  Place at;
  bool inherited = false;  // stated by the extended variant only
};

struct LetEntry {
  Text name;
  Text value;
  bool inherited = false;
};

struct RegionEntry {
  Text name;
  std::optional<Text> dtype, elements;
  std::optional<Flag> zeroed;
  bool inherited = false;
};

struct TensorMapEntry {
  Text name;
  std::optional<Text> tensor;
  std::optional<std::vector<Text>> shape, box;
  std::optional<int64_t> swizzle;
  bool inherited = false;
};

struct KernelEntry {
  Text name;
  std::optional<Text> entry, smem, when;
  std::optional<std::vector<Text>> grid, block, cluster, args;
  std::optional<Flag> cooperative, programmatic;
};

struct ExtendsEntry {
  std::optional<Text> op;  // left out: the child's
  Text variant;
  Text version;  // a major version, "1"
};

struct Manifest {
  std::string directory;  // what BundleFiles calls the bundle; filled by ReadBundle
  std::string plugin;     // name of the bundle, or of the compiled plugin that holds it
  Place at;               // the file itself
  Text op, name, version;
  std::optional<ExtendsEntry> extends;
  std::optional<Flag> baseline;
  std::optional<Text> description, semantics, host_skip_reason, key_policy;
  std::optional<std::vector<Text>> targets, constraints;
  std::vector<FileEntry> sources, headers;
  std::vector<CubinEntry> cubins;
  std::optional<Flag> launch_function, reference_function;
  std::optional<std::vector<Text>> plan_values;
  CodeEntry launch_code, reference_code, plan_code;  // of those above; filled by ReadBundle
  std::vector<TunableEntry> tunables;
  std::vector<LetEntry> lets;
  std::vector<RegionEntry> regions;
  std::vector<TensorMapEntry> tensor_maps;
  std::vector<KernelEntry> kernels;

  // Of what it extends: the op, and its name as a report on this op's variants gives it,
  // "cluster" or, of another op, "mla_decode/cluster".
  std::string_view ParentOp() const { return extends->op ? extends->op->value : op.value; }
  std::string ParentName() const;
  bool HasPlanFunction() const { return plan_values && !plan_values->empty(); }
  bool HasLaunchFunction() const { return launch_function && launch_function->value; }
  bool HasReferenceFunction() const { return reference_function && reference_function->value; }
};

// `file` is what errors call it. The text is the manifest alone: no file is opened.
absl::StatusOr<Manifest> ParseManifest(std::string_view text, std::string_view file);

// variant.toml of the bundle, and the content of every file it names. `library` is the compiled
// plugin that holds the bundle; null: it is a directory.
absl::StatusOr<Manifest> ReadBundle(const BundleFiles& files,
                                    std::shared_ptr<const PluginLibrary> library = nullptr);

}  // namespace kvr::bundle
