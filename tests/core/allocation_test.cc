// SPDX-License-Identifier: Apache-2.0
//
// The launch path's steps in core allocate nothing when they succeed.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "core/key_policy.h"
#include "tests/core/plan_builder.h"
#include "tests/core/samples.h"

namespace {
std::atomic<int64_t> allocations{0};

void* Counted(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}

// Not inlined: where delete is and new is not, GCC takes free for the wrong partner.
[[gnu::noinline]] void Release(void* memory) { std::free(memory); }
}  // namespace

void* operator new(size_t size) { return Counted(size); }
void* operator new[](size_t size) { return Counted(size); }
void operator delete(void* memory) noexcept { Release(memory); }
void operator delete[](void* memory) noexcept { Release(memory); }
void operator delete(void* memory, size_t) noexcept { Release(memory); }
void operator delete[](void* memory, size_t) noexcept { Release(memory); }

namespace kvr {
namespace {

template <typename Function>
int64_t AllocationsOf(Function function) {
  const int64_t before = allocations;
  for (int i = 0; i < 100; ++i) function();
  return allocations - before;
}

TEST(Allocation, TheCounterCounts) {
  EXPECT_EQ(AllocationsOf([] {
              int* volatile kept = new int;
              delete kept;
            }),
            100);
}

TEST(Allocation, EvaluatingAPlanAllocatesNothing) {
  PlanBuilder builder(SampleOp(), {{"BLOCK_H", {16, 32}, 32, Scope::kCompile, ""}});
  builder.Let("groups", "ceildiv(num_qo_heads, BLOCK_H)")
      .Let("nsplit", "min(ceildiv(256, max(1, num_tokens * groups)), 16, if(topk > 64, 8, 1))")
      .Constraint("topk <= 32768 and not nsplit == 0")
      .Region("partial", DType::kF32, "num_tokens * num_qo_heads * nsplit * 512");
  KernelSpec& kernel =
      builder.Kernel("split", {"nsplit", "groups", "num_tokens"}, {"128"}, "pow2ceil(topk)");
  kernel.args = {PlanBuilder::ValueArg(DType::kI32, builder.Parse("mod(topk, 7)"))};
  builder.Kernel("merge", {"num_tokens"}, {"128"}).when = builder.Parse("nsplit > 1");
  const AxisVector axes = *ResolveAxes(builder.op, {});
  const int64_t tunables[] = {32};
  const DeviceInfo device = H200();
  LaunchPlan plan;
  bool good = true;
  EXPECT_EQ(AllocationsOf([&] {
              good = good && builder.program.Evaluate(axes, tunables, device, &plan).ok();
            }),
            0);
  EXPECT_TRUE(good);
  EXPECT_EQ(plan.kernel_count, 2);
}

TEST(Allocation, ReadingAxesAndBucketingAllocateNothing) {
  const OpSpec op = SampleOp();
  std::vector<TensorView> tensors = TensorShapes(op, *ResolveAxes(op, {}));
  int memory = 0;
  for (TensorView& tensor : tensors) tensor.data = &memory;
  const KeyPolicy policy = *KeyPolicy::Parse("topk:pow2; num_tokens:ceil(1,2,4,8)", op);
  AxisVector axes{};
  BucketedKey key;
  bool good = true;
  EXPECT_EQ(AllocationsOf([&] {
              good = good && AxesFromTensors(op, tensors, &axes).ok();
              key = policy.Bucket(axes);
            }),
            0);
  EXPECT_TRUE(good);
  EXPECT_EQ(key.values[0], 2048);
  EXPECT_EQ(key.values[1], 8);
}

}  // namespace
}  // namespace kvr
