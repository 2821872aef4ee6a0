// SPDX-License-Identifier: Apache-2.0
#include "bench/launch_world.h"

#include <utility>

#include "core/strings.h"
#include "jit/compiler.h"
#include "plugins/roots.h"
#include "plugins/scan.h"

namespace kvr::bench {
namespace {

constexpr int64_t kHeads = 16;

class NullCompiler : public Compiler {
 public:
  const std::string& identity() const override { return identity_; }
  bool Supports(std::string_view target, std::string*) const override { return target == "null"; }
  std::vector<std::string> targets() const override { return {"null"}; }
  std::string Options(std::string_view) const override { return ""; }
  bool concurrent() const override { return true; }
  const std::vector<HeaderRoot>& header_roots() const override { return roots_; }
  absl::StatusOr<CompiledUnit> Compile(const Unit& unit, std::string_view) override {
    CompiledUnit compiled{.bytes = "nothing"};
    for (const std::string& entry : unit.entries) {
      compiled.kernels.push_back({.entry = entry, .symbol = entry});
    }
    return compiled;
  }

 private:
  std::string identity_ = "null";
  std::vector<HeaderRoot> roots_;
};

constexpr char kExactPolicy[] = "num_tokens:exact; topk:exact";
constexpr char kBucketPolicy[] = "topk:pow2; num_tokens:ceil(1,2,4,8,16,32,48,64,80,96,128)";
constexpr int64_t kBucketTokens[kBucketedKeys] = {1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 128};

Axes ShapeAxes(Shape shape) {
  return {{"num_tokens", shape.tokens}, {"topk", shape.topk}, {"num_qo_heads", kHeads}};
}

Shape KeyShape(int keys, int i) {
  return keys == kBucketedKeys ? Shape{kBucketTokens[i], 256} : ShapeOf(i);
}

// The i-th config of the variant, whatever its tunables: values dealt out by digits.
Config DealtConfig(const Variant& variant, int i) {
  Config config;
  for (const Tunable& tunable : variant.tunables) {
    const auto count = static_cast<int>(tunable.values.size());
    config[tunable.name] = tunable.values[static_cast<size_t>(i % count)];
    i /= count;
  }
  return config;
}

}  // namespace

Tensors::Tensors(void* memory) {
  const auto add = [&](DType dtype, std::initializer_list<int64_t> shape) {
    TensorView view{.data = memory, .dtype = dtype, .rank = static_cast<int>(shape.size())};
    std::copy(shape.begin(), shape.end(), view.shape.begin());
    views_.push_back(view);
  };
  add(DType::kBF16, {1, kHeads, 512});
  add(DType::kBF16, {1, kHeads, 64});
  add(DType::kBF16, {512, 64, 512});
  add(DType::kBF16, {512, 64, 64});
  add(DType::kI32, {1, 512});
  add(DType::kF32, {});
  views_.back().data = &scale_;
  add(DType::kBF16, {1, kHeads, 512});
  add(DType::kF32, {1, kHeads});
}

LaunchWorld::LaunchWorld(const std::string& device, const std::string& bundles)
    : platform_(Must(Platform::Open({.cache_dir = "", .compilers = device != "null"}))),
      device_(Must(platform_->OpenDevice(device))) {
  const bool null = device == "null";
  Scan scan = ScanPlugins(PluginRoots({bundles}));
  catalog_ = std::make_unique<Catalog>(Must(Catalog::Create(std::move(scan.operations))));
  for (const Rejection& rejection : scan.rejections) {
    std::fprintf(stderr, "%s: %s\n", rejection.path.c_str(), rejection.status.ToString().c_str());
  }
  for (VariantPtr& variant : scan.variants) {
    auto copy = std::make_shared<Variant>(*variant);
    if (null) copy->targets = {"null"};
    Check(catalog_->Admit(std::move(copy)));
  }
  if (null) {
    std::vector<std::unique_ptr<Compiler>> compilers;
    compilers.push_back(std::make_unique<NullCompiler>());
    jit_ = std::make_unique<Jit>(std::move(compilers), nullptr);
  }
  memory_ = Must(device_->Allocate(1 << 20));
}

GenerationPtr LaunchWorld::Generation(const std::string& variant, int keys, int64_t number) const {
  const Catalog::Op& op = *Must(catalog_->FindOp(kOp));
  const KeyPolicy policy =
      Must(KeyPolicy::Parse(keys == kBucketedKeys ? kBucketPolicy : kExactPolicy, op.spec()));
  GenerationBuilder builder(device_->info().model, device_->info().target);
  builder.SetPolicy(kOp, policy);
  const VariantPtr found = Must(catalog_->Find(kOp, variant));
  for (int i = 0; i < keys; ++i) {
    const AxisVector axes = Must(ResolveAxes(op.spec(), ShapeAxes(KeyShape(keys, i))));
    const Config config = DealtConfig(*found, i + static_cast<int>(number));
    Check(builder.Select(kOp, policy.Bucket(axes), {.variant = found, .config = config}));
  }
  return builder.Build(number);
}

std::unique_ptr<Dispatcher> LaunchWorld::Load(const std::string& variant, int keys) {
  auto dispatcher = std::make_unique<Dispatcher>(*catalog_, *device_, jit(), DispatcherOptions{});
  Check(dispatcher->Publish(Generation(variant, keys, 1)).status());
  std::vector<Axes> shapes;
  for (int i = 0; i < keys; ++i) shapes.push_back(ShapeAxes(KeyShape(keys, i)));
  const LoadReport report = Must(dispatcher->Load(kOp, shapes));
  if (!report.ready()) {
    std::fprintf(stderr, "%s", report.Text().c_str());
    std::exit(1);
  }
  return dispatcher;
}

}  // namespace kvr::bench
