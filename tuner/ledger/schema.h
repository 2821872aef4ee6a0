// SPDX-License-Identifier: Apache-2.0
//
// The ledger's tables, by version. A database states its version in SQLite's user_version, and that
// it is a ledger in its application_id; opening one to write brings it to kSchemaVersion, step by
// step, in one transaction. A step is never edited once
// released: what changes is a new one. Columns are named as records.h names them.
//
// Threading: constant.
#pragma once

#include <array>

namespace kvr::ledger {

inline constexpr std::array kMigrations = {
    // 1
    R"sql(
CREATE TABLE environments (
  id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE,
  device_kind TEXT NOT NULL, device_name TEXT NOT NULL, device_model TEXT NOT NULL,
  device_uuid TEXT NOT NULL, target TEXT NOT NULL, driver TEXT NOT NULL, compiler TEXT NOT NULL,
  kvr_version TEXT NOT NULL, host TEXT NOT NULL);
CREATE TABLE builds (
  id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE,
  environment INTEGER NOT NULL REFERENCES environments(id), time TEXT NOT NULL,
  op TEXT NOT NULL, variant TEXT NOT NULL, version TEXT NOT NULL, fingerprint TEXT NOT NULL,
  config TEXT NOT NULL, target TEXT NOT NULL, binary TEXT NOT NULL,
  status TEXT NOT NULL, reason TEXT NOT NULL, milliseconds REAL);
CREATE TABLE trials (
  id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE,
  environment INTEGER NOT NULL REFERENCES environments(id), time TEXT NOT NULL,
  session TEXT NOT NULL, op TEXT NOT NULL, variant TEXT NOT NULL, version TEXT NOT NULL,
  fingerprint TEXT NOT NULL, config TEXT NOT NULL, axes TEXT NOT NULL, binary TEXT NOT NULL,
  mode TEXT NOT NULL, stage TEXT NOT NULL, outcome TEXT NOT NULL,
  status TEXT NOT NULL, reason TEXT NOT NULL,
  median_us REAL, spread REAL, samples BLOB NOT NULL,
  clock_mhz INTEGER NOT NULL, throttle_bits INTEGER NOT NULL);
CREATE TABLE verdicts (
  id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE,
  environment INTEGER NOT NULL REFERENCES environments(id), time TEXT NOT NULL,
  session TEXT NOT NULL, op TEXT NOT NULL, axes TEXT NOT NULL, mode TEXT NOT NULL,
  kind TEXT NOT NULL,
  incumbent TEXT NOT NULL, incumbent_fingerprint TEXT NOT NULL, incumbent_config TEXT NOT NULL,
  challenger TEXT NOT NULL, challenger_fingerprint TEXT NOT NULL, challenger_config TEXT NOT NULL,
  verdict TEXT NOT NULL, reason TEXT NOT NULL,
  difference REAL, low REAL, high REAL, band REAL,
  rounds INTEGER NOT NULL, sessions INTEGER NOT NULL);
CREATE TABLE bands (
  id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE,
  environment INTEGER NOT NULL REFERENCES environments(id), time TEXT NOT NULL,
  op TEXT NOT NULL, axes TEXT NOT NULL, mode TEXT NOT NULL,
  band REAL, sigma REAL, floor REAL,
  sessions INTEGER NOT NULL, rounds INTEGER NOT NULL, session_medians BLOB NOT NULL);
CREATE TABLE publications (
  id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE,
  environment INTEGER NOT NULL REFERENCES environments(id), time TEXT NOT NULL,
  op TEXT NOT NULL, axes TEXT NOT NULL, "trigger" TEXT NOT NULL,
  variant TEXT NOT NULL, fingerprint TEXT NOT NULL, config TEXT NOT NULL, binary TEXT NOT NULL,
  before TEXT NOT NULL, after TEXT NOT NULL, outcome TEXT NOT NULL, reason TEXT NOT NULL);
CREATE TABLE summaries (
  id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE,
  environment INTEGER NOT NULL REFERENCES environments(id), time TEXT NOT NULL,
  op TEXT NOT NULL, axes TEXT NOT NULL,
  incumbent TEXT NOT NULL, incumbent_config TEXT NOT NULL,
  challenger TEXT NOT NULL, challenger_config TEXT NOT NULL,
  unit TEXT NOT NULL, percents BLOB NOT NULL, band_percent REAL,
  reason TEXT NOT NULL, source TEXT NOT NULL);
CREATE INDEX trials_by_config ON trials (op, fingerprint, config, axes);
CREATE INDEX verdicts_by_axes ON verdicts (op, axes);
CREATE INDEX bands_by_axes ON bands (op, axes, mode);
)sql",
    // 2: how far an approximate result is from the exact one
    R"sql(
ALTER TABLE trials ADD COLUMN quality TEXT NOT NULL DEFAULT '';
)sql",
};

inline constexpr int kSchemaVersion = static_cast<int>(kMigrations.size());

// The oldest schema that is read as it lies, where a file may not be brought up to date: what it
// lacks (database.h, Lacks) is empty.
inline constexpr int kOldestRead = 1;

// "KVRL".
inline constexpr int kApplicationId = 0x4b56524c;

}  // namespace kvr::ledger
