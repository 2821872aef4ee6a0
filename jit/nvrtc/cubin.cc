// SPDX-License-Identifier: Apache-2.0
#include "jit/nvrtc/cubin.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "core/status.h"

namespace kvr {
namespace {

constexpr uint16_t kMachineCuda = 190;
constexpr int kAbiSince13 = 8;
// Blackwell and Hopper keep 1 KiB of every block's shared memory; .nv.shared includes it.
constexpr int64_t kReservedShared = 1024;

// Attributes of .nv.info that are read here.
constexpr uint8_t kFormatSized = 4;
constexpr uint8_t kMaxThreads = 0x05;
constexpr uint8_t kRequiredThreads = 0x10;
constexpr uint8_t kFrameSize = 0x11;
constexpr uint8_t kParameter = 0x17;
constexpr uint8_t kRegisterCount = 0x2f;
constexpr uint8_t kParameterWide = 0x45;  // where all of them exceed 4 KiB

constexpr size_t kMostParameters = 4096;  // what an ordinal may make us allocate

template <typename T>
std::optional<T> Load(std::string_view file, uint64_t offset) {
  T value;
  if (offset > file.size() || file.size() - offset < sizeof value) return std::nullopt;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

std::string_view Slice(std::string_view file, uint64_t offset, uint64_t size) {
  if (offset > file.size() || size > file.size() - offset) return {};
  return file.substr(offset, size);
}

std::string_view CString(std::string_view table, uint64_t offset) {
  if (offset >= table.size()) return {};
  std::string_view rest = table.substr(offset);
  size_t end = rest.find('\0');
  return end == rest.npos ? std::string_view() : rest.substr(0, end);
}

struct Section {
  std::string_view name;
  Elf64_Shdr header;
  std::string_view content;  // empty for NOBITS
};

std::vector<Section> Sections(std::string_view file, const Elf64_Ehdr& elf) {
  std::vector<Section> sections;
  std::vector<Elf64_Shdr> headers;
  for (uint64_t i = 0; i < elf.e_shnum; ++i) {
    auto header = Load<Elf64_Shdr>(file, elf.e_shoff + i * sizeof(Elf64_Shdr));
    if (!header) return {};
    headers.push_back(*header);
  }
  if (elf.e_shstrndx >= headers.size()) return {};
  const Elf64_Shdr& names = headers[elf.e_shstrndx];
  std::string_view table = Slice(file, names.sh_offset, names.sh_size);
  for (const Elf64_Shdr& header : headers) {
    std::string_view content;
    if (header.sh_type != SHT_NOBITS) content = Slice(file, header.sh_offset, header.sh_size);
    sections.push_back({CString(table, header.sh_name), header, content});
  }
  return sections;
}

const Section* Find(const std::vector<Section>& sections, std::string_view name) {
  for (const Section& section : sections)
    if (section.name == name) return &section;
  return nullptr;
}

std::string SymbolName(const std::vector<Section>& sections, uint32_t index) {
  for (const Section& section : sections) {
    if (section.header.sh_type != SHT_SYMTAB || section.header.sh_link >= sections.size()) continue;
    auto symbol = Load<Elf64_Sym>(section.content, uint64_t{index} * sizeof(Elf64_Sym));
    if (symbol) {
      return std::string(CString(sections[section.header.sh_link].content, symbol->st_name));
    }
  }
  return "";
}

// Calls visit(attribute, payload) for every record with a payload.
template <typename Visit>
void ForEachAttribute(std::string_view info, Visit visit) {
  while (info.size() >= 4) {
    const uint8_t format = static_cast<uint8_t>(info[0]);
    const uint8_t attribute = static_cast<uint8_t>(info[1]);
    const uint16_t size = *Load<uint16_t>(info, 2);
    info.remove_prefix(4);
    if (format != kFormatSized) continue;  // its value is the 16 bits just passed
    if (size > info.size()) return;
    visit(attribute, info.substr(0, size));
    info.remove_prefix(size);
  }
}

// The note of the ptxas that made the file keeps its command line: "... -arch sm_90a ".
std::string ArchOfNote(std::string_view note) {
  constexpr std::string_view kOption = "-arch ";
  size_t at = note.rfind(kOption);
  if (at == note.npos) return "";
  std::string_view rest = note.substr(at + kOption.size());
  return std::string(rest.substr(0, rest.find_first_of(std::string_view(" \0", 2))));
}

std::string_view StripPrefix(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix ? text.substr(prefix.size()) : std::string_view();
}

absl::Status NotACubin(std::string_view why) {
  return Error(absl::StatusCode::kInvalidArgument, "not a cubin: " + std::string(why),
               "give what a CUDA compiler writes for one exact architecture (nvcc -cubin)");
}

// One record of a kernel's own .nv.info section.
void ReadKernelAttribute(uint8_t attribute, std::string_view payload, CubinKernel* kernel) {
  const auto x = Load<uint32_t>(payload, 0), y = Load<uint32_t>(payload, 4),
             z = Load<uint32_t>(payload, 8);
  if (!x || !y || !z) return;
  if (attribute == kMaxThreads || attribute == kRequiredThreads) {
    const uint64_t threads = std::min<uint64_t>(uint64_t{*x} * *y, 1024) * *z;
    kernel->max_threads = static_cast<int>(std::min<uint64_t>(threads, 1024));
  } else if (attribute == kParameter || attribute == kParameterWide) {
    // An index, ordinal and offset of 16 bits each, then the size: in the upper 14 bits, or alone.
    const size_t ordinal = *y & 0xffff;
    if (ordinal >= kMostParameters) return;
    std::vector<int64_t>& bytes = kernel->parameter_bytes;
    if (bytes.size() <= ordinal) bytes.resize(ordinal + 1);
    bytes[ordinal] = attribute == kParameter ? *z >> 18 : *z;
  }
}

}  // namespace

absl::StatusOr<CubinInfo> ReadCubin(std::string_view cubin) {
  if (cubin.empty()) return NotACubin("it is empty");
  auto elf = Load<Elf64_Ehdr>(cubin, 0);
  if (!elf || std::memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0 ||
      elf->e_ident[EI_CLASS] != ELFCLASS64) {
    return NotACubin("it is no ELF64 file");
  }
  if (elf->e_machine != kMachineCuda) return NotACubin("its machine is not CUDA");
  CubinInfo info;
  info.abi = elf->e_ident[EI_ABIVERSION];
  if (info.abi >= kAbiSince13) {
    info.sm = (elf->e_flags >> 8) & 0xff;
  } else {
    info.sm = elf->e_flags & 0xff;
    info.accelerated = (elf->e_flags & 0x800) != 0;
  }
  const std::vector<Section> sections = Sections(cubin, *elf);
  if (const Section* note = Find(sections, ".note.nv.tkinfo"))
    info.arch = ArchOfNote(note->content);

  for (const Section& section : sections) {
    if (std::string_view name = StripPrefix(section.name, ".text."); !name.empty())
      info.kernels[std::string(name)];
  }
  for (const Section& section : sections) {
    if (section.name == ".nv.info") {
      ForEachAttribute(section.content, [&](uint8_t attribute, std::string_view payload) {
        auto symbol = Load<uint32_t>(payload, 0), value = Load<uint32_t>(payload, 4);
        if (!symbol || !value) return;
        auto kernel = info.kernels.find(SymbolName(sections, *symbol));
        if (kernel == info.kernels.end()) return;
        if (attribute == kRegisterCount) kernel->second.registers = static_cast<int>(*value);
        if (attribute == kFrameSize) kernel->second.frame_bytes = *value;
      });
    } else if (auto infoed = StripPrefix(section.name, ".nv.info."); !infoed.empty()) {
      auto kernel = info.kernels.find(std::string(infoed));
      if (kernel == info.kernels.end()) continue;
      ForEachAttribute(section.content, [&](uint8_t attribute, std::string_view payload) {
        ReadKernelAttribute(attribute, payload, &kernel->second);
      });
    } else if (auto sharing = StripPrefix(section.name, ".nv.shared."); !sharing.empty()) {
      auto kernel = info.kernels.find(std::string(sharing));
      if (kernel == info.kernels.end()) continue;
      int64_t size = static_cast<int64_t>(section.header.sh_size);
      kernel->second.smem_static =
          info.sm >= 90 ? std::max<int64_t>(size - kReservedShared, 0) : size;
    }
  }
  return info;
}

std::string CubinTarget(const CubinInfo& info) {
  // The note is only what was asked for; the flags are what the loader goes by.
  const std::string plain = "sm_" + std::to_string(info.sm);
  if (info.arch == plain + "a" || info.arch == plain + "f") return info.arch;
  return plain + (info.accelerated ? "a" : "");
}

absl::Status CheckCubinTarget(std::string_view cubin, std::string_view target) {
  absl::StatusOr<CubinInfo> read = ReadCubin(cubin);
  if (!read.ok()) {
    return Error(absl::StatusCode::kInternal,
                 "what NVRTC gave is " + std::string(What(read.status())),
                 "use another release of CUDA");
  }
  const CubinInfo& info = *read;
  const std::string found = CubinTarget(info);
  if (found == target && !info.kernels.empty()) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal,
               "asked for " + std::string(target) + ", NVRTC gave a cubin for " + found +
                   (info.kernels.empty() ? " without any kernel" : ""),
               "use a release of CUDA that supports " + std::string(target));
}

std::string BuildId(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  std::string id;
  Elf64_Ehdr elf;
  if (pread(fd, &elf, sizeof elf, 0) == static_cast<ssize_t>(sizeof elf) &&
      std::memcmp(elf.e_ident, ELFMAG, SELFMAG) == 0 && elf.e_ident[EI_CLASS] == ELFCLASS64) {
    for (uint64_t i = 0; i < elf.e_phnum && id.empty(); ++i) {
      Elf64_Phdr segment;
      if (pread(fd, &segment, sizeof segment,
                static_cast<off_t>(elf.e_phoff + i * sizeof segment)) !=
          static_cast<ssize_t>(sizeof segment))
        break;
      if (segment.p_type != PT_NOTE || segment.p_filesz > 1 << 20) continue;
      std::string notes(segment.p_filesz, '\0');
      if (pread(fd, notes.data(), notes.size(), static_cast<off_t>(segment.p_offset)) !=
          static_cast<ssize_t>(notes.size()))
        continue;
      for (uint64_t at = 0;;) {
        auto note = Load<Elf64_Nhdr>(notes, at);
        if (!note) break;
        uint64_t name = at + sizeof *note;
        uint64_t content = name + ((uint64_t{note->n_namesz} + 3) & ~uint64_t{3});
        if (note->n_type == NT_GNU_BUILD_ID && CString(notes, name) == "GNU") {
          constexpr char kDigits[] = "0123456789abcdef";
          for (char c : Slice(notes, content, note->n_descsz)) {
            id += kDigits[static_cast<uint8_t>(c) >> 4];
            id += kDigits[static_cast<uint8_t>(c) & 15];
          }
          break;
        }
        at = content + ((uint64_t{note->n_descsz} + 3) & ~uint64_t{3});
      }
    }
  }
  close(fd);
  return id;
}

}  // namespace kvr
