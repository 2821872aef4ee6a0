// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/sentinel.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/op.h"
#include "core/status.h"

namespace kvr {
namespace {

constexpr char kName[] = "sentinel";

// A step takes three instructions that wait for each other; x + (x * x | 5) visits every value, and
// no compiler folds two steps into one. A store that depends on x, though it hardly ever happens,
// keeps the steps: the assembler removes what only an empty asm statement uses.
constexpr char kSource[] = R"(// SPDX-License-Identifier: Apache-2.0
__device__ inline long long Nanoseconds() {
  long long now = 0;
#ifdef __CUDA_ARCH__
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
#endif
  return now;
}

__global__ void __launch_bounds__(32) kvr_sentinel(long long* reading) {
  unsigned x = threadIdx.x + 1;
  const long long start_ns = Nanoseconds(), start = clock64();
  for (int step = 0; step < 3000; ++step) x += x * x | 5;
  if (x == 5) static_cast<volatile long long*>(reading)[2] = x;
  const long long stop = clock64(), stop_ns = Nanoseconds();
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  reading[0] = stop - start;
  reading[1] = stop_ns - start_ns;
}
)";

// What the kernel writes.
OpSpec MakeSpec() {
  OpSpec spec;
  spec.name = kName;
  AxisSpec words;
  words.name = "words";
  words.is_const = true;
  words.value = 3;
  spec.axes = {words};
  TensorSpec reading;
  reading.name = "reading";
  reading.dtype = DType::kI64;
  reading.axes = {0};
  spec.outputs = {reading};
  return spec;
}

absl::StatusOr<VariantPtr> MakeVariant(const OpSpec& spec) {
  auto variant = std::make_shared<Variant>();
  variant->op = kName;
  variant->name = kName;
  variant->targets = {"sm_80+", "host"};
  variant->sources = {{"sentinel.cu", kSource, ""}};
  variant->fingerprint = FingerprintOf(kSource);
  PlanProgram& plan = variant->plan;
  plan.axis_count = static_cast<int>(spec.axes.size());
  KernelSpec kernel;
  kernel.name = kName;
  kernel.entry = "kvr_sentinel";
  KVR_ASSIGN_OR_RETURN(kernel.grid[0],
                       Expr::Parse("sms", PlanProgram::Symbols(spec, {}, {}, plan.lets)));
  kernel.block[0] = Expr::Constant(32);
  ArgSpec reading;
  reading.kind = ArgSpec::Kind::kTensor;
  reading.index = 0;
  reading.dtype = DType::kI64;
  reading.text = "reading";
  kernel.args = {reading};
  plan.kernels = {kernel};
  return VariantPtr(std::move(variant));
}

}  // namespace

absl::StatusOr<BinaryPtr> BuildSentinel(Jit& jit, std::string_view target) {
  const OpSpec spec = MakeSpec();
  KVR_ASSIGN_OR_RETURN(const VariantPtr variant, MakeVariant(spec));
  KVR_ASSIGN_OR_RETURN(Built built, jit.Build(spec, *variant, {}, target));
  return std::move(built.binary);
}

absl::StatusOr<std::unique_ptr<Sentinel>> Sentinel::Load(Device& device, MemoryBudget& budget,
                                                         BinaryPtr binary) {
  const OpSpec spec = MakeSpec();
  KVR_ASSIGN_OR_RETURN(VariantPtr variant, MakeVariant(spec));
  KVR_ASSIGN_OR_RETURN(PreparedPtr prepared,
                       Prepare(device, spec, std::move(variant), {}, std::move(binary)));
  KVR_ASSIGN_OR_RETURN(const AxisVector axes, ResolveAxes(spec, {}));
  TensorView output = TensorShapes(spec, axes)[0];
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Arena> memory,
                       Arena::Create(device, budget, {output.bytes()}, /*fence=*/0));
  output.data = memory->at(0);
  KVR_RETURN_IF_ERROR(device.MemsetAsync(output.data, 0, output.bytes(), Stream{}));
  KVR_RETURN_IF_ERROR(device.Synchronize(Stream{}));
  std::unique_ptr<Sentinel> sentinel(new Sentinel(std::move(prepared), std::move(memory)));
  sentinel->output_ = output;
  KVR_RETURN_IF_ERROR(sentinel->prepared_->Plan(axes, &sentinel->plan_));
  return sentinel;
}

absl::Status Sentinel::Launch(Stream stream) const {
  return prepared_->Launch(plan_, {&output_, 1}, nullptr, stream);
}

absl::StatusOr<Sentinel::Reading> Sentinel::Read(Stream stream) const {
  int64_t words[2] = {0, 0};
  Device& device = prepared_->device();
  KVR_RETURN_IF_ERROR(device.CopyToHost(words, output_.data, sizeof words, stream));
  KVR_RETURN_IF_ERROR(device.Synchronize(stream));
  return Reading{words[0], words[1]};
}

}  // namespace kvr
