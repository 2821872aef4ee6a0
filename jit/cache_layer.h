// SPDX-License-Identifier: Apache-2.0
//
// A prebuilt layer: compile on one machine, serve on others with no compile at all.
//
//   kvr compile OP --all --target sm_90a      where there is a compiler
//   kvr cache export DIR                      DIR is a cache directory and may be copied anywhere
//   KVR_CACHE_LAYERS=DIR                      where it serves
//
// <DIR>/manifest.json lists what the layer holds, so that a short copy is noticed, `kvr doctor` can
// say what a layer is for, and a machine without a compiler finds a binary by its source.
//
// Threading: all functions may be called concurrently with users of either directory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/fingerprint.h"
#include "jit/cache_files.h"

namespace kvr {

class BinaryCache;

struct LayerBinary {
  Fingerprint key, source;
  std::string label, target, compiler;
  int64_t bytes = 0;  // of the entry

  std::string_view op() const { return std::string_view(label).substr(0, label.find('/')); }
};

struct LayerManifest {
  std::vector<LayerBinary> binaries;
  std::vector<std::string> targets() const;    // sorted, each once
  std::vector<std::string> compilers() const;  // likewise
};

// kNotFound where there is none; else errors name the file and what is wrong.
absl::StatusOr<LayerManifest> ReadManifest(const std::string& directory,
                                           CacheFiles& files = CacheFiles::System());

struct LayerFilter {
  std::vector<std::string> targets, ops;  // empty: all
  bool Takes(const LayerBinary& binary) const;
};

struct Transfer {
  int copied = 0, present = 0;                               // present: it was there already
  int64_t bytes = 0;                                         // copied
  std::vector<std::pair<std::string, std::string>> refused;  // file, and what is wrong with it
};

// The user's entries and those of the layers below `from` that pass the filter, into `directory`:
// new, empty, or a layer, which then holds both. Damaged entries are refused by name.
absl::StatusOr<Transfer> ExportLayer(const BinaryCache& from, const std::string& directory,
                                     const LayerFilter& filter);

// Every entry of `directory` that passes the filter into the user's directory, once verified; what
// the manifest lists and the directory lacks is refused as well.
absl::StatusOr<Transfer> ImportLayer(const std::string& directory, BinaryCache& to,
                                     const LayerFilter& filter);

}  // namespace kvr
