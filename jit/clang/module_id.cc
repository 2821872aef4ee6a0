// SPDX-License-Identifier: Apache-2.0
#include "jit/clang/module_id.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace kvr::clang_jit {
namespace {

struct Search {
  uintptr_t address;  // something in the object looked for
  std::string id;
};

std::string BuildIdIn(const char* notes, size_t bytes) {
  for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= bytes;) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes + at, sizeof note);
    const size_t name = at + sizeof note;
    const size_t content = name + (note.n_namesz + 3) / 4 * 4;
    const size_t next = content + (note.n_descsz + 3) / 4 * 4;
    if (next > bytes) break;
    if (note.n_type == NT_GNU_BUILD_ID && std::memcmp(notes + name, "GNU", 4) == 0) {
      std::string hex;
      for (size_t i = 0; i < note.n_descsz; ++i) {
        const auto byte = static_cast<unsigned char>(notes[content + i]);
        hex += "0123456789abcdef"[byte >> 4];
        hex += "0123456789abcdef"[byte & 15];
      }
      return hex;
    }
    at = next;
  }
  return {};
}

int Visit(dl_phdr_info* object, size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  bool ours = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + header.p_vaddr;
    ours |= header.p_type == PT_LOAD && search->address >= begin &&
            search->address < begin + header.p_memsz;
  }
  if (!ours) return 0;
  for (int i = 0; i < object->dlpi_phnum && search->id.empty(); ++i) {
    const ElfW(Phdr)& header = object->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    search->id = BuildIdIn(reinterpret_cast<const char*>(object->dlpi_addr + header.p_vaddr),
                           header.p_memsz);
  }
  return 1;
}

}  // namespace

std::string OwnBuildId() {
  Search search{reinterpret_cast<uintptr_t>(&OwnBuildId), {}};
  dl_iterate_phdr(&Visit, &search);
  return search.id;
}

}  // namespace kvr::clang_jit
