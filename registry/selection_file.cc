// SPDX-License-Identifier: Apache-2.0
#include "registry/selection_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{64} << 20;

// Why the file's selection does not hold for what the catalog has; empty: it does.
std::string WhyStale(const Catalog& catalog, const std::string& op,
                     const StoredSelection& selection, VariantPtr* variant) {
  absl::StatusOr<VariantPtr> found = catalog.Find(op, selection.variant);
  if (!found.ok()) return std::string(What(found.status()));
  if ((*found)->fingerprint != selection.variant_fingerprint) {
    return StrCat("variant '", selection.variant, "' has changed since it was measured (",
                  selection.version, " ", selection.variant_fingerprint.Short(), ", now ",
                  (*found)->version, " ", (*found)->fingerprint.Short(), ")");
  }
  *variant = *std::move(found);
  return "";
}

std::string ErrnoText() { return std::strerror(errno); }

}  // namespace

std::string SelectionJson(const Generation& generation) {
  return SelectionJson(ContentOf(generation));
}

absl::StatusOr<LoadedSelections> ParseSelectionJson(std::string_view text, std::string_view origin,
                                                    const Catalog& catalog,
                                                    const DeviceInfo& device) {
  KVR_ASSIGN_OR_RETURN(const SelectionContent content, ParseSelectionContent(text, origin));
  return ResolveSelections(content, origin, catalog, device);
}

absl::StatusOr<LoadedSelections> ResolveSelections(const SelectionContent& content,
                                                   std::string_view origin, const Catalog& catalog,
                                                   const DeviceInfo& device) {
  if (content.device_model != device.model || content.target != device.target) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat(origin, ": tuned on ", content.device_model, " (", content.target,
                        "), this device is ", device.model, " (", device.target, ")"),
                 "use the file of this device model, or tune here");
  }

  LoadedSelections loaded;
  loaded.file_digest = content.Digest();
  GenerationBuilder builder(content.device_model, content.target);
  for (const auto& [name, op] : content.ops) {
    const std::string place = StrCat(origin, ".ops.", name);
    const absl::StatusOr<const Catalog::Op*> known = catalog.FindOp(name);
    if (!known.ok()) {
      for (const auto& [key, s] : op.by_key) {
        loaded.dropped.push_back({name, s.variant, key, std::string(What(known.status()))});
      }
      continue;
    }
    absl::StatusOr<KeyPolicy> policy = KeyPolicy::Parse(op.key_policy, (*known)->spec());
    if (!policy.ok()) return WithContext(StrCat(place, ".key_policy"), policy.status());
    builder.SetPolicy(name, *policy);
    for (const auto& [key, s] : op.by_key) {
      const absl::StatusOr<BucketedKey> bucketed = policy->FromNamed(key);
      if (!bucketed.ok()) {
        return WithContext(StrCat(place, ": key {", AxesText(key), "}"), bucketed.status());
      }
      Selection selection{.config = s.config, .binary = s.binary, .evidence = s.evidence};
      std::string stale = WhyStale(catalog, name, s, &selection.variant);
      if (!stale.empty()) {
        loaded.dropped.push_back({name, s.variant, key, std::move(stale)});
        continue;
      }
      // The same code, but the bundle no longer offers this value or this target.
      if (absl::Status status = builder.Select(name, *bucketed, std::move(selection));
          !status.ok()) {
        loaded.dropped.push_back({name, s.variant, key, std::string(What(status))});
      }
    }
  }
  loaded.generation = builder.Build(content.number);
  return loaded;
}

absl::Status WriteSelectionFile(const Generation& generation, const std::string& path) {
  return WriteSelectionContent(ContentOf(generation), path);
}

absl::Status WriteSelectionContent(const SelectionContent& content, const std::string& path) {
  static std::atomic<int> counter{0};
  const std::string text = SelectionJson(content);
  const std::string aside = StrCat(path, ".tmp.", static_cast<int64_t>(getpid()), ".", counter++);
  const auto failed = [&](std::string_view step) {
    return Error(absl::StatusCode::kUnavailable,
                 StrCat("cannot ", step, " ", path, ": ", ErrnoText()),
                 "name a file in a directory that exists and that you may write");
  };
  const int fd = open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return failed("write");
  bool done = false;
  absl::Cleanup tidy = [&] {
    if (!done) unlink(aside.c_str());
  };
  const char* at = text.data();
  size_t left = text.size();
  while (left > 0) {
    const ssize_t n = write(fd, at, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      absl::Status status = failed("write");
      close(fd);
      return status;
    }
    at += n;
    left -= static_cast<size_t>(n);
  }
  if (fsync(fd) != 0) {
    absl::Status status = failed("flush");
    close(fd);
    return status;
  }
  if (close(fd) != 0) return failed("close");
  if (rename(aside.c_str(), path.c_str()) != 0) return failed("replace");
  done = true;
  return absl::OkStatus();
}

absl::StatusOr<SelectionContent> ReadSelectionContent(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return Error(
        errno == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kPermissionDenied,
        StrCat("cannot read selection file ", path, ": ", ErrnoText()),
        "name a file that `kvr tune` wrote");
  }
  absl::Cleanup close_file = [fd] { close(fd); };
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > kMaxFileBytes) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat(path, " is not a regular file of at most ", kMaxFileBytes >> 20, " MiB"),
                 "name a file that `kvr tune` wrote");
  }
  if ((info.st_mode & S_IWOTH) != 0) {
    return Error(absl::StatusCode::kPermissionDenied, StrCat(path, " may be written by anybody"),
                 StrCat("chmod o-w ", path));
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t n = read(fd, text.data() + have, text.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // shorter than it was: the parser says so
    have += static_cast<size_t>(n);
  }
  text.resize(have);
  return ParseSelectionContent(text, path);
}

absl::StatusOr<LoadedSelections> ReadSelectionFile(const std::string& path, const Catalog& catalog,
                                                   const DeviceInfo& device) {
  KVR_ASSIGN_OR_RETURN(const SelectionContent content, ReadSelectionContent(path));
  return ResolveSelections(content, path, catalog, device);
}

}  // namespace kvr
