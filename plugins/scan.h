// SPDX-License-Identifier: Apache-2.0
//
// What plugins bring: their operations, and their bundles as admitted variants, or a rejection that
// names file, line, what was found and what would be right.
//
//   Scan scan = ScanPlugins(roots);
//   KVR_ASSIGN_OR_RETURN(Catalog catalog, Catalog::Create(std::move(scan.operations)));
//   catalog.Add(std::move(scan));
//
// A root is a compiled plugin (*.so), a bundle, or a directory that holds *.so,
// <variant>/variant.toml or <op>/<variant>/variant.toml. Names of files and directories mean
// nothing: op and name stand in the manifest, so what is found may be moved.
// Scanning order is the order of `roots`, then bytewise by path. Of two operations of one name, two
// variants with the same op and name, or two baselines of an op, the first admitted stays and the
// later is rejected. What is reached twice (a root given twice, or a symlink to it) is read once.
//
// A bundle may implement an operation of any root, and extend a variant of any root by op, name and
// major version; the result is merged and refers to the other only where it uses its library's
// code. What is merged is checked against the child's op. A bundle whose parent is rejected is
// rejected; no rejection stops anything else.
//
// Trust: a file or directory must belong to root, to this process's user or to the owner of the
// running executable, and nobody else may be able to write it.
//
// Threading: functions of the file system; they read only, and run no code of what they find. A
// library is loaded when code of it is first needed (plugins/library.h).
// Errors: never fails as a whole; each status is made by kvr::Error/ErrorAt.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/op.h"
#include "core/variant.h"

namespace kvr {

struct Rejection {
  std::string path;  // the file at fault, or the directory or root where none could be read
  absl::Status status;
};

struct Scan {
  std::vector<std::unique_ptr<Operation>> operations;  // in scanning order
  std::vector<VariantPtr> variants;                    // admitted, in scanning order
  std::vector<Rejection> rejections;                   // roots first; at most one a bundle
};

struct ScanOptions {
  // Operations that variants may implement besides those of the roots, and that keep their names.
  absl::Span<const OpSpec* const> ops;
  // Asked before a library is loaded, with its path, on the thread that needs its code: an error
  // refuses it. Loading runs constructors: this is where another process can try it first.
  std::function<absl::Status(const std::string& path)> check_load;
};

Scan ScanPlugins(absl::Span<const std::string> roots, const ScanOptions& options = {});

}  // namespace kvr
