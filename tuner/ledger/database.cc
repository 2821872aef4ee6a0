// SPDX-License-Identifier: Apache-2.0
#include "tuner/ledger/database.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>
#include <vector>

#include "core/fingerprint.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/ledger/schema.h"

namespace kvr::ledger {
namespace {

constexpr int kBusyTimeoutMs = 10000;

absl::Status Newer(const std::string& path, int64_t version) {
  return Error(
      absl::StatusCode::kFailedPrecondition,
      StrCat("ledger ", path, " has schema ", version, ", this KVR knows ", kSchemaVersion),
      "use the newer KVR, or name another directory");
}

// The first bytes of a file; empty: it has not so many. Read without opening a database, which
// would make files beside one that must stay as it is, but through SQLite's own file: closing any
// other file descriptor drops the locks that this process holds on the file.
std::string Header(const std::string& path) {
  constexpr int kBytes = 100;  // SQLite's file format, 1.3
  sqlite3_vfs* const vfs = sqlite3_vfs_find(nullptr);
  const std::string name = path + '\0';  // as SQLite ends the names that it gives
  std::vector<std::max_align_t> room(static_cast<size_t>(vfs->szOsFile) / sizeof(std::max_align_t) +
                                     1);
  auto* const file = reinterpret_cast<sqlite3_file*>(room.data());
  std::string bytes(kBytes, '\0');
  if (vfs->xOpen(vfs, name.c_str(), file, SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB, nullptr) !=
      SQLITE_OK) {
    return "";
  }
  const int read = file->pMethods->xRead(file, bytes.data(), kBytes, 0);
  file->pMethods->xClose(file);
  return read == SQLITE_OK ? bytes : "";
}

int64_t NumberAt(const std::string& header, size_t at) {  // big-endian, 4 bytes
  int64_t number = 0;
  for (size_t i = 0; i < 4; ++i) number = number << 8 | static_cast<unsigned char>(header[at + i]);
  return number;
}

// False: no file, or an empty one. An error: what is there is none of ours, and stays as it is.
absl::StatusOr<bool> HoldsLedger(const std::string& path) {
  constexpr size_t kUserVersion = 60, kApplicationIdAt = 68;
  const auto in_the_way = [&](int number) {
    return Error(absl::StatusCode::kUnavailable,
                 StrCat("ledger ", path, ": ", std::generic_category().message(number)),
                 "make it readable, or name another directory");
  };
  struct stat file;
  if (stat(path.c_str(), &file) != 0) {
    if (errno == ENOENT) return false;
    return in_the_way(errno);
  }
  if (access(path.c_str(), R_OK) != 0) return in_the_way(errno);
  if (S_ISREG(file.st_mode) && file.st_size == 0) return false;
  const std::string header = S_ISREG(file.st_mode) ? Header(path) : "";
  if (!header.starts_with("SQLite format 3") ||
      NumberAt(header, kApplicationIdAt) != kApplicationId) {
    return Error(absl::StatusCode::kDataLoss, StrCat(path, " is no ledger"),
                 "move it away; a new ledger is made in its place");
  }
  if (const int64_t version = NumberAt(header, kUserVersion); version > kSchemaVersion) {
    return Newer(path, version);
  }
  return true;
}

// As the header has it: SQLite gives the upper half as negative numbers.
int64_t VersionOf(SQLite::Database& database) {
  return static_cast<uint32_t>(database.execAndGet("PRAGMA user_version").getInt());
}

void Migrate(SQLite::Database& database) {
  SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
  // Asked inside the transaction: another process may just have done it.
  int64_t version = VersionOf(database);
  if (version >= kSchemaVersion) return;
  // With the tables, so that no file with anything in it is without.
  database.exec("PRAGMA application_id = " + std::to_string(kApplicationId));
  for (; version < kSchemaVersion; ++version) {
    database.exec(kMigrations[static_cast<size_t>(version)]);
  }
  database.exec("PRAGMA user_version = " + std::to_string(kSchemaVersion));
  transaction.commit();
}

// May this process write the file, and make files beside it?
bool MayWrite(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path().string();
  return access(path.c_str(), W_OK) == 0 && access(directory.c_str(), W_OK) == 0;
}

// How to open what may not be written, where SQLite cannot make the files that it wants beside a
// database in WAL mode: as it is. Empty: the usual way, also where a writer is at work or was
// killed, and there is a log that must be read.
std::string FrozenUri(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path + "-wal", error)) return "";
  std::string uri = path.starts_with('/') ? "file://" : "file:";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#') {
      char escaped[4];
      std::snprintf(escaped, sizeof escaped, "%%%02x", static_cast<unsigned char>(c));
      uri += escaped;
    } else {
      uri += c;
    }
  }
  return uri + "?immutable=1";
}

}  // namespace

absl::Status FromSqlite(std::string_view path, const SQLite::Exception& error) {
  const std::string what = StrCat("ledger ", path, ": ", error.what());
  switch (error.getErrorCode()) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return Error(absl::StatusCode::kDataLoss, what,
                   "move the file away; a new ledger is made in its place");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Error(absl::StatusCode::kUnavailable, what, "another process holds it: try again");
    case SQLITE_FULL:
      return Error(absl::StatusCode::kUnavailable, what, "make room on its disk");
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_IOERR:
      return Error(absl::StatusCode::kUnavailable, what,
                   "make it writable, or name another directory");
    default:
      return Error(absl::StatusCode::kInternal, what, "");
  }
}

absl::StatusOr<std::unique_ptr<SQLite::Database>> OpenDatabase(const std::string& path,
                                                               bool read_only, bool wal) {
  KVR_ASSIGN_OR_RETURN(const bool exists, HoldsLedger(path));
  if (read_only && !exists) {
    return Error(absl::StatusCode::kNotFound, StrCat("there is no ledger ", path),
                 "measure something first, or name another directory");
  }
  try {
    const bool may_write = !read_only || MayWrite(path);
    const std::string frozen = may_write ? "" : FrozenUri(path);
    const int flags = !may_write ? SQLite::OPEN_READONLY | SQLite::OPEN_URI
                                 : SQLite::OPEN_READWRITE | (read_only ? 0 : SQLite::OPEN_CREATE);
    auto database =
        std::make_unique<SQLite::Database>(frozen.empty() ? path : frozen, flags, kBusyTimeoutMs);
    // Asked again: the header does not say what is still in the log.
    const int64_t version = VersionOf(*database);
    if (version > kSchemaVersion) return Newer(path, version);
    if (read_only && version < kOldestRead) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   StrCat("ledger ", path, " has schema ", version, ", this KVR reads ",
                          kOldestRead, " to ", kSchemaVersion),
                   "open it once for writing, as whatever measures does");
    }
    if (read_only) return database;
    database->exec("PRAGMA foreign_keys = ON");
    if (version < kSchemaVersion) Migrate(*database);
    // A killed process costs nothing with either; power lost may cost the last records, never the
    // file.
    database->exec(wal ? "PRAGMA journal_mode = WAL" : "PRAGMA journal_mode = DELETE");
    database->exec(wal ? "PRAGMA synchronous = NORMAL" : "PRAGMA synchronous = FULL");
    return database;
  } catch (const SQLite::Exception& error) {
    return FromSqlite(path, error);
  }
}

bool Lacks(SQLite::Database& database, std::string_view column) {
  return column == "quality" && VersionOf(database) < 2;
}

std::string UidOf(const Environment& environment) {
  Hasher hasher;
  Environment::Fields(
      environment, [&](const char* name, const std::string& value) { hasher.Field(name, value); });
  return hasher.Finish().Hex();
}

std::string NewUid() {
  std::random_device random;
  std::string uid;
  for (int i = 0; i < 4; ++i) {
    char part[9];
    std::snprintf(part, sizeof part, "%08x", static_cast<unsigned>(random()));
    uid += part;
  }
  return uid;
}

}  // namespace kvr::ledger
