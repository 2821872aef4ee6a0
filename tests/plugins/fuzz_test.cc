// SPDX-License-Identifier: Apache-2.0
//
// Random damage to a valid manifest: never a crash, and what is still accepted is whole.
#include <algorithm>
#include <random>

#include "core/config.h"
#include "core/names.h"
#include "plugins/admit.h"
#include "plugins/extend.h"
#include "plugins/manifest.h"
#include "tests/plugins/fixture.h"

namespace kvr {
namespace {

constexpr std::string_view kPieces[] = {"[",
                                        "]",
                                        "[[",
                                        "]]",
                                        "\"",
                                        "'",
                                        "=",
                                        ",",
                                        ".",
                                        "{",
                                        "}",
                                        "#",
                                        "\n",
                                        "\\",
                                        "\"\"\"",
                                        "0",
                                        "-1",
                                        "9223372036854775807",
                                        "1e9",
                                        "true",
                                        "nan",
                                        "1979-05-27",
                                        "[let]\n",
                                        "[[kernel]]\n",
                                        "[[workspace]]\n",
                                        "[tunables.Z]\n",
                                        "[[tensor_map]]\nname = \"x\"\ntensor = \"x\"\n",
                                        "box = [1, 8]\n",
                                        "tensor_map.x",
                                        "plan_values = [\"chunks\"]\n",
                                        "launch_function = true\n",
                                        "cubins = { sm_90a = \"scale.cu\" }\n",
                                        "name",
                                        "op = ",
                                        "values = [",
                                        "scope = \"quality\"",
                                        "WARPS",
                                        "CTAS",
                                        "rows",
                                        "sms",
                                        "ceildiv(",
                                        "if(",
                                        "a.b.c = 1\n",
                                        "\xff",
                                        "\xc3",
                                        "\t",
                                        " ",
                                        "i32(",
                                        "workspace.",
                                        "op = \"x\", variant",
                                        "extends = { variant = \"baseline\", version = \"1\" }\n"};

std::string Damage(std::string text, std::mt19937& random) {
  auto pick = [&random](size_t below) {
    return std::uniform_int_distribution<size_t>(0, below - 1)(random);
  };
  const size_t edits = 1 + pick(3);
  for (size_t i = 0; i < edits && !text.empty(); ++i) {
    const size_t at = pick(text.size());
    const size_t length = std::min(pick(40) + 1, text.size() - at);
    switch (pick(6)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, kPieces[pick(std::size(kPieces))]);
        break;
      case 2:
        text.replace(at, length, kPieces[pick(std::size(kPieces))]);
        break;
      case 3:
        text.insert(pick(text.size()), text.substr(at, length));
        break;
      case 4:
        text[at] = static_cast<char>(pick(256));
        break;
      default: {  // a whole line, moved
        const size_t begin = text.rfind('\n', at) + 1;
        const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
        const std::string line = text.substr(begin, end - begin);
        text.erase(begin, end - begin);
        text.insert(text.empty() ? 0 : pick(text.size()), line);
      }
    }
  }
  return text;
}

void ExpectWhole(const Variant& v, const OpSpec& op) {
  EXPECT_EQ(v.op, op.name);
  EXPECT_TRUE(IsIdentifier(v.name));
  EXPECT_FALSE(v.targets.empty());
  EXPECT_FALSE(v.sources.empty());
  EXPECT_EQ(v.host_skip_reason.empty(), v.Supports("host"));
  EXPECT_TRUE(CheckConfig(DefaultConfig(v.tunables), v.tunables).ok());
  EXPECT_FALSE(v.is_baseline && v.semantics == Semantics::kApproximate);
  const PlanProgram& plan = v.plan;
  EXPECT_EQ(plan.axis_count, static_cast<int>(op.axes.size()));
  EXPECT_EQ(plan.tunable_count, static_cast<int>(v.tunables.size()));
  ASSERT_FALSE(plan.kernels.empty());
  EXPECT_LE(plan.kernels.size(), static_cast<size_t>(kMaxKernels));
  EXPECT_LE(plan.regions.size(), static_cast<size_t>(kMaxRegions));
  for (const KernelSpec& kernel : plan.kernels) {
    EXPECT_FALSE(kernel.entry.empty());
    EXPECT_GT(kernel.line, 0);
    for (const ArgSpec& arg : kernel.args) {
      const bool region = arg.kind == ArgSpec::Kind::kWorkspace;
      const size_t limit = region ? plan.regions.size() : static_cast<size_t>(op.tensor_count());
      EXPECT_LT(static_cast<size_t>(arg.index), limit);
      EXPECT_FALSE(arg.text.empty());
    }
  }
  DeviceInfo device;
  device.smem_per_block = 1 << 16;
  LaunchPlan launch;
  // May be refused, must not misbehave.
  plan.Evaluate({3, 64}, v.TunableValues(DefaultConfig(v.tunables)), device, &launch).IgnoreError();
}

void GiveFiles(bundle::Manifest* m) {
  m->directory = "/nowhere/fuzz";
  for (auto& file : m->sources) file.content = kSource;
  for (auto& file : m->headers) file.content = kHeader;
}

TEST(Fuzz, DamagedManifestsAreRefusedOrWhole) {
  const OpSpec op = ScaleRowsOp();
  absl::StatusOr<bundle::Manifest> parent = bundle::ParseManifest(kManifest, "parent.toml");
  ASSERT_TRUE(parent.ok()) << parent.status();
  GiveFiles(&*parent);
  // --gtest_shuffle --gtest_repeat=N tries other damage.
  std::mt19937 random(20250611 + testing::UnitTest::GetInstance()->random_seed());
  int accepted = 0, refused = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::string text = Damage(std::string(kManifest), random);
    SCOPED_TRACE(text);
    absl::StatusOr<bundle::Manifest> manifest = bundle::ParseManifest(text, "variant.toml");
    absl::Status status = manifest.status();
    if (manifest.ok()) {
      GiveFiles(&*manifest);
      if (manifest->extends) manifest = bundle::Extend(*parent, *manifest);
      absl::StatusOr<Variant> variant =
          manifest.ok() ? bundle::Admit(*manifest, op) : manifest.status();
      status = variant.status();
      // The scan, which finds the op, is not part of this test.
      if (variant.ok() && variant->op == op.name) {
        ExpectWhole(*variant, op);
        ++accepted;
      }
    }
    if (status.ok()) continue;
    ++refused;
    EXPECT_FALSE(What(status).empty());
    EXPECT_FALSE(Fix(status).empty()) << status;
    EXPECT_NE(What(status).find(".toml"), std::string_view::npos) << status;
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(accepted, 10);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace kvr
