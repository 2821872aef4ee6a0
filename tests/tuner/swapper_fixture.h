// SPDX-License-Identifier: Apache-2.0
//
// A runtime on the host device that serves operation `null` (y = x), a swapper on it, a journal
// that remembers, and bundles written as the test goes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/runtime.h"
#include "api/swap.h"

namespace kvr::test {

class MemoryJournal : public PublicationSink {
 public:
  void Record(const PublicationRecord& record) override;
  uint64_t lost() const override { return 0; }
  std::vector<PublicationRecord> records() const;
  // Waits until there are `count`; the last of them.
  PublicationRecord WaitFor(size_t count);

 private:
  mutable std::mutex mutex_;
  std::condition_variable any_;
  std::vector<PublicationRecord> records_;
};

// What a thread does with element `i`; the rest of the manifest is as the operation's baseline has
// it, but for `more` at its top and `kernel` in its kernel.
struct BundleText {
  std::string name = "mine";
  std::string body = "y[i] = x[i];";
  std::string more;
  std::string block = "THREADS";
  std::string args = "\"x\", \"y\", \"i32(n)\"";
  std::string parameters = "const float* x, float* y, int n";
  std::string end;  // of the manifest
};

class SwapperTest : public ::testing::Test {
 protected:
  static constexpr char kOp[] = "null";

  void SetUp() override;
  void TearDown() override;
  // Anew, with these options; n=4096 and n=100 (key 128) are loaded.
  void Open(RuntimeOptions runtime = {}, SwapperOptions options = {});
  void Close();

  std::filesystem::path Bundle(const std::string& name) const { return root_ / "bundles" / name; }
  // Gives the bundle's directory.
  std::string Write(const BundleText& text) const;
  SwapResult Ask(SwapRequest request);
  // "baseline{THREADS=128}" by key n=4096, as the runtime serves it.
  std::string Serves(int64_t key = 4096) const;
  // Launches at n=4096: is y == `factor` * x?
  bool Computes(float factor);
  // The request failed at `step` for a reason that has `reason`; what served serves, right, and the
  // journal's last word says so.
  void ExpectRefused(const SwapResult& result, const std::string& step, const std::string& reason);

  std::filesystem::path root_;
  std::shared_ptr<MemoryJournal> journal_;
  std::unique_ptr<Runtime> runtime_;
  Stream stream_;  // prepared: a publication sizes its workspace
  std::unique_ptr<Swapper> swapper_;
  Fingerprint booted_;  // the digest that served first
};

}  // namespace kvr::test
