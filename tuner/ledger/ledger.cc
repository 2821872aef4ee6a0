// SPDX-License-Identifier: Apache-2.0
#include "tuner/ledger/ledger.h"

#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/ledger/database.h"
#include "tuner/ledger/ledger_impl.h"

namespace kvr::ledger {
namespace {

// statfs(2)'s numbers of file systems that several hosts may share.
constexpr long kShared[] = {
    0x6969,      // NFS
    0x517b,      // SMB
    0xfe534d42,  // SMB2
    0xff534d42,  // CIFS
    0x65735546,  // FUSE: may be local, but a file per host does no harm
    0x00c36400,  // Ceph
    0x0bd00bd0,  // Lustre
    0x47504653,  // GPFS
    0x01021997,  // 9P
    0x5346414f,  // AFS
};

bool IsShared(const std::string& directory) {
  struct statfs s;
  return statfs(directory.c_str(), &s) == 0 &&
         std::find(std::begin(kShared), std::end(kShared), static_cast<long>(s.f_type)) !=
             std::end(kShared);
}

std::string HostName() {
  char name[256] = "unknown";
  gethostname(name, sizeof name - 1);
  return name;
}

template <class Record>
absl::StatusOr<std::string> WhereOf(const Filter& filter) {
  const std::vector<std::string> known = columns::NamesOf<Record>();
  std::string where = "1";
  for (const auto& [column, value] : filter) {
    if (std::find(known.begin(), known.end(), column) == known.end()) {
      const std::vector<std::string_view> names(known.begin(), known.end());
      return UnknownName(StrCat("column of ", Record::kTable), column, names);
    }
    where += " AND " + columns::Quoted(column) + " = ?";
  }
  return where;
}

}  // namespace

std::string DefaultLedgerDirectory() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (std::string directory = variable("KVR_LEDGER_DIR"); !directory.empty()) return directory;
  if (std::string base = variable("XDG_STATE_HOME"); !base.empty()) return base + "/kvr";
  if (std::string home = variable("HOME"); !home.empty()) return home + "/.local/state/kvr";
  return "";
}

std::string Now() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
}

Ledger::Ledger(std::unique_ptr<Impl> impl, std::string path)
    : impl_(std::move(impl)), path_(std::move(path)) {}
Ledger::~Ledger() = default;

absl::StatusOr<std::unique_ptr<Ledger>> Ledger::Open(const std::string& directory,
                                                     const OpenOptions& options) {
  if (directory.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "there is no place for a ledger",
                 "name a directory");
  }
  std::error_code error;
  if (!options.read_only) std::filesystem::create_directories(directory, error);
  if (error) {
    return Error(absl::StatusCode::kUnavailable,
                 StrCat("ledger directory ", directory, ": ", error.message()),
                 "make it writable, or name another");
  }
  const bool per_host = options.per_host == OpenOptions::PerHost::kYes ||
                        (options.per_host == OpenOptions::PerHost::kDetect && IsShared(directory));
  const std::string name = per_host ? StrCat("ledger-", HostName(), ".db") : "ledger.db";
  const std::string path = StrCat(directory, "/", name);
  auto impl = std::make_unique<Impl>();
  impl->read_only = options.read_only;
  absl::StatusOr<std::unique_ptr<SQLite::Database>> own =
      OpenDatabase(path, options.read_only, /*wal=*/!per_host);
  if (own.ok()) {
    impl->own = *std::move(own);
  } else if (!options.read_only || !absl::IsNotFound(own.status())) {
    return own.status();
  }
  std::vector<std::string> others;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    const std::string other = it->path().filename().string();
    const bool is_ledger = other.starts_with("ledger") && other.ends_with(".db");
    if (is_ledger && other != name) others.push_back(it->path().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return Error(absl::StatusCode::kUnavailable,
                 StrCat("ledger directory ", directory, ": ", error.message()),
                 "make it readable, or name another");
  }
  std::sort(others.begin(), others.end());
  for (const std::string& other : others) {
    KVR_ASSIGN_OR_RETURN(impl->others.emplace_back(), OpenDatabase(other, true, !per_host));
  }
  if (impl->own == nullptr && impl->others.empty()) return own.status();
  return std::unique_ptr<Ledger>(new Ledger(std::move(impl), path));
}

absl::StatusOr<int64_t> Ledger::Remember(Environment environment) {
  environment.uid = UidOf(environment);
  KVR_RETURN_IF_ERROR(impl_->Writable(path_));
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  try {
    SQLite::Transaction transaction(*impl_->own, SQLite::TransactionBehavior::IMMEDIATE);
    Insert(*impl_->own, environment);
    const auto found = Select<Environment>(*impl_->own, "uid = ?", {environment.uid}, 1);
    transaction.commit();
    return found.front().id;
  } catch (const SQLite::Exception& error) {
    return FromSqlite(path_, error);
  }
}

template <class Record>
absl::Status Ledger::Add(Record record) {
  if (record.uid.empty()) record.uid = NewUid();
  if (record.time.empty()) record.time = Now();
  KVR_RETURN_IF_ERROR(impl_->Writable(path_));
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  try {
    SQLite::Transaction transaction(*impl_->own, SQLite::TransactionBehavior::IMMEDIATE);
    Insert(*impl_->own, record);
    transaction.commit();
    return absl::OkStatus();
  } catch (const SQLite::Exception& error) {
    return FromSqlite(path_, error);
  }
}

template <class Record>
absl::StatusOr<std::vector<Record>> Ledger::Find(const Filter& filter, int limit,
                                                 Samples samples) const {
  KVR_ASSIGN_OR_RETURN(const std::string where, WhereOf<Record>(filter));
  std::vector<std::string> values;
  for (const auto& [column, value] : filter) values.push_back(value);
  return FindWhere<Record>(where, values, limit, samples);
}

template <class Record>
absl::StatusOr<std::vector<Record>> Ledger::FindUid(const std::string& prefix) const {
  return FindWhere<Record>("substr(uid, 1, length(?1)) = ?1", {prefix}, 0, Samples::kRead);
}

template <class Record>
absl::StatusOr<std::vector<Record>> Ledger::FindWhere(const std::string& where,
                                                      const std::vector<std::string>& values,
                                                      int limit, Samples samples) const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  std::vector<Record> all;
  try {
    for (SQLite::Database* database : impl_->databases()) {
      for (Record& record : Select<Record>(*database, where, values, limit, samples)) {
        all.push_back(std::move(record));
      }
    }
  } catch (const SQLite::Exception& error) {
    return FromSqlite(path_, error);
  }
  if (limit > 0 && all.size() > static_cast<size_t>(limit)) {
    all.erase(all.begin(), all.end() - limit);
  }
  return all;
}

absl::StatusOr<Environment> Ledger::EnvironmentOf(std::string_view table,
                                                  std::string_view uid) const {
  const std::string where = StrCat("id = (SELECT environment FROM ", table, " WHERE uid = ?)");
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  try {
    for (SQLite::Database* database : impl_->databases()) {
      auto found = Select<Environment>(*database, where, {std::string(uid)}, 1);
      if (!found.empty()) return found.front();
    }
  } catch (const SQLite::Exception& error) {
    return FromSqlite(path_, error);
  }
  return Error(absl::StatusCode::kNotFound, StrCat("no record ", uid, " in ", table), "");
}

template absl::Status Ledger::Add(Build);
template absl::Status Ledger::Add(Trial);
template absl::Status Ledger::Add(Verdict);
template absl::Status Ledger::Add(Band);
template absl::Status Ledger::Add(Publication);
template absl::Status Ledger::Add(Summary);
template absl::StatusOr<std::vector<Environment>> Ledger::Find(const Filter&, int, Samples) const;
template absl::StatusOr<std::vector<Build>> Ledger::Find(const Filter&, int, Samples) const;
template absl::StatusOr<std::vector<Build>> Ledger::FindUid(const std::string&) const;
template absl::StatusOr<std::vector<Trial>> Ledger::Find(const Filter&, int, Samples) const;
template absl::StatusOr<std::vector<Trial>> Ledger::FindUid(const std::string&) const;
template absl::StatusOr<std::vector<Verdict>> Ledger::Find(const Filter&, int, Samples) const;
template absl::StatusOr<std::vector<Verdict>> Ledger::FindUid(const std::string&) const;
template absl::StatusOr<std::vector<Band>> Ledger::Find(const Filter&, int, Samples) const;
template absl::StatusOr<std::vector<Band>> Ledger::FindUid(const std::string&) const;
template absl::StatusOr<std::vector<Publication>> Ledger::Find(const Filter&, int, Samples) const;
template absl::StatusOr<std::vector<Publication>> Ledger::FindUid(const std::string&) const;
template absl::StatusOr<std::vector<Summary>> Ledger::Find(const Filter&, int, Samples) const;
template absl::StatusOr<std::vector<Summary>> Ledger::FindUid(const std::string&) const;

}  // namespace kvr::ledger
