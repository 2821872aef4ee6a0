// SPDX-License-Identifier: Apache-2.0
//
// Loads relocatable x86-64 ELF objects into the process with LLVM ORC and JITLink. An object sees
// the symbols of kernel_symbols.h and nothing else of the process.
//
// Threading: all functions may be called concurrently. Ownership: a LoadedObject must go before
// its loader.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvr::host {

class LoadedObject {
 public:
  virtual ~LoadedObject() = default;  // unmaps the code
};

class ObjectLoader {
 public:
  static absl::StatusOr<std::unique_ptr<ObjectLoader>> Create();
  ~ObjectLoader();

  // Links `bytes` and stores the addresses of `symbols`, in order, in `*addresses`.
  absl::StatusOr<std::unique_ptr<LoadedObject>> Load(std::string_view bytes,
                                                     const std::vector<std::string>& symbols,
                                                     std::vector<void*>* addresses);

 private:
  struct Impl;
  ObjectLoader();
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr::host
