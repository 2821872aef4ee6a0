// SPDX-License-Identifier: Apache-2.0
#include "jit/includes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "jit/directives.h"

namespace kvr {
namespace {

// What tells, without reading it, whether a file is still the one that was read.
struct Stamp {
  uint64_t device = 0, inode = 0;
  int64_t size = -1, seconds = 0, nanoseconds = 0;
  bool operator==(const Stamp&) const = default;
};

std::optional<Stamp> StampOf(const std::string& path) {
  struct stat s;
  if (stat(path.c_str(), &s) != 0 || !S_ISREG(s.st_mode)) return std::nullopt;
  return Stamp{s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
}

std::optional<std::string> ReadFile(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string content;
  struct stat s;
  if (fstat(fd, &s) == 0) content.resize(static_cast<size_t>(s.st_size));
  size_t got = 0;
  while (true) {
    if (got == content.size()) content.resize(got + 4096);
    ssize_t n = read(fd, content.data() + got, content.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  close(fd);
  content.resize(got);
  return content;
}

// `name` as the file in directory `directory` means it: "a/b" + "../c.h" → "a/c.h". Nothing if it
// leaves the root or is absolute.
std::optional<std::string> Relative(std::string_view directory, std::string_view name) {
  if (name.empty() || name.front() == '/') return std::nullopt;
  std::vector<std::string_view> parts;
  for (std::string_view path : {directory, name}) {
    while (!path.empty()) {
      size_t slash = std::min(path.find('/'), path.size());
      std::string_view part = path.substr(0, slash);
      path.remove_prefix(std::min(slash + 1, path.size()));
      if (part.empty() || part == ".") continue;
      if (part != "..") {
        parts.push_back(part);
      } else if (parts.empty()) {
        return std::nullopt;
      } else {
        parts.pop_back();
      }
    }
  }
  std::string joined;
  for (std::string_view part : parts) (joined += joined.empty() ? "" : "/") += part;
  return joined;
}

std::string_view Directory(std::string_view name) {
  size_t slash = name.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : name.substr(0, slash);
}

// What the includes of a file resolve to, and its text with the directives spelling just that.
struct Resolved {
  std::vector<std::string> names;
  std::string text;
  bool rewritten = false;
};

template <typename Exists>
Resolved ResolveNames(std::string_view name, std::string_view text, Exists exists) {
  Resolved result;
  size_t copied = 0;
  for (const IncludeDirective& directive : ScanIncludes(text)) {
    std::string target = directive.name;
    if (directive.quoted) {
      std::optional<std::string> beside = Relative(Directory(name), directive.name);
      if (beside && exists(*beside)) target = *beside;
    }
    if (target != directive.name) {
      result.rewritten = true;
      (result.text += text.substr(copied, directive.begin - copied)) += target;
      copied = directive.begin + directive.name.size();
    }
    result.names.push_back(std::move(target));
  }
  if (result.rewritten) result.text += text.substr(copied);
  return result;
}

}  // namespace

std::vector<IncludeDirective> ScanIncludes(std::string_view text) {
  std::vector<IncludeDirective> found;
  for (FileReference& reference : FindFileReferences(text)) {
    if (reference.keyword != "#include" || reference.name.empty()) continue;
    found.push_back({std::move(reference.name), reference.quoted, reference.begin});
  }
  return found;
}

// A snapshot of one name: what it is now, or that no root has it.
struct HeaderIndex::Entry {
  bool found = false;
  UnitHeader header;
  std::vector<std::string> includes;
  std::vector<std::pair<std::string, std::optional<Stamp>>> stamps;  // of the paths looked at
};

HeaderIndex::HeaderIndex(std::vector<HeaderRoot> roots) : roots_(std::move(roots)) {}
HeaderIndex::~HeaderIndex() = default;

std::shared_ptr<const HeaderIndex::Entry> HeaderIndex::Find(const std::string& name) {
  if (auto it = entries_.find(name); it != entries_.end()) return it->second;
  auto entry = std::make_shared<Entry>();
  for (const HeaderRoot& root : roots_) {
    std::optional<std::string> content;
    std::string path;
    if (root.directory.empty()) {
      auto it = root.memory.find(name);
      if (it != root.memory.end()) content = it->second;
    } else if (!name.empty() && name.front() != '/' && Relative("", name)) {
      path = root.directory + "/" + name;
      std::optional<Stamp> stamp = StampOf(path);
      if (stamp) content = ReadFile(path);
      entry->stamps.emplace_back(path, stamp);
    }
    if (!content) continue;
    ++files_read_;
    Resolved resolved = ResolveNames(name, *content, [&](const std::string& beside) {
      // Existence alone: reading it here would recurse through include cycles.
      if (root.directory.empty()) return root.memory.contains(beside);
      std::string beside_path = root.directory + "/" + beside;
      std::optional<Stamp> stamp = StampOf(beside_path);
      entry->stamps.emplace_back(std::move(beside_path), stamp);
      return stamp.has_value();
    });
    if (resolved.rewritten) content = std::move(resolved.text);
    entry->found = true;
    entry->includes = std::move(resolved.names);
    entry->header.name = name;
    entry->header.path = path;
    entry->header.hash = FingerprintOf(*content);
    entry->header.content = std::make_shared<const std::string>(*std::move(content));
    break;
  }
  entries_.emplace(name, entry);
  return entry;
}

void HeaderIndex::Resolve(Unit* unit) {
  std::map<std::string, UnitHeader> bundle;
  for (UnitHeader& header : unit->headers) bundle.emplace(header.name, std::move(header));
  auto in_bundle = [&](const std::string& name) { return bundle.contains(name); };

  std::map<std::string, UnitHeader> closed;
  std::set<std::string> missing, seen;
  std::vector<std::string> pending = ResolveNames("", unit->text, in_bundle).names;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    while (!pending.empty()) {
      std::string name = std::move(pending.back());
      pending.pop_back();
      if (!seen.insert(name).second) continue;
      if (auto it = bundle.find(name); it != bundle.end()) {
        UnitHeader header = it->second;
        Resolved resolved = ResolveNames(name, *header.content, in_bundle);
        if (resolved.rewritten) {
          header.hash = FingerprintOf(resolved.text);
          header.content = std::make_shared<const std::string>(std::move(resolved.text));
        }
        for (std::string& include : resolved.names) pending.push_back(std::move(include));
        closed.emplace(std::move(name), std::move(header));
        continue;
      }
      std::shared_ptr<const Entry> entry = Find(name);
      if (!entry->found) {
        missing.insert(std::move(name));
        continue;
      }
      pending.insert(pending.end(), entry->includes.begin(), entry->includes.end());
      closed.emplace(std::move(name), entry->header);
    }
  }
  unit->headers.clear();
  for (auto& [name, header] : closed) unit->headers.push_back(std::move(header));
  unit->missing.assign(missing.begin(), missing.end());

  Hasher hasher;
  hasher.Field("text", unit->text);
  for (const std::string& entry : unit->entries) hasher.Field("entry", entry);
  for (const UnitHeader& header : unit->headers) {
    hasher.Field("header", header.name);
    hasher.Field("content", header.hash);
  }
  unit->fingerprint = hasher.Finish();
}

bool HeaderIndex::Revalidate() {
  std::lock_guard<std::mutex> lock(mutex_);
  bool changed = false;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto& stamps = it->second->stamps;
    bool stale = std::any_of(stamps.begin(), stamps.end(),
                             [](const auto& s) { return StampOf(s.first) != s.second; });
    changed |= stale;
    it = stale ? entries_.erase(it) : std::next(it);
  }
  return changed;
}

int64_t HeaderIndex::files_read() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return files_read_;
}

}  // namespace kvr
