// SPDX-License-Identifier: Apache-2.0
#include "tests/arrows/include_arrows.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace kvr {
namespace {

namespace fs = std::filesystem;

// Levels of the houses; a house includes itself and the levels below its own.
const std::map<std::string, int> kLevels = {
    {"sdk", 0},     {"core", 1},     {"variants", 2}, {"plugins", 2}, {"jit", 2},
    {"devices", 2}, {"registry", 3}, {"tuner", 4},    {"api", 5},     {"cli", 6},
    {"bench", 6},   {"examples", 6}, {"tests", 7}};

struct Include {
  int line;
  std::string written;
  std::string target;  // relative to the root, normal form
};

struct File {
  std::string path;
  std::vector<Include> includes;
};

// The `n`th component of a path, or "".
std::string Component(const std::string& path, int n) {
  fs::path whole(path);
  for (const fs::path& part : whole) {
    if (n-- == 0) return part.string();
  }
  return "";
}

std::string House(const std::string& path) { return Component(path, 0); }

bool IsSource(const fs::path& path) {
  static const std::set<std::string> kExtensions = {".h",  ".hpp", ".inc", ".c",
                                                    ".cc", ".cpp", ".cu",  ".cuh"};
  return kExtensions.count(path.extension().string()) > 0;
}

// The name in an #include line, quotes or angles; nothing for another line.
std::optional<std::string> IncludedName(const std::string& line) {
  auto skip = [&line](size_t at) {
    size_t next = line.find_first_not_of(" \t", at);
    return next == std::string::npos ? line.size() : next;
  };
  size_t at = skip(0);
  if (at >= line.size() || line[at] != '#') return std::nullopt;
  at = skip(at + 1);
  if (line.compare(at, 7, "include") != 0) return std::nullopt;
  at = skip(at + 7);
  if (at >= line.size() || (line[at] != '"' && line[at] != '<')) return std::nullopt;
  size_t end = line.find(line[at] == '"' ? '"' : '>', at + 1);
  if (end == std::string::npos) return std::nullopt;
  return line.substr(at + 1, end - at - 1);
}

// As a compiler looks: beside the file first, then from the root.
std::string Resolve(const fs::path& root, const fs::path& file, const std::string& written) {
  fs::path beside = (file.parent_path() / written).lexically_normal();
  const bool climbs = written.rfind("../", 0) == 0;
  if (climbs || fs::exists(root / beside)) return beside.generic_string();
  return fs::path(written).lexically_normal().generic_string();
}

std::vector<File> ReadTree(const fs::path& root) {
  std::vector<File> files;
  for (const auto& [house, level] : kLevels) {
    if (!fs::is_directory(root / house)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / house)) {
      if (!entry.is_regular_file() || !IsSource(entry.path())) continue;
      File file;
      const fs::path relative = entry.path().lexically_relative(root);
      file.path = relative.generic_string();
      std::ifstream stream(entry.path());
      std::string line;
      for (int number = 1; std::getline(stream, line); ++number) {
        if (auto name = IncludedName(line)) {
          file.includes.push_back({number, *name, Resolve(root, relative, *name)});
        }
      }
      files.push_back(std::move(file));
    }
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.path < b.path; });
  return files;
}

// Why `from` may not include `to`; empty if it may, or if `to` lies in no house.
std::string Refusal(const std::string& from, const std::string& to) {
  const std::string source = House(from), target = House(to);
  auto source_level = kLevels.find(source), target_level = kLevels.find(target);
  if (target_level == kLevels.end() || Component(to, 1).empty()) return "";
  if (target == "variants") {
    const std::string shared = Component(to, 1);  // an operation's directory, or what they share
    const bool own = source == "variants" && (shared == "common" || shared == Component(from, 1));
    const bool roofline =  // plugins, too
        source == "bench" && Component(from, 1) == "rooflines" && shared == "common";
    const bool test = source == "tests" && Component(from, 1) == "variants";
    return own || roofline || test ? "" : "no house includes a file of variants/";
  }
  if (source == target) return "";
  if (target_level->second < source_level->second) return "";
  if (target_level->second == source_level->second) {
    return source + " and " + target + " do not know each other";
  }
  return "calls go down only, and " + target + " is above " + source;
}

// What api/runtime.* reaches within api/ must not include the tuner.
void CheckRuntime(const std::map<std::string, const File*>& by_path,
                  std::vector<Violation>* violations) {
  std::vector<std::string> open = {"api/runtime.h", "api/runtime.cc"};
  std::set<std::string> seen(open.begin(), open.end());
  while (!open.empty()) {
    auto file = by_path.find(open.back());
    open.pop_back();
    if (file == by_path.end()) continue;
    for (const Include& include : file->second->includes) {
      if (House(include.target) == "tuner") {
        violations->push_back({file->first, include.line, include.written,
                               "api/runtime reaches this file, and serving links no tuner"});
      }
      if (House(include.target) == "api" && seen.insert(include.target).second) {
        open.push_back(include.target);
      }
    }
  }
}

}  // namespace

std::string Violation::Text() const {
  return file + ":" + std::to_string(line) + ": includes \"" + included + "\": " + why;
}

ArrowReport CheckArrows(const fs::path& root) {
  ArrowReport report;
  const std::vector<File> files = ReadTree(root);
  report.files = static_cast<int>(files.size());
  std::map<std::string, const File*> by_path;
  for (const File& file : files) {
    by_path[file.path] = &file;
    for (const Include& include : file.includes) {
      std::string why = Refusal(file.path, include.target);
      if (!why.empty()) {
        report.violations.push_back({file.path, include.line, include.written, why});
      }
    }
  }
  CheckRuntime(by_path, &report.violations);
  std::sort(report.violations.begin(), report.violations.end(),
            [](const Violation& a, const Violation& b) {
              return std::tie(a.file, a.line) < std::tie(b.file, b.line);
            });
  return report;
}

}  // namespace kvr
