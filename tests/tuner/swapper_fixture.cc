// SPDX-License-Identifier: Apache-2.0
#include "tests/tuner/swapper_fixture.h"

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "api/platform.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/contest.h"

namespace kvr::test {

namespace fs = std::filesystem;

void MemoryJournal::Record(const PublicationRecord& record) {
  const std::lock_guard<std::mutex> lock(mutex_);
  records_.push_back(record);
  any_.notify_all();
}

std::vector<PublicationRecord> MemoryJournal::records() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return records_;
}

PublicationRecord MemoryJournal::WaitFor(size_t count) {
  std::unique_lock<std::mutex> lock(mutex_);
  EXPECT_TRUE(
      any_.wait_for(lock, std::chrono::minutes(30), [&] { return records_.size() >= count; }))
      << records_.size() << " records";
  return records_.empty() ? PublicationRecord{} : records_.back();
}

void SwapperTest::SetUp() {
  std::string pattern = ::testing::TempDir() + "/kvr-swapper-XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  root_ = fs::canonical(pattern);
  fs::create_directory(root_ / "bundles");
  setenv("KVR_WORKER", KVR_BIN_DIR "/kvr-worker", 1);
  const auto platform = Platform::Open({.cache_dir = root_ / "cache", .compilers = false});
  ASSERT_TRUE(platform.ok()) << platform.status();
  const auto device = (*platform)->OpenDevice("host");
  if (!device.ok()) GTEST_SKIP() << "no host device: " << device.status();
}

void SwapperTest::TearDown() {
  Close();
  fs::remove_all(root_);
}

void SwapperTest::Close() {
  swapper_.reset();
  if (runtime_ != nullptr) runtime_->device().DestroyStream(stream_);
  runtime_.reset();
}

void SwapperTest::Open(RuntimeOptions runtime, SwapperOptions options) {
  Close();
  runtime.device = "host";
  runtime.cache_dir = root_ / "cache";
  absl::StatusOr<std::unique_ptr<Runtime>> opened = Runtime::Open(runtime);
  ASSERT_TRUE(opened.ok()) << opened.status();
  runtime_ = *std::move(opened);
  journal_ = std::make_shared<MemoryJournal>();
  runtime_->SetJournal(journal_);
  const std::vector<Axes> shapes = {{{"n", 4096}}, {{"n", 100}}};
  const absl::StatusOr<LoadReport> report = runtime_->Load(kOp, shapes);
  ASSERT_TRUE(report.ok() && report->ready()) << report.status() << report->Text();
  const absl::StatusOr<Stream> stream = runtime_->device().CreateStream();
  ASSERT_TRUE(stream.ok() && runtime_->PrepareStream(*stream).ok());
  stream_ = *stream;
  booted_ = runtime_->generation()->digest();
  options.plugin_roots = runtime.plugin_roots;
  absl::StatusOr<std::unique_ptr<Swapper>> swapper = OpenSwapper(*runtime_, options);
  ASSERT_TRUE(swapper.ok()) << swapper.status();
  swapper_ = *std::move(swapper);
}

std::string SwapperTest::Write(const BundleText& text) const {
  const fs::path directory = Bundle(text.name);
  fs::create_directories(directory);
  // Each in one step: who watches finds no file that is opened and not written yet.
  const fs::path kernel = directory / ".kernel", manifest = directory / ".manifest";
  std::ofstream(kernel)
      << "template <int Threads>\n__global__ void kernel(" << text.parameters << ") {\n"
      << "  const int i = blockIdx.x * Threads + threadIdx.x;\n  if (i < n) {\n    " << text.body
      << "\n  }\n}\n";
  std::ofstream(manifest) << "schema = 1\nop = \"null\"\nname = \"" << text.name
                          << "\"\nversion = \"1.0.0\"\n"
                          << "semantics = \"exact\"\ndescription = \"of a test\"\n"
                          << "targets = [\"host\"]\nsources = [\"kernel.cu\"]\n"
                          << text.more
                          << "\n[tunables.THREADS]\nvalues = [128, 256]\ndefault = 256\n"
                          << "scope = \"compile\"\ndescription = \"threads of a block\"\n\n"
                          << "[[kernel]]\nname = \"kernel\"\nentry = \"kernel<THREADS>\"\n"
                          << "grid = [\"ceildiv(n, THREADS)\"]\nblock = [\"" << text.block
                          << "\"]\nargs = [" << text.args << "]\n"
                          << text.end;
  fs::rename(kernel, directory / "kernel.cu");
  fs::rename(manifest, directory / "variant.toml");
  return directory;
}

SwapResult SwapperTest::Ask(SwapRequest request) {
  const absl::StatusOr<SwapResult> result = swapper_->Wait(swapper_->Request(std::move(request)));
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : SwapResult{};
}

std::string SwapperTest::Serves(int64_t key) const {
  for (const ServedInfo& served : runtime_->served()) {
    if (served.op != kOp || served.key != Axes{{"n", key}}) continue;
    return StrCat(served.variant, "{", ConfigText(served.config), "}");
  }
  return "nothing";
}

bool SwapperTest::Computes(float factor) {
  constexpr int64_t kCount = 4096;
  Device& device = runtime_->device();
  std::vector<float> x(kCount), y(kCount, -1);
  for (int64_t i = 0; i < kCount; ++i) x[i] = static_cast<float>(i % 97) + 1;
  const absl::StatusOr<void*> in = device.Allocate(4 * kCount);
  const absl::StatusOr<void*> out = device.Allocate(4 * kCount);
  EXPECT_TRUE(in.ok() && out.ok());
  TensorView views[2] = {{*in, DType::kF32, 1, {kCount}}, {*out, DType::kF32, 1, {kCount}}};
  EXPECT_TRUE(device.CopyToDevice(*in, x.data(), 4 * kCount, stream_).ok());
  EXPECT_TRUE(device.MemsetAsync(*out, 0xff, 4 * kCount, stream_).ok());
  const absl::Status launched = runtime_->Launch(kOp, views, stream_);
  EXPECT_TRUE(launched.ok()) << launched;
  EXPECT_TRUE(device.CopyToHost(y.data(), *out, 4 * kCount, stream_).ok());
  EXPECT_TRUE(device.Synchronize(stream_).ok());
  device.Free(*in);
  device.Free(*out);
  for (int64_t i = 0; i < kCount; ++i) {
    if (y[i] != factor * x[i]) return false;
  }
  return true;
}

void SwapperTest::ExpectRefused(const SwapResult& result, const std::string& step,
                                const std::string& reason) {
  EXPECT_EQ(result.state, SwapResult::State::kFailed);
  EXPECT_EQ(result.step, step) << result.status;
  EXPECT_THAT(std::string(What(result.status)), ::testing::HasSubstr(reason));
  EXPECT_FALSE(Fix(result.status).empty()) << result.status;
  EXPECT_EQ(runtime_->generation()->digest(), booted_);
  EXPECT_TRUE(Computes(1));
  const std::vector<PublicationRecord> records = journal_->records();
  ASSERT_FALSE(records.empty());
  EXPECT_EQ(records.back().outcome, "failed");
  EXPECT_EQ(records.back().before, booted_.Hex());
  EXPECT_THAT(records.back().reason, ::testing::HasSubstr(reason));
}

}  // namespace kvr::test
