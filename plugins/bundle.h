// SPDX-License-Identifier: Apache-2.0
//
// The bundle reader: directories that carry a variant.toml (schema 1; docs/bundles.md) become
// admitted variants, or a rejection that names file, line, what was found and what would be right.
//
// A root is a bundle itself, or holds <variant>/variant.toml, or <op>/<variant>/variant.toml.
// Directory names mean nothing: op and name stand in the manifest, so a bundle may be moved.
// Scanning order is the order of `roots`, then bytewise by path. Of two variants with the same op
// and name, or of two baselines of an op, the first admitted stays and the later is rejected.
// A bundle reached twice (a root given twice, or a symlink to it) is read once.
//
// A bundle may extend a variant of any root by op, name and major version; the result is merged
// and holds no reference to the other. A bundle whose parent is rejected is rejected; no rejection
// stops any other bundle.
//
// Trust: a file or directory of a bundle must belong to root, to this process's user or to the
// owner of the running executable, and nobody else may be able to write it.
//
// Threading: pure functions of the file system; reads only, runs no code of a bundle.
// Errors: never fails as a whole; each status is made by kvr::Error/ErrorAt.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/op.h"
#include "core/variant.h"

namespace kvr {

struct Rejection {
  std::string path;  // the manifest, or the directory or root where none could be read
  absl::Status status;
};

struct Scan {
  std::vector<VariantPtr> variants;   // admitted, in scanning order
  std::vector<Rejection> rejections;  // roots first; at most one a bundle
};

// `ops` are the operations that variants may implement; the variants hold no pointer to
// them.
Scan ScanBundles(absl::Span<const std::string> roots, absl::Span<const OpSpec* const> ops);

}  // namespace kvr
