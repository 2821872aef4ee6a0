// SPDX-License-Identifier: Apache-2.0
//
// A generation on disk: JSON, schema 1. Configs by value, never by index; full-length
// fingerprints; the digest of registry/generation.h. A serving process boots from it and a binary
// cache alone.
//
//   {"kind": "kvr-selections", "schema": 1, "device_model": "nvidia-h200", "target": "sm_90a",
//    "generation": 3, "digest": "<64 hex digits>",
//    "ops": {"mla_sparse_decode": {"key_policy": "topk:pow2", "selections": [
//      {"key": {"topk": 512}, "variant": "w8", "version": "1.0.0",
//       "variant_fingerprint": "<64>", "config": {"BLOCK_H": 16, ...}, "binary": "<64>",
//       "evidence": {"median_us": 12.5, "tried": 24, "device": "NVIDIA H200", "date": "...",
//                    "verdict": "WIN", "kind": "ship", "incumbent": "baseline {BLOCK_H=16,...}",
//                    "gain_low": -0.12, "gain_high": -0.08}}]}}}
//
// `verdict` and the four after it are left out together where nobody compared; a bound is null
// where there is none.
//
// Strict: unknown or missing fields, duplicates, a wrong schema, a digest that does not match the
// content, another device model or target, and a file others may write are errors that name the
// file and the place. A selection whose variant is gone or has changed since it was measured is not
// an error of the file: it is dropped and reported, and its key is served by the baseline.
//
// Threading: pure functions over files. Written aside, flushed to disk and renamed: a reader sees
// the old file or the new one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/device_info.h"
#include "registry/catalog.h"
#include "registry/generation.h"
#include "registry/selection_content.h"

namespace kvr {

struct DroppedSelection {
  std::string op, variant;
  Axes key;
  std::string reason;
};

struct LoadedSelections {
  GenerationPtr generation;  // what is left; its digest is of that
  Fingerprint file_digest;   // as the file states it, verified
  std::vector<DroppedSelection> dropped;
};

std::string SelectionJson(const Generation& generation);
// `origin` is named in errors.
absl::StatusOr<LoadedSelections> ParseSelectionJson(std::string_view json, std::string_view origin,
                                                    const Catalog& catalog,
                                                    const DeviceInfo& device);

// A content that was read without a catalog, against what is here.
absl::StatusOr<LoadedSelections> ResolveSelections(const SelectionContent& content,
                                                   std::string_view origin, const Catalog& catalog,
                                                   const DeviceInfo& device);

absl::Status WriteSelectionFile(const Generation& generation, const std::string& path);
absl::StatusOr<LoadedSelections> ReadSelectionFile(const std::string& path, const Catalog& catalog,
                                                   const DeviceInfo& device);
// The same files without a catalog: of any device and any plugins.
absl::Status WriteSelectionContent(const SelectionContent& content, const std::string& path);
absl::StatusOr<SelectionContent> ReadSelectionContent(const std::string& path);

}  // namespace kvr
