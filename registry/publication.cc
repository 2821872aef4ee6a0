// SPDX-License-Identifier: Apache-2.0
#include "registry/publication.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/axes.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "nlohmann/json.hpp"

namespace kvr {
namespace {

std::string LineOf(const PublicationRecord& record) {
  nlohmann::ordered_json json;
  json["time"] = record.time;
  json["trigger"] = record.trigger;
  json["who"] = record.who;
  json["before"] = record.before;
  json["after"] = record.after;
  json["changes"] = record.changes;
  json["outcome"] = record.outcome;
  json["reason"] = record.reason;
  json["prepare_ms"] = record.prepare_ms;
  // A reason may quote bytes of a file: what is no UTF-8 is replaced.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

class PublicationFile : public PublicationSink {
 public:
  PublicationFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~PublicationFile() override { close(fd_); }

  void Record(const PublicationRecord& record) override {
    std::string line = LineOf(record);
    if (torn_) line.insert(line.begin(), '\n');
    ssize_t written;
    do {
      written = write(fd_, line.data(), line.size());
    } while (written < 0 && errno == EINTR);
    if (written == static_cast<ssize_t>(line.size())) {
      torn_ = false;
      return;
    }
    const int error = written < 0 ? errno : ENOSPC;
    if (written > 0) torn_ = line[static_cast<size_t>(written) - 1] != '\n';
    if (lost_.fetch_add(1) > 0) return;
    std::fprintf(stderr,
                 "kvr: the journal of publications %s cannot be written: %s; publications go on, "
                 "and are counted only\n",
                 path_.c_str(), std::strerror(error));
  }

  uint64_t lost() const override { return lost_; }

 private:
  const std::string path_;
  const int fd_;
  bool torn_ = false;  // the file ends within a line
  std::atomic<uint64_t> lost_{0};
};

// What is selected for a key, by the names of a person's reading.
std::string Named(const Selection* selection) {
  if (selection == nullptr) return "baseline {}";
  return StrCat(selection->variant->name, " {", ConfigText(selection->config), "}");
}

std::string ChangeOf(const Selection* before, const Selection* after) {
  std::string text = StrCat(Named(before), " -> ", Named(after));
  if (before == nullptr || after == nullptr) return text;
  const Variant& old = *before->variant;
  const Variant& now = *after->variant;
  const bool same_name = old.name == now.name && before->config == after->config;
  if (old.version != now.version) {
    StrAppend(&text, ", version ", old.version, " -> ", now.version);
  }
  if (same_name && old.fingerprint != now.fingerprint) {
    StrAppend(&text, ", source ", old.fingerprint.Short(), " -> ", now.fingerprint.Short());
  }
  if (same_name && before->binary != after->binary) {
    StrAppend(&text, ", binary ", before->binary.Short(), " -> ", after->binary.Short());
  }
  return text;
}

bool Same(const Selection* before, const Selection* after) {
  if (before == nullptr || after == nullptr) return before == after;
  return before->variant->name == after->variant->name &&
         before->variant->version == after->variant->version &&
         before->variant->fingerprint == after->variant->fingerprint &&
         before->config == after->config && before->binary == after->binary;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PublicationSink>> OpenPublicationFile(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    const int error = errno;
    return Error(
        error == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kPermissionDenied,
        StrCat("the journal of publications ", Quoted(path),
               " cannot be opened: ", std::strerror(error)),
        "name a file in a directory that this process may write to");
  }
  return std::make_unique<PublicationFile>(path, fd);
}

std::vector<std::string> ChangesBetween(const Generation& before, const Generation& after) {
  std::vector<std::string> changes;
  std::set<std::string> names;
  for (const auto& [name, op] : before.ops()) names.insert(name);
  for (const auto& [name, op] : after.ops()) names.insert(name);
  for (const std::string& name : names) {
    const Generation::Op* const old = before.FindOp(name);
    const Generation::Op* const now = after.FindOp(name);
    const bool rekeyed =
        old != nullptr && now != nullptr && old->policy.text() != now->policy.text();
    if (rekeyed) {
      changes.push_back(
          StrCat(name, ": keys by ", old->policy.text(), " -> keys by ", now->policy.text()));
    }
    const auto line = [&](const KeyPolicy& policy, const BucketedKey& key, std::string change) {
      changes.push_back(StrCat(name, " {", AxesText(policy.Named(key)), "}: ", change));
    };
    if (now != nullptr) {
      for (const auto& [key, selection] : Sorted(*now)) {
        const Selection* const was = rekeyed ? nullptr : before.Find(name, key);
        // Under another policy no key was there before; what it served is nobody's to say.
        if (rekeyed) {
          line(now->policy, key, StrCat("new key -> ", Named(selection)));
        } else if (!Same(was, selection)) {
          line(now->policy, key, ChangeOf(was, selection));
        }
      }
    }
    if (old == nullptr || rekeyed) continue;
    for (const auto& [key, selection] : Sorted(*old)) {
      if (after.Find(name, key) == nullptr) line(old->policy, key, ChangeOf(selection, nullptr));
    }
  }
  return changes;
}

void FillPublication(PublicationRecord* record) {
  if (record->time.empty()) {
    record->time = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
  }
  if (record->trigger.empty()) record->trigger = "api";
  if (record->who.empty()) record->who = StrCat("pid ", getpid(), " uid ", getuid());
}

}  // namespace kvr
