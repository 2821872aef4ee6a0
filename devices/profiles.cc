// SPDX-License-Identifier: Apache-2.0
#include "devices/profiles.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <system_error>

#include "core/install_layout.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

namespace fs = std::filesystem;

// Reads one file's keys; the first error sticks. A key that nobody asked for is unknown.
class Reader {
 public:
  Reader(const toml::table& table, std::string_view file) : table_(table), file_(file) {}

  std::string String(std::string_view key) {
    const toml::node* node = Find(key);
    if (node == nullptr) return {};
    const auto value = node->value_exact<std::string>();
    if (!value || value->empty()) Fail(node->source(), key, "is not a text", "write it in quotes");
    return value.value_or("");
  }

  int64_t Count(std::string_view key, int64_t least = 1) {
    const toml::node* node = Find(key);
    if (node == nullptr) return least;
    const auto value = node->value_exact<int64_t>();
    if (!value || *value < least) {
      Fail(node->source(), key, "is not a number that makes sense",
           StrCat("give an integer of at least ", least));
    }
    return value.value_or(least);
  }

  int Int(std::string_view key) {
    const int64_t value = Count(key);
    if (value <= std::numeric_limits<int>::max()) return static_cast<int>(value);
    Fail(table_.get(key)->source(), key, "is too large", "give a smaller number");
    return 1;
  }

  std::vector<std::string> Strings(std::string_view key) {  // optional
    keys_.push_back(key);
    std::vector<std::string> result;
    const toml::node* node = table_.get(key);
    if (node == nullptr) return result;
    const toml::array* array = node->as_array();
    if (array == nullptr) Fail(node->source(), key, "is not a list", "write [\"a\", \"b\"]");
    for (size_t i = 0; array != nullptr && i < array->size(); ++i) {
      const auto value = (*array)[i].value_exact<std::string>();
      if (!value) Fail((*array)[i].source(), key, "holds something not a text", "use quotes");
      result.push_back(value.value_or(""));
    }
    return result;
  }

  absl::Status Finish() {
    for (const auto& [key, node] : table_) {
      if (std::find(keys_.begin(), keys_.end(), key.str()) != keys_.end()) continue;
      Fail(node.source(), key.str(), "is not a key of a profile", SuggestNames(key.str(), keys_));
    }
    return status_;
  }

 private:
  const toml::node* Find(std::string_view key) {
    keys_.push_back(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr) Fail({}, key, "is missing", "every limit of the device must be given");
    return node;
  }

  void Fail(const toml::source_region& at, std::string_view key, std::string_view what,
            std::string_view fix) {
    if (!status_.ok()) return;
    status_ = ErrorAt(absl::StatusCode::kInvalidArgument, file_, static_cast<int>(at.begin.line),
                      static_cast<int>(at.begin.column), StrCat(Quoted(key), " ", what), fix);
  }

  const toml::table& table_;
  const std::string_view file_;
  std::vector<std::string_view> keys_;
  absl::Status status_;
};

struct Profile {
  DeviceInfo info;
  std::vector<std::string> other_models;  // sold under another name, otherwise the same
};

absl::StatusOr<Profile> Parse(std::string_view text, std::string_view file) {
  const auto parse = [&]() -> absl::StatusOr<toml::table> {
    try {
      return toml::parse(text);
    } catch (const toml::parse_error& error) {
      const toml::source_position at = error.source().begin;
      return ErrorAt(absl::StatusCode::kInvalidArgument, file, static_cast<int>(at.line),
                     static_cast<int>(at.column), error.description(), "write valid TOML");
    }
  };
  KVR_ASSIGN_OR_RETURN(const toml::table table, parse());
  Reader reader(table, file);
  Profile profile;
  profile.other_models = reader.Strings("other_models");
  DeviceInfo& info = profile.info;
  info.kind = "profile";
  info.name = reader.String("name");
  info.model = reader.String("model");
  info.target = reader.String("target");
  info.sms = reader.Int("sms");
  info.max_threads_per_block = reader.Int("max_threads_per_block");
  info.max_threads_per_sm = reader.Int("max_threads_per_sm");
  info.max_blocks_per_sm = reader.Int("max_blocks_per_sm");
  info.max_cluster_size = reader.Int("max_cluster_size");
  info.regs_per_sm = reader.Count("regs_per_sm");
  info.regs_per_block = reader.Count("regs_per_block");
  info.smem_per_sm = reader.Count("smem_per_sm");
  info.smem_per_block = reader.Count("smem_per_block");
  info.smem_reserved_per_block = reader.Count("smem_reserved_per_block", /*least=*/0);
  info.l2_bytes = reader.Count("l2_bytes");
  info.memory_bandwidth = static_cast<double>(reader.Count("memory_bandwidth"));
  KVR_RETURN_IF_ERROR(reader.Finish());
  return profile;
}

absl::StatusOr<Profile> Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) {
    return Error(absl::StatusCode::kNotFound, StrCat("cannot read ", path.string()),
                 "check that the file is there and readable");
  }
  return Parse(text, path.string());
}

absl::StatusOr<std::map<std::string, fs::path>> FindProfiles() {
  KVR_ASSIGN_OR_RETURN(const fs::path directory, ProfilesDirectory());
  std::map<std::string, fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".toml") found.emplace(it->path().stem().string(), it->path());
  }
  if (!error) return found;
  return Error(absl::StatusCode::kUnavailable,
               StrCat("cannot list ", directory.string(), ": ", error.message()),
               "make the directory readable");
}

}  // namespace

absl::StatusOr<std::string> ProfilesDirectory() {
  return FindPart({"the device profiles", "KVR_PROFILES_DIR", "share/kvr/profiles", "",
                   "set KVR_PROFILES_DIR to the directory that holds them"});
}

absl::StatusOr<DeviceInfo> ParseProfile(std::string_view text, std::string_view file) {
  KVR_ASSIGN_OR_RETURN(Profile profile, Parse(text, file));
  return std::move(profile.info);
}

absl::StatusOr<DeviceInfo> LoadProfile(std::string_view name) {
  KVR_ASSIGN_OR_RETURN(const auto profiles, FindProfiles());
  const auto it = profiles.find(std::string(name));
  if (it == profiles.end()) {
    std::vector<std::string_view> known;
    for (const auto& [profile, path] : profiles) known.push_back(profile);
    return Error(absl::StatusCode::kNotFound, StrCat("no profile ", Quoted(name)),
                 SuggestNames(name, known));
  }
  KVR_ASSIGN_OR_RETURN(Profile profile, Read(it->second));
  return std::move(profile.info);
}

absl::StatusOr<DeviceInfo> LoadProfileOfModel(std::string_view model) {
  KVR_ASSIGN_OR_RETURN(const auto profiles, FindProfiles());
  for (const auto& [name, path] : profiles) {
    absl::StatusOr<Profile> profile = Read(path);
    if (!profile.ok()) continue;  // a broken file must not hide the others; LoadProfile reports it
    const auto& others = profile->other_models;
    if (profile->info.model == model ||
        std::find(others.begin(), others.end(), model) != others.end()) {
      return std::move(profile->info);
    }
  }
  return Error(absl::StatusCode::kNotFound, StrCat("no profile describes model ", Quoted(model)),
               "add a profile for it");
}

absl::StatusOr<std::vector<std::string>> ListProfiles() {
  KVR_ASSIGN_OR_RETURN(const auto profiles, FindProfiles());
  std::vector<std::string> names;
  for (const auto& [name, path] : profiles) names.push_back(name);
  return names;
}

}  // namespace kvr
