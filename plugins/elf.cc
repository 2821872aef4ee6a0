// SPDX-License-Identifier: Apache-2.0
#include "plugins/elf.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "llvm/Object/ELF.h"

namespace kvr::bundle {
namespace {

using Elf = llvm::object::ELFFile<llvm::object::ELF64LE>;
namespace elf = llvm::ELF;

absl::Status Damaged(llvm::Error error) {
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat("is truncated or damaged: ", llvm::toString(std::move(error))),
               "build or copy it again");
}

std::string_view View(llvm::StringRef text) { return {text.data(), text.size()}; }

// LLVM's Expected as a StatusOr.
#define KVR_ASSIGN_OR_DAMAGED(lhs, expr)               \
  auto lhs##_or = (expr);                              \
  if (!lhs##_or) return Damaged(lhs##_or.takeError()); \
  auto& lhs = *lhs##_or

absl::Status AddFunctions(const Elf& file, const Elf::Elf_Shdr& table, Elf::Elf_Shdr_Range sections,
                          ElfFile* read) {
  KVR_ASSIGN_OR_DAMAGED(symbols, file.symbols(&table));
  KVR_ASSIGN_OR_DAMAGED(strings, file.getStringTableForSymtab(table, sections));
  for (const Elf::Elf_Sym& symbol : symbols) {
    const uint8_t visibility = symbol.getVisibility();
    if (symbol.getType() != elf::STT_FUNC || symbol.isUndefined() ||
        symbol.getBinding() == elf::STB_LOCAL || visibility == elf::STV_HIDDEN ||
        visibility == elf::STV_INTERNAL) {
      continue;
    }
    KVR_ASSIGN_OR_DAMAGED(name, symbol.getName(strings));
    read->functions.push_back(View(name));
  }
  return absl::OkStatus();
}

}  // namespace

bool ElfFile::Defines(std::string_view function) const {
  return std::find(functions.begin(), functions.end(), function) != functions.end();
}

absl::StatusOr<ElfFile> ReadElf(std::string_view content) {
  if (!content.starts_with("\x7f"
                           "ELF")) {
    return Error(absl::StatusCode::kInvalidArgument,
                 content.empty() ? "is empty" : "is no ELF file", "give a file that a linker made");
  }
  KVR_ASSIGN_OR_DAMAGED(file, Elf::create({content.data(), content.size()}));
  const Elf::Elf_Ehdr& header = file.getHeader();
  if (header.e_ident[elf::EI_CLASS] != elf::ELFCLASS64 ||
      header.e_ident[elf::EI_DATA] != elf::ELFDATA2LSB) {
    return Error(absl::StatusCode::kInvalidArgument, "is no 64-bit little-endian ELF file",
                 "build it for x86-64 Linux");
  }
  ElfFile read;
  read.type = header.e_type;
  read.machine = header.e_machine;
  read.abi_version = header.e_ident[elf::EI_ABIVERSION];
  read.flags = header.e_flags;
  KVR_ASSIGN_OR_DAMAGED(sections, file.sections());
  const unsigned table = read.type == elf::ET_DYN ? elf::SHT_DYNSYM : elf::SHT_SYMTAB;
  for (const Elf::Elf_Shdr& section : sections) {
    if (section.sh_type == table) {
      KVR_RETURN_IF_ERROR(AddFunctions(file, section, sections, &read));
    }
    if (section.sh_type == elf::SHT_NULL || section.sh_type == elf::SHT_NOBITS) continue;
    KVR_ASSIGN_OR_DAMAGED(name, file.getSectionName(section));
    KVR_ASSIGN_OR_DAMAGED(bytes, file.getSectionContents(section));
    read.sections.push_back(
        {View(name), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  }
  return read;
}

}  // namespace kvr::bundle
