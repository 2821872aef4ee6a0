// SPDX-License-Identifier: Apache-2.0
//
// The compiler interface. Implementations: jit/nvrtc (CUDA targets), jit/clang (the host device,
// inside its loadable module: only plain data and this vtable cross that border).
//
// Threading: identity, Supports, Options and header_roots may be called from any thread at any
// time. Compile may run on several threads at once if concurrent(); else Jit serialises it.
// Purity: Compile depends on the unit, the target, identity() and Options(target) alone. It reads
// no file that the unit does not hold (its own runtime apart, which identity() covers).
// Errors: a fault in the unit is kInvalidArgument, made by CompileError (jit/diagnostics.h) from
// the compiler's messages; a target it cannot do is kUnimplemented; its own failure kInternal.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/binary.h"
#include "jit/unit.h"

namespace kvr {

// One place where includes are looked up: a directory, or files held in memory.
struct HeaderRoot {
  std::string directory;
  std::map<std::string, std::string> memory;  // name → content; looked up if directory is empty
};

struct CompiledUnit {
  std::string bytes;                  // a cubin, or an object file
  std::vector<BinaryKernel> kernels;  // one per unit entry, in their order
  std::string log;                    // warnings, for people
};

class Compiler {
 public:
  virtual ~Compiler() = default;

  // Everything about the compiler that can change its output, versions and build ids, no paths:
  // "nvrtc 13.0.88 build-id ab12.../cd34...". Part of every key.
  virtual const std::string& identity() const = 0;

  // Can it produce binaries for exactly `target` ("sm_90a", "host")? If not, why.
  virtual bool Supports(std::string_view target, std::string* reason = nullptr) const = 0;
  virtual std::vector<std::string> targets() const = 0;  // for reports

  // The options Compile uses for `target`, in a fixed order, no paths. Part of every key.
  virtual std::string Options(std::string_view target) const = 0;

  // May Compile run on several threads at once?
  virtual bool concurrent() const = 0;

  // Searched in order after the bundle's own files. Fixed for the compiler's lifetime.
  virtual const std::vector<HeaderRoot>& header_roots() const = 0;

  virtual absl::StatusOr<CompiledUnit> Compile(const Unit& unit, std::string_view target) = 0;
};

}  // namespace kvr
