// SPDX-License-Identifier: Apache-2.0
//
// A scratch directory with ledgers in it, and records to put there.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>

#include "tuner/ledger/ledger.h"

namespace kvr::ledger {

class LedgerTest : public ::testing::Test {
 protected:
  LedgerTest() {
    char path[] = "/tmp/kvr-ledger-XXXXXX";
    directory_ = mkdtemp(path);
  }
  ~LedgerTest() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Ledger> Open(const std::string& name = "a", OpenOptions options = {}) {
    absl::StatusOr<std::unique_ptr<Ledger>> ledger = Ledger::Open(directory_ + "/" + name, options);
    if (!ledger.ok()) ADD_FAILURE() << ledger.status();
    return ledger.ok() ? *std::move(ledger) : nullptr;
  }
  std::string FileOf(const std::string& name) { return directory_ + "/" + name + "/ledger.db"; }

  // What `child` returns, in a process that is nobody, or ours where there is no other.
  template <class Child>
  int AsNobody(Child child) {
    chmod(directory_.c_str(), 0755);
    const pid_t pid = fork();
    if (pid == 0) {
      if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(77);
      _exit(child());
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string directory_;
};

inline Environment Gpu(const std::string& model = "nvidia-h200") {
  return {.device_kind = "cuda",
          .device_name = "NVIDIA H200",
          .device_model = model,
          .device_uuid = "GPU-1",
          .target = "sm_90a",
          .driver = "580.1",
          .compiler = "nvrtc 13.0",
          .kvr_version = "0.1.0",
          .host = "a"};
}

inline Trial TrialOf(int64_t environment, const std::string& config) {
  return {.environment = environment,
          .session = "s1",
          .op = "scale",
          .variant = "baseline",
          .version = "1.0.0",
          .fingerprint = "ab",
          .config = config,
          .axes = "n=4",
          .mode = "graph cold",
          .stage = "final",
          .status = "PASSED",
          .median_us = 9.5,
          .spread = 0.01,
          .samples = {9.25, 9.5, std::nan(""), 10}};
}

}  // namespace kvr::ledger
