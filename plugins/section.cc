// SPDX-License-Identifier: Apache-2.0
#include "plugins/section.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "plugins/elf.h"
#include "plugins/files.h"
#include "sdk/kvr_plugin.h"

namespace kvr::bundle {
namespace {

constexpr std::string_view kSectionName = ".kvr_plugin";
constexpr size_t kAlign = 8;
constexpr size_t kMaxPluginName = 64;

absl::Status Refuse(std::string_view what, std::string_view fix) {
  return Error(absl::StatusCode::kInvalidArgument, what, fix);
}

absl::Status Damaged(size_t offset, std::string_view why) {
  return Refuse(StrCat("has a damaged section .kvr_plugin: at byte ", offset, " ", why),
                "make it with kvr_add_plugin() or the macros of kvr_plugin.h");
}

// As in the file, without padding.
struct RecordHeader {
  char magic[8];
  uint32_t abi_major, abi_minor;
  uint64_t name_size, content_size;
};
static_assert(sizeof(RecordHeader) == 32);

struct Record {
  size_t offset = 0;
  std::string_view magic, name, content;
  uint32_t abi_major = 0, abi_minor = 0;
};

// The record at *offset, which moves to the next one; the padding between must be zero.
absl::StatusOr<Record> NextRecord(std::string_view section, size_t* offset) {
  const size_t begin = *offset;
  RecordHeader header;
  if (section.size() - begin < sizeof header) return Damaged(begin, "a record is cut off");
  std::memcpy(&header, section.data() + begin, sizeof header);
  Record record;
  record.offset = begin;
  record.magic = section.substr(begin, sizeof header.magic);
  record.abi_major = header.abi_major;
  record.abi_minor = header.abi_minor;
  if (record.magic != "KVRPLUG1" && record.magic != "KVRFILE1") {
    return Damaged(begin, "there is no record");
  }
  const size_t body = begin + sizeof header;
  const size_t room = section.size() - body;
  if (header.name_size > room || header.content_size > room - header.name_size) {
    return Damaged(begin, "a record is larger than the section");
  }
  record.name = section.substr(body, header.name_size);
  record.content = section.substr(body + header.name_size, header.content_size);
  const size_t end = body + header.name_size + header.content_size;
  const size_t next = std::min((end + kAlign - 1) / kAlign * kAlign, section.size());
  if (section.substr(end, next - end).find_first_not_of('\0') != std::string_view::npos) {
    return Damaged(end, "a record does not end where it says");
  }
  *offset = next;
  return record;
}

bool IsWord(std::string_view text) {
  return !text.empty() && text.size() <= kMaxPluginName &&
         absl::ascii_isalnum(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || c == '+';
         });
}

absl::Status CheckAbi(const Record& first) {
  if (first.abi_major == KVR_ABI_MAJOR) return absl::OkStatus();
  return Refuse(StrCat("is made for plugin ABI ", first.abi_major, ".", first.abi_minor,
                       ", and this kvr has ", KVR_ABI_MAJOR, ".", KVR_ABI_MINOR),
                StrCat("build it with the kvr_plugin.h of this kvr, or take a kvr with ABI ",
                       first.abi_major));
}

absl::Status SetPlugin(const Record& record, PluginSection* plugin) {
  for (std::string_view word : {record.name, record.content}) {
    if (IsWord(word)) continue;
    return Refuse(
        StrCat("has the plugin ", word.data() == record.name.data() ? "name " : "version ",
               Quoted(word), ", which is not legal"),
        "KVR_PLUGIN(\"my-kernels\", \"1.0.0\"): letters, digits and ._-+, at most 64");
  }
  plugin->name = std::string(record.name);
  plugin->version = std::string(record.content);
  plugin->abi_minor = record.abi_minor;
  return absl::OkStatus();
}

absl::Status AddFile(const Record& record, PluginSection* plugin) {
  if (absl::Status status = CheckFileName(record.name); !status.ok()) {
    return WithContext("has a file that cannot be", status);
  }
  if (plugin->files.size() == static_cast<size_t>(kMaxPluginFiles)) {
    return Refuse(StrCat("has more than ", kMaxPluginFiles, " files"), "split it into several");
  }
  if (!plugin->files.emplace(record.name, record.content).second) {
    return Refuse(StrCat("has the file '", record.name, "' twice"), "state each file once");
  }
  return absl::OkStatus();
}

bool IsEntryPoint(std::string_view name) {
  const std::string_view leaf = name.substr(name.rfind('/') + 1);
  return leaf == kManifestName || leaf == kDefinitionName;
}

absl::Status ReadRecords(std::string_view section, PluginSection* plugin) {
  size_t offset = 0;
  while (offset < section.size()) {
    const bool first = offset == 0;
    KVR_ASSIGN_OR_RETURN(const Record record, NextRecord(section, &offset));
    if ((record.magic == "KVRPLUG1") != first) {
      return Damaged(record.offset,
                     first ? "a file comes before KVR_PLUGIN" : "KVR_PLUGIN stands a second time");
    }
    KVR_RETURN_IF_ERROR(CheckAbi(record));
    if (first) {
      KVR_RETURN_IF_ERROR(SetPlugin(record, plugin));
    } else if (record.abi_minor != plugin->abi_minor) {
      return Damaged(record.offset, "a record is of another ABI version than the first");
    } else {
      KVR_RETURN_IF_ERROR(AddFile(record, plugin));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PluginSection> ReadPluginSection(std::string_view library) {
  KVR_ASSIGN_OR_RETURN(const ElfFile file, ReadElf(library));
  if (file.machine != EM_X86_64) {
    return Refuse(StrCat("is for another machine (ELF machine ", file.machine, ")"),
                  "build it for x86-64");
  }
  if (file.type != ET_DYN) {
    return Refuse("is no shared library", "link it with -shared, or with kvr_add_plugin()");
  }
  const ElfFile::Section* found = nullptr;
  for (const ElfFile::Section& section : file.sections) {
    if (section.name != kSectionName) continue;
    if (found != nullptr) return Refuse("has two sections .kvr_plugin", "link it again");
    found = &section;
  }
  if (found == nullptr) {
    return Refuse("is no KVR plugin: it has no section .kvr_plugin",
                  "make plugins with kvr_add_plugin() or the macros of kvr_plugin.h");
  }
  if (found->content.empty()) return Damaged(0, "there is nothing");
  PluginSection plugin;
  plugin.has_code = file.Defines("kvr_plugin_v1");
  KVR_RETURN_IF_ERROR(ReadRecords(found->content, &plugin));
  if (std::none_of(plugin.files.begin(), plugin.files.end(),
                   [](const auto& each) { return IsEntryPoint(each.first); })) {
    return Refuse("holds neither a variant.toml nor a definition.json",
                  "add them with KVR_PLUGIN_FILE, or the BUNDLES of kvr_add_plugin()");
  }
  return plugin;
}

}  // namespace kvr::bundle
