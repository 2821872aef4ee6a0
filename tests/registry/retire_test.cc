// SPDX-License-Identifier: Apache-2.0
//
// What nobody needs is let go, on the threads that publish and collect; what somebody needs is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "registry/dispatcher.h"
#include "tests/jit/cache_fixtures.h"
#include "tests/registry/fakes.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

constexpr Stream kDefaultStream{};
constexpr int kSwaps = 10'000;
const std::vector<Axes> kShapes = {{{"n", 1000}}};

// The null device, where things go wrong that the null device accepts.
class FailingDevice : public SteppedDevice {
 public:
  using SteppedDevice::SteppedDevice;
  absl::Status load, allocate;
  absl::StatusOr<std::unique_ptr<Module>> Load(const Binary& binary) override {
    if (!load.ok()) return load;
    return SteppedDevice::Load(binary);
  }
  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    if (!allocate.ok()) return allocate;
    return SteppedDevice::Allocate(bytes);
  }
};

class FullDisk : public CacheFiles {
 public:
  bool full = false;
  ssize_t Write(int fd, const void* from, size_t size) override {
    if (!full) return CacheFiles::Write(fd, from, size);
    errno = ENOSPC;
    return -1;
  }
};

class Journal : public PublicationSink {
 public:
  void Record(const PublicationRecord& record) override { last = record; }
  uint64_t lost() const override { return 0; }
  PublicationRecord last;
};

// A variant of as many binaries as SEED has values, and twice as many configs.
std::shared_ptr<Variant> Seeded() {
  std::shared_ptr<Variant> variant = AxpyVariant("seeded");
  Tunable seed{.name = "SEED", .default_value = 0};
  for (int i = 0; i <= kSwaps; ++i) seed.values.push_back(i);
  variant->tunables.push_back(std::move(seed));
  const AxpyOp op;
  PlanProgram& plan = variant->plan;
  plan.tunable_count = 3;
  plan.lets.clear();
  const auto parse = [&](const std::string& text) {
    return *Expr::Parse(text, PlanProgram::Symbols(op.spec(), variant->tunables, {}, plan.lets));
  };
  plan.lets.push_back({"blocks", parse("min(CTAS, ceildiv(n, BLOCK))")});
  plan.regions[0].elements = parse("blocks");
  plan.kernels[0].grid[0] = parse("blocks");
  plan.kernels[0].block[0] = parse("BLOCK");
  plan.kernels[0].args[5].value = parse("n");
  return variant;
}

struct Retirement : public testing::Test {
  Retirement() { dispatcher->SetJournal(journal); }

  GenerationPtr Of(int64_t seed, int64_t ctas = 1024) {
    const OpSpec& spec = world.catalog.ops()[0]->spec();
    const KeyPolicy policy = *KeyPolicy::Parse("n:pow2", spec);
    GenerationBuilder builder(world.device->info().model, world.device->info().target);
    builder.SetPolicy("axpy", policy);
    const Selection selection{.variant = *world.catalog.Find("axpy", "seeded"),
                              .config = {{"BLOCK", 64}, {"CTAS", ctas}, {"SEED", seed}}};
    EXPECT_TRUE(
        builder.Select("axpy", policy.Bucket(*ResolveAxes(spec, {{"n", 1000}})), selection).ok());
    return builder.Build(seed + 1);
  }
  int64_t modules() { return world.device->counters().modules; }

  World world{{AxpyVariant("baseline", true), Seeded(), AxpyVariant("broken")}};
  FastDir directory;
  BinaryCache cache{directory.path()};
  std::atomic<int> compiles{0};
  Jit jit{[&] {
            std::vector<std::unique_ptr<Compiler>> compilers;
            compilers.push_back(std::make_unique<NullCompiler>(&compiles));
            return compilers;
          }(),
          &cache};
  FailingDevice device{*world.device};
  std::shared_ptr<Journal> journal = std::make_shared<Journal>();
  std::unique_ptr<Dispatcher> dispatcher =
      std::make_unique<Dispatcher>(world.catalog, device, jit, DispatcherOptions{});
};

TEST_F(Retirement, TenThousandSwapsOverEverNewConfigsHoldNoMoreThanAHundredDo) {
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  ASSERT_TRUE(dispatcher->PrepareStream(kDefaultStream).ok());
  const AxpyTensors tensors(1000);
  absl::StatusOr<BoundLaunch> bound = dispatcher->Bind("axpy", tensors.views);
  ASSERT_TRUE(bound.ok());
  int64_t most_modules = 0, early = 0, late = 0;
  NullCounters before;
  for (int i = 0; i < kSwaps; ++i) {
    const absl::StatusOr<LoadReport> report = dispatcher->Publish(Of(i));
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_TRUE(dispatcher->Launch("axpy", tensors.views, kDefaultStream).ok());
    ASSERT_TRUE(bound->Launch(kDefaultStream).ok());
    if (i % 3 == 0) {
      ASSERT_TRUE(dispatcher->Rollback("").ok());
    }
    most_modules = std::max(most_modules, modules());
    if (i == kSwaps / 10) before = world.device->counters();
    if (i % 100 == 0) {
      (i < kSwaps / 2 ? early : late) = std::max<int64_t>(
          i < kSwaps / 2 ? early : late, static_cast<int64_t>(mallinfo2().uordblks));
    }
  }
  // The baseline, the current, those kept, and what was retired since the launches before.
  EXPECT_LE(most_modules, 1 + 1 + Dispatcher::kKeptGenerations + 2);
  EXPECT_EQ(world.device->counters().bytes_allocated, before.bytes_allocated);
  EXPECT_LE(late, early + 64 * 1024);
  EXPECT_EQ(jit.stats().compiles, kSwaps + 1);
  EXPECT_GE(dispatcher->counters().retired, static_cast<uint64_t>(kSwaps - 12));
}

TEST_F(Retirement, ConfigsOfOneBinaryShareItsModuleUntilTheLastIsGone) {
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  EXPECT_EQ(modules(), 1);
  ASSERT_TRUE(dispatcher->Publish(Of(1, 1024)).ok());
  ASSERT_TRUE(dispatcher->Publish(Of(1, 2048)).ok());
  EXPECT_EQ(modules(), 2);
  for (int i = 2; i < 2 + Dispatcher::kKeptGenerations; ++i) {
    ASSERT_TRUE(dispatcher->Publish(Of(i)).ok());
  }
  EXPECT_EQ(dispatcher->counters().retired, 1u);
  EXPECT_EQ(modules(), 2 + Dispatcher::kKeptGenerations);
  ASSERT_TRUE(dispatcher->Publish(Of(100)).ok());
  EXPECT_EQ(dispatcher->counters().retired, 2u);
  EXPECT_EQ(modules(), 2 + Dispatcher::kKeptGenerations);
}

TEST_F(Retirement, AnIdleBoundLaunchKeepsWhatItLaunchedUntilItLaunchesAgain) {
  ASSERT_TRUE(dispatcher->PrepareStream(kDefaultStream).ok());
  ASSERT_TRUE(dispatcher->Publish(Of(0)).ok());
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  const AxpyTensors tensors(1000);
  absl::StatusOr<BoundLaunch> bound = dispatcher->Bind("axpy", tensors.views);
  ASSERT_TRUE(bound.ok());
  for (int i = 1; i < 20; ++i) ASSERT_TRUE(dispatcher->Publish(Of(i)).ok());
  const int64_t kept = 2 + Dispatcher::kKeptGenerations;
  EXPECT_EQ(modules(), kept + 1);
  EXPECT_EQ(bound->prepared().config().at("SEED"), 0);
  const uint64_t retired = dispatcher->counters().retired;
  ASSERT_TRUE(bound->Launch(kDefaultStream).ok());
  EXPECT_EQ(bound->prepared().config().at("SEED"), 19);
  EXPECT_EQ(modules(), kept + 1);  // never in a launch
  dispatcher->Collect();
  EXPECT_EQ(modules(), kept);
  EXPECT_EQ(dispatcher->counters().retired, retired + 1);
}

TEST_F(Retirement, MissesThatWereSeenHoldNothing) {
  ASSERT_TRUE(dispatcher->PrepareStream(kDefaultStream).ok());
  ASSERT_TRUE(dispatcher->Publish(Of(0)).ok());
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  const AxpyTensors other(64);
  for (int i = 1; i < 30; ++i) {
    ASSERT_TRUE(dispatcher->Launch("axpy", other.views, kDefaultStream).ok());
    ASSERT_TRUE(dispatcher->Publish(Of(i)).ok());
  }
  EXPECT_EQ(dispatcher->misses()[0].count, 29u);
  EXPECT_EQ(modules(), 2 + Dispatcher::kKeptGenerations);
}

TEST_F(Retirement, AGuardElsewhereHoldsItBackAndNothingElse) {
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(dispatcher->Publish(Of(i)).ok());
  // A launch in flight, as long as it takes: in the question whether its stream captures.
  device.on_is_capturing = [&] {
    device.on_is_capturing = nullptr;
    std::thread([&] {
      for (int i = 9; i < 20; ++i) EXPECT_TRUE(dispatcher->Publish(Of(i)).ok());
    }).join();
  };
  const AxpyTensors tensors(1000);
  ASSERT_TRUE(dispatcher->Launch("axpy", tensors.views, kDefaultStream).ok());
  dispatcher->Collect();
  EXPECT_EQ(modules(), 2 + Dispatcher::kKeptGenerations);
}

TEST_F(Retirement, ALoadThatFindsNoRoomChangesNothingForTheHistoryEither) {
  ASSERT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
  // Of two keys one is loaded: the other's binary is not in memory.
  const OpSpec& spec = world.catalog.ops()[0]->spec();
  const GenerationPtr first = Of(0);
  GenerationBuilder two(*first);
  const Selection other{.variant = *world.catalog.Find("axpy", "seeded"),
                        .config = {{"BLOCK", 64}, {"CTAS", 1024}, {"SEED", 7}}};
  const KeyPolicy& policy = first->FindOp("axpy")->policy;
  ASSERT_TRUE(two.Select("axpy", policy.Bucket(*ResolveAxes(spec, {{"n", 70'000}})), other).ok());
  const GenerationPtr old = two.Build(1);
  ASSERT_TRUE(dispatcher->Publish(old).ok());
  ASSERT_TRUE(dispatcher->Publish(Of(1)).ok());

  const Stream stream = *device.CreateStream();
  ASSERT_TRUE(dispatcher->PrepareStream(stream).ok());
  ASSERT_TRUE(device.BeginCapture(stream, CaptureMode::kGlobal).ok());
  const auto scope = dispatcher->OpenCapture(stream);
  ASSERT_TRUE(scope.ok()) << scope.status();
  const AxpyTensors tensors(1000);
  ASSERT_TRUE(dispatcher->Launch("axpy", tensors.views, stream).ok());
  absl::StatusOr<GraphBinding> binding = (*scope)->Finish();
  ASSERT_TRUE(binding.ok()) << binding.status();
  const auto graph = device.EndCapture(stream, /*keep_graph=*/true);
  ASSERT_TRUE(graph.ok()) << graph.status();

  device.allocate = absl::ResourceExhaustedError("out of memory");
  EXPECT_FALSE(dispatcher->Load("axpy", {{{"n", 70'000}}}).ok());
  EXPECT_EQ(dispatcher->served().size(), 1u);
  EXPECT_TRUE(binding->Apply((*graph)->exec(), old->digest()).ok())
      << "it serves all that is loaded";
  device.allocate = absl::OkStatus();
  device.DestroyStream(stream);
}

// --- failed publications: what served serves on, the journal says why, nothing is left over

struct FailedPublication : public Retirement {
  FailedPublication() {
    EXPECT_TRUE(dispatcher->Load("axpy", kShapes)->ready());
    EXPECT_TRUE(dispatcher->PrepareStream(kDefaultStream).ok());
    EXPECT_TRUE(dispatcher->Publish(Of(0)).ok());
    modules_before = modules();
    bytes_before = world.device->counters().bytes_allocated;
    serving = dispatcher->generation();
  }
  void ExpectFailed(GenerationPtr next, const std::string& why) {
    const Fingerprint digest = next->digest();
    const absl::Status status = dispatcher->Publish(std::move(next)).status();
    EXPECT_THAT(status.ToString(), HasSubstr(why));
    EXPECT_EQ(journal->last.outcome, "failed");
    EXPECT_THAT(journal->last.reason, HasSubstr(why));
    EXPECT_EQ(journal->last.before, serving->digest().Hex());
    EXPECT_EQ(journal->last.after, digest.Hex());
    ExpectAsBefore();
    EXPECT_EQ(dispatcher->counters().failed, ++failed);
    EXPECT_EQ(dispatcher->counters().generations, 1u);
  }
  void ExpectAsBefore() {
    EXPECT_EQ(dispatcher->generation(), serving);
    EXPECT_EQ(dispatcher->history().size(), 1u);
    const AxpyTensors tensors(1000);
    EXPECT_EQ(dispatcher->Bind("axpy", tensors.views)->prepared().config().at("SEED"), 0);
    EXPECT_TRUE(dispatcher->Launch("axpy", tensors.views, kDefaultStream).ok());
    EXPECT_EQ(modules(), modules_before);
    EXPECT_EQ(world.device->counters().bytes_allocated, bytes_before);
  }
  int64_t modules_before = 0, bytes_before = 0;
  uint64_t failed = 0;
  GenerationPtr serving;
};

TEST_F(FailedPublication, ByACompileError) {
  ExpectFailed(world.Select({{1000, "broken"}}, 2), "broken.cu:1:1: error: broken");
}

TEST_F(FailedPublication, ByACompileErrorAfterAnotherKeyWasLoaded) {
  ASSERT_TRUE(dispatcher->Load("axpy", {{{"n", 64}}})->ready());
  GenerationBuilder builder(*world.Select({{64, "broken"}}, 2));
  const OpSpec& spec = world.catalog.ops()[0]->spec();
  const KeyPolicy policy = *KeyPolicy::Parse("n:pow2", spec);
  const Selection good{.variant = *world.catalog.Find("axpy", "seeded"),
                       .config = {{"BLOCK", 64}, {"CTAS", 1024}, {"SEED", 7}}};
  ASSERT_TRUE(builder.Select("axpy", policy.Bucket(*ResolveAxes(spec, {{"n", 1000}})), good).ok());
  ExpectFailed(builder.Build(2), "broken");
  EXPECT_GE(dispatcher->counters().retired, 1u);
}

TEST_F(FailedPublication, ByADeviceThatDoesNotLoadIt) {
  device.load = Error(absl::StatusCode::kInternal, "no kernel image", "compile for this device");
  ExpectFailed(Of(5), "no kernel image");
  device.load = absl::OkStatus();
  EXPECT_TRUE(dispatcher->Publish(Of(5)).ok());
}

TEST_F(FailedPublication, ByAWorkspaceThatIsNotToBeHad) {
  const auto hungry = AxpyVariant("hungry");
  hungry->plan.regions[0].elements = Expr::Constant(1 << 20);
  ASSERT_TRUE(world.catalog.Admit(hungry).ok());
  device.allocate = Error(absl::StatusCode::kResourceExhausted, "out of memory", "free some");
  ExpectFailed(world.Select({{1000, "hungry"}}, 2), "out of memory");
  device.allocate = absl::OkStatus();
  EXPECT_TRUE(dispatcher->Publish(world.Select({{1000, "hungry"}}, 2)).ok());
}

TEST_F(FailedPublication, ByAGenerationForAnotherDevice) {
  ExpectFailed(GenerationBuilder("other", "null").Build(2), "is for other");
}

TEST_F(FailedPublication, BeforeItCameToPublishIsToldAsWell) {
  dispatcher->RecordFailure({.trigger = "bundle", .reason = "the worker died"});
  EXPECT_EQ(journal->last.outcome, "failed");
  EXPECT_EQ(journal->last.trigger, "bundle");
  EXPECT_EQ(journal->last.before, serving->digest().Hex());
  EXPECT_EQ(dispatcher->counters().failed, 1u);
  ExpectAsBefore();
}

TEST_F(FailedPublication, IsNoneWhereOnlyTheCacheCannotBeWritten) {
  FullDisk files;
  int warnings = 0;
  BinaryCache full(CacheOptions{
      .root = directory / "full", .warn = [&](std::string_view) { ++warnings; }, .files = &files});
  std::vector<std::unique_ptr<Compiler>> compilers;
  compilers.push_back(std::make_unique<NullCompiler>(&compiles));
  Jit other(std::move(compilers), &full);
  Dispatcher on_full_disk(world.catalog, device, other, {});
  ASSERT_TRUE(on_full_disk.Load("axpy", kShapes)->ready());
  files.full = true;
  EXPECT_TRUE(on_full_disk.Publish(Of(3)).ok());
  EXPECT_TRUE(on_full_disk.Publish(Of(4)).ok());
  EXPECT_EQ(warnings, 1);
  EXPECT_FALSE(full.on_disk());
}

}  // namespace
}  // namespace kvr
