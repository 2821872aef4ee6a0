// SPDX-License-Identifier: Apache-2.0
#include "tests/registry/fakes.h"

#include <set>

namespace kvr {
namespace {

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    fprintf(stderr, "%s\n", value.status().ToString().c_str());
    abort();
  }
  return *std::move(value);
}

Catalog MakeCatalog(const std::vector<std::shared_ptr<Variant>>& variants) {
  std::set<std::string> names;
  for (const std::shared_ptr<Variant>& variant : variants) names.insert(variant->op);
  if (names.empty()) names = {"axpy"};
  std::vector<std::unique_ptr<Operation>> operations;
  for (const std::string& name : names) operations.push_back(std::make_unique<AxpyOp>(name));
  return Must(Catalog::Create(std::move(operations)));
}

}  // namespace

AxpyOp::AxpyOp(const std::string& name) {
  spec_.name = name;
  spec_.axes = {{.name = "n", .default_value = 1000}};
  spec_.inputs = {{.name = "x", .dtype = DType::kF32, .axes = {0}},
                  {.name = "y", .dtype = DType::kF32, .axes = {0}},
                  {.name = "alpha", .dtype = DType::kF32, .is_scalar = true, .scalar_default = 1}};
  spec_.outputs = {{.name = "out", .dtype = DType::kF32, .axes = {0}}};
  spec_.key_policy = "n:pow2";
}

std::shared_ptr<Variant> AxpyVariant(const std::string& name, bool baseline,
                                     const std::string& constraint) {
  const AxpyOp op;
  auto variant = std::make_shared<Variant>();
  variant->op = "axpy";
  variant->name = name;
  variant->version = "1.0.0";
  variant->is_baseline = baseline;
  variant->plugin = "test";
  variant->targets = {"null"};
  variant->tunables = {
      {.name = "BLOCK", .values = {64, 128, 256}, .default_value = 64},
      {.name = "CTAS", .values = {1024, 2048}, .default_value = 1024, .scope = Scope::kLaunch}};
  variant->sources = {{.name = name + ".cu",
                       .content = "template <int B>\n__global__ void axpy(const float* x, const "
                                  "float* y, float alpha, float* out, int* counts, int n) {}\n"}};
  PlanProgram& plan = variant->plan;
  plan.axis_count = 1;
  plan.tunable_count = 2;
  const auto parse = [&](const std::string& text) {
    return Must(
        Expr::Parse(text, PlanProgram::Symbols(op.spec(), variant->tunables, {}, plan.lets)));
  };
  plan.lets.push_back({"blocks", parse("min(CTAS, ceildiv(n, BLOCK))")});
  plan.regions.push_back(
      {.name = "counts", .dtype = DType::kI32, .elements = parse("blocks"), .zeroed = true});
  KernelSpec kernel;
  kernel.name = "axpy";
  kernel.entry = "axpy<BLOCK>";
  const Expr one = Expr::Constant(1);
  kernel.grid = {parse("blocks"), one, one};
  kernel.block = {parse("BLOCK"), one, one};
  kernel.cluster = {one, one, one};
  using Kind = ArgSpec::Kind;
  kernel.args = {
      {.kind = Kind::kTensor, .index = 0, .dtype = DType::kF32, .text = "x"},
      {.kind = Kind::kTensor, .index = 1, .dtype = DType::kF32, .text = "y"},
      {.kind = Kind::kScalar, .index = 2, .dtype = DType::kF32, .text = "alpha"},
      {.kind = Kind::kTensor, .index = 3, .dtype = DType::kF32, .text = "out"},
      {.kind = Kind::kWorkspace, .index = 0, .dtype = DType::kI32, .text = "workspace.counts"},
      {.kind = Kind::kValue, .dtype = DType::kI32, .value = parse("n"), .text = "i32(n)"}};
  plan.kernels.push_back(std::move(kernel));
  if (!constraint.empty()) plan.constraints.push_back(parse(constraint));
  variant->fingerprint = FingerprintOf("axpy " + name + constraint);
  return variant;
}

std::shared_ptr<Variant> ApproximateVariant() {
  std::shared_ptr<Variant> variant = AxpyVariant("half");
  variant->semantics = Semantics::kApproximate;
  variant->tunables.push_back(
      {.name = "K0", .values = {1, 2, 3}, .default_value = 1, .scope = Scope::kQuality});
  // Slots follow the tunables: parse the plan again with the third one in place.
  const AxpyOp op;
  PlanProgram& plan = variant->plan;
  plan.tunable_count = 3;
  plan.lets.clear();
  const auto parse = [&](const std::string& text) {
    return Must(
        Expr::Parse(text, PlanProgram::Symbols(op.spec(), variant->tunables, {}, plan.lets)));
  };
  plan.lets.push_back({"blocks", parse("min(CTAS, ceildiv(n, BLOCK * K0))")});
  plan.regions[0].elements = parse("blocks");
  plan.kernels[0].grid[0] = parse("blocks");
  plan.kernels[0].block[0] = parse("BLOCK");
  plan.kernels[0].args[5].value = parse("n");
  return variant;
}

bool NullCompiler::Supports(std::string_view target, std::string* reason) const {
  if (target == "null") return true;
  if (reason != nullptr) *reason = "the null compiler makes nothing but nothing";
  return false;
}

absl::StatusOr<CompiledUnit> NullCompiler::Compile(const Unit& unit, std::string_view) {
  compiles_->fetch_add(1);
  if (on_compile_ != nullptr && *on_compile_ != nullptr) (*on_compile_)(unit);
  if (unit.text.find("broken.cu") != std::string::npos) {
    return Error(absl::StatusCode::kInvalidArgument, "broken.cu:1:1: error: broken", "mend it");
  }
  CompiledUnit compiled{.bytes = "nothing"};
  for (const std::string& entry : unit.entries) {
    compiled.kernels.push_back({.entry = entry, .symbol = "_Z" + entry});
  }
  return compiled;
}

World::World() : World({AxpyVariant("baseline", true), AxpyVariant("wide")}) {}

World::World(std::vector<std::shared_ptr<Variant>> variants)
    : catalog(MakeCatalog(variants)), device(OpenNull()) {
  for (std::shared_ptr<Variant>& variant : variants) {
    if (absl::Status status = catalog.Admit(std::move(variant)); !status.ok()) {
      Must<int>(status);
    }
  }
  std::vector<std::unique_ptr<Compiler>> compilers;
  compilers.push_back(std::make_unique<NullCompiler>(&compiles, &on_compile));
  jit = std::make_unique<Jit>(std::move(compilers), &cache, kMaxCompiles);
}

GenerationPtr World::Select(const std::vector<std::pair<int64_t, std::string>>& selections,
                            int64_t number, const std::string& policy_text) const {
  const OpSpec& spec = catalog.ops()[0]->spec();
  const KeyPolicy policy = Must(KeyPolicy::Parse(policy_text, spec));
  GenerationBuilder builder(device->info().model, device->info().target);
  builder.SetPolicy("axpy", policy);
  for (const auto& [n, name] : selections) {
    const VariantPtr variant = Must(catalog.Find("axpy", name));
    const Selection selection{.variant = variant, .config = DefaultConfig(variant->tunables)};
    const absl::Status status =
        builder.Select("axpy", policy.Bucket(Must(ResolveAxes(spec, {{"n", n}}))), selection);
    if (!status.ok()) Must<int>(status);
  }
  return builder.Build(number);
}

AxpyTensors::AxpyTensors(int64_t n) : memory(3 * n) {
  const auto view = [&](int64_t i) {
    TensorView tensor{.data = memory.data() + i * n, .dtype = DType::kF32, .rank = 1};
    tensor.shape[0] = n;
    return tensor;
  };
  views = {view(0), view(1), TensorView{.data = &alpha, .dtype = DType::kF32}, view(2)};
}

}  // namespace kvr
