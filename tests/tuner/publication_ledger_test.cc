// SPDX-License-Identifier: Apache-2.0
#include "tuner/publication_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "tuner/ledger/ledger.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class PublicationLedgerTest : public ::testing::Test {
 protected:
  PublicationLedgerTest() {
    std::string pattern = ::testing::TempDir() + "/kvr-publications-XXXXXX";
    directory_ = mkdtemp(pattern.data());
    DeviceInfo device;
    device.kind = "host";
    device.name = "KVR host";
    device.model = "kvr-host";
    device.target = "host";
    auto opened = OpenPublicationLedger(directory_, device, "clang 19");
    EXPECT_TRUE(opened.ok()) << opened.status();
    sink_ = *std::move(opened);
  }
  ~PublicationLedgerTest() override { std::filesystem::remove_all(directory_); }

  static PublicationRecord Swap() {
    PublicationRecord record;
    record.time = "2026-11-30T12:00:00.000Z";
    record.trigger = "bundle";
    record.who = "pid 7 uid 1000";
    record.before = std::string(64, 'a');
    record.after = std::string(64, 'b');
    record.outcome = "published";
    record.reason = "verified at 2 shapes";
    return record;
  }
  std::vector<ledger::Publication> Rows() {
    const auto ledger = ledger::Ledger::Open(directory_, {.read_only = true});
    EXPECT_TRUE(ledger.ok()) << ledger.status();
    const auto rows = (*ledger)->Find<ledger::Publication>({});
    EXPECT_TRUE(rows.ok()) << rows.status();
    const auto where = (*ledger)->EnvironmentOf(rows->front());
    EXPECT_TRUE(where.ok()) << where.status();
    EXPECT_EQ(where->device_model, "kvr-host");
    EXPECT_EQ(where->compiler, "clang 19");
    return *rows;
  }

  std::string directory_;
  std::unique_ptr<PublicationSink> sink_;
};

TEST_F(PublicationLedgerTest, ARowSaysWhoWhatAndWhy) {
  PublicationRecord record = Swap();
  record.changes = {"null {n=128}: baseline {} -> w8 {WARPS=8}",
                    "null {n=4096}: s3 {} -> w8 {WARPS=8}, version 1.0.0 -> 1.1.0"};
  sink_->Record(record);
  const std::vector<ledger::Publication> rows = Rows();
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].time, record.time);
  EXPECT_EQ(rows[0].trigger, "bundle");
  EXPECT_EQ(rows[0].outcome, "published");
  EXPECT_EQ(rows[0].before, record.before);
  EXPECT_EQ(rows[0].after, record.after);
  EXPECT_EQ(rows[0].op, "null");
  EXPECT_EQ(rows[0].axes, "");
  EXPECT_EQ(rows[0].variant, "w8");
  EXPECT_EQ(rows[0].config, "WARPS=8");
  EXPECT_EQ(rows[0].reason, "verified at 2 shapes\n" + record.changes[0] + "\n" +
                                record.changes[1] + "\nasked for by pid 7 uid 1000");
}

TEST_F(PublicationLedgerTest, WhatDiffersFromKeyToKeyIsNotNamed) {
  PublicationRecord record = Swap();
  record.changes = {"null {n=128}: baseline {} -> w8 {}", "null {n=4096}: baseline {} -> s3 {}"};
  sink_->Record(record);
  record.changes.push_back("mla: keys by topk:pow2 -> keys by topk:exact");
  sink_->Record(record);
  const std::vector<ledger::Publication> rows = Rows();
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[0].op, "null");
  EXPECT_EQ(rows[0].variant, "");
  EXPECT_EQ(rows[1].op, "");
}

TEST_F(PublicationLedgerTest, FailuresAndWhatChangedNothingAreKeptToo) {
  PublicationRecord record = Swap();
  record.outcome = "failed";
  record.reason = "verify: INCORRECT_NUMERICAL";
  record.after.clear();
  sink_->Record(record);
  record.outcome = "unchanged";
  sink_->Record(record);
  const std::vector<ledger::Publication> rows = Rows();
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[0].outcome, "failed");
  EXPECT_THAT(rows[0].reason, HasSubstr("verify: INCORRECT_NUMERICAL"));
  EXPECT_EQ(rows[1].outcome, "kept");
}

TEST_F(PublicationLedgerTest, AFullDiskLosesRecordsAndCountsThem) {
  sink_->Record(Swap());
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  sink_->Record(Swap());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(sink_->lost(), 1u);
  sink_->Record(Swap());
  EXPECT_EQ(sink_->lost(), 1u);
  EXPECT_THAT(Rows(), SizeIs(2));
}

}  // namespace
}  // namespace kvr
