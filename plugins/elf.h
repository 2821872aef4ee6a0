// SPDX-License-Identifier: Apache-2.0
//
// An ELF file read with LLVM's Object library: shared libraries before anything loads them, cubins
// before any driver sees them. Whatever the bytes are, the answer is what they say or an error.
//
// Threading: pure. Ownership: views into the content given.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace kvr::bundle {

struct ElfFile {
  struct Section {
    std::string_view name, content;
  };
  uint16_t type = 0, machine = 0;
  uint8_t abi_version = 0;
  uint32_t flags = 0;
  std::vector<Section> sections;  // those with content in the file
  // Global functions that it defines and shows: of the dynamic symbol table in a shared library,
  // else of the static one.
  std::vector<std::string_view> functions;

  bool Defines(std::string_view function) const;
};

// 64-bit little-endian files only. Errors complete "'name' ...": "is no ELF file", "is truncated
// or damaged: ...".
absl::StatusOr<ElfFile> ReadElf(std::string_view content);

}  // namespace kvr::bundle
