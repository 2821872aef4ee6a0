// SPDX-License-Identifier: Apache-2.0
//
// The suite can fail: run on the variants of ../planted, a right one and others with one fault
// each, it must say of each what is wrong with it, and of the right one nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/strings.h"

namespace kvr {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

struct SuiteRun {
  std::vector<std::string> lines;
  int status = 0;  // of the process
};

SuiteRun RunSuite(const std::string& filter) {
  const std::string command =
      StrCat("KVR_PLUGIN_PATH='", KVR_SOURCE_DIR, "/tests/conformance/planted:", KVR_PLANTED_PLUGIN,
             "' GTEST_COLOR=no '", KVR_SUITE, "' --gtest_filter='", filter, "' 2>&1");
  SuiteRun run;
  FILE* const output = popen(command.c_str(), "r");
  if (output == nullptr) return run;
  std::string text(1 << 16, '\0');
  while (std::fgets(text.data(), static_cast<int>(text.size()), output) != nullptr) {
    run.lines.emplace_back(text.c_str());
  }
  const int status = pclose(output);
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return run;
}

struct Planted {
  const char* variant;
  const char* test;  // that must find it
  const char* says;
};

constexpr char kEdges[] = "Host/VariantConformance.IsRightAndStaysInsideAtEveryEdge";
constexpr char kRepeats[] = "Host/VariantConformance.RepeatsBitForBit";
constexpr char kOrder[] = "Host/VariantConformance.KeepsTheOrderOfItsStream";
constexpr char kEmpty[] = "Host/VariantConformance.WritesNothingWhereEveryOutputIsEmpty";
constexpr char kLargest[] = "All/PlanConformance.HoldsOrRefusesAtTheLargestShapes";
constexpr char kTargets[] = "All/TargetConformance.CompilesForWhatItClaims";

constexpr Planted kFaults[] = {
    {"mla_sparse_decode/planted_tail", kEdges, "INCORRECT_NUMERICAL: output"},
    {"mla_sparse_decode/planted_old_outputs", kEdges, "depends on what its outputs held before"},
    {"mla_sparse_decode/planted_unwritten", kEdges, "leaves some unwritten: output["},
    {"mla_sparse_decode/planted_past_workspace", kEdges, "past the end of workspace scores"},
    {"mla_sparse_decode/planted_past_output", kEdges, "past the end of output lse"},
    {"mla_sparse_decode/planted_input", kEdges, "it writes into its input sparse_indices"},
    {"mla_sparse_decode/planted_garbage", kEdges, "depends on what its workspace held before"},
    {"mla_sparse_decode/planted_counter", kEdges, "is not deterministic: lse[0]"},
    {"mla_sparse_decode/planted_counter", kRepeats, "launch 2 of the same differs: lse[0]"},
    {"planted_scale/not_half", kEdges, "INCORRECT_NUMERICAL: y"},
    {"planted_scale/early", kOrder, "does not keep the order of its stream: y[0]"},
    {"mla_sparse_decode/planted_empty", kEmpty, "an empty batch launches"},
    {"mla_sparse_decode/planted_grid", kLargest, "no constraint excludes it, but the plan fails"},
    {"mla_sparse_decode/planted_overflow", kLargest,
     "no constraint excludes it, but the plan fails"},
};

// "Host/VariantConformance.RepeatsBitForBit/planted_scale__early"
std::string TestName(const Planted& planted) {
  const std::string variant = planted.variant;
  const size_t slash = variant.find('/');
  return StrCat(planted.test, "/", variant.substr(0, slash), "__", variant.substr(slash + 1));
}

TEST(PlantedFaults, AreEachFoundAndNamed) {
  std::string filter;
  for (const Planted& planted : kFaults) StrAppend(&filter, TestName(planted), ":");
  const SuiteRun run = RunSuite(filter);
  EXPECT_EQ(run.status, 1);
  for (const Planted& planted : kFaults) {
    const bool device = std::string_view(planted.test).substr(0, 4) == "Host";
    EXPECT_THAT(
        run.lines,
        Contains(AllOf(testing::StartsWith(StrCat(planted.variant, " {")), HasSubstr("} at n"),
                       HasSubstr(device ? " on host: " : " on null "), HasSubstr(planted.says))))
        << "of " << TestName(planted) << ":\n"
        << StrJoin(run.lines, "");
    EXPECT_THAT(run.lines, Contains(HasSubstr(StrCat("[  FAILED  ] ", TestName(planted)))));
  }
}

TEST(PlantedFaults, ThatEndTheProcessAreNamedAtItsEnd) {
  const SuiteRun run = RunSuite("Host/*planted_nowhere");
  EXPECT_NE(run.status, 0);
  ASSERT_FALSE(run.lines.empty());
  EXPECT_THAT(run.lines.back(),
              AllOf(testing::StartsWith("FAILED: mla_sparse_decode/planted_nowhere {FAULT=9,"),
                    HasSubstr(" on host: an illegal access ended the process")));
}

TEST(PlantedFaults, OfTargetsAreNamedAtTheAuthorsLine) {
  const SuiteRun run = RunSuite(StrCat(kTargets, "/*planted_only_host"));
  // Host alone: NVRTC is not here.
  if (run.status == 0) GTEST_SKIP() << "no compiler for GPUs here";
  EXPECT_THAT(run.lines, Contains(AllOf(HasSubstr("mla_sparse_decode/planted_only_host {FAULT=10"),
                                        HasSubstr("plain/planted.cu:"),
                                        HasSubstr("for the host device alone"))));
}

TEST(PlantedFaults, AreNotFoundWhereThereIsNone) {
  const SuiteRun run = RunSuite(
      "Host/*planted_plain:Host/*on_time:Host/*scale__half:All/Plan*planted_plain:All/Plan*on_time:"
      "Catalog.*");
  EXPECT_EQ(run.status, 0) << StrJoin(run.lines, "");
  for (const char* ran : {kEdges, kRepeats, kOrder}) {
    for (const char* variant :
         {"mla_sparse_decode__planted_plain", "planted_scale__on_time", "planted_scale__half"}) {
      EXPECT_THAT(run.lines, Contains(HasSubstr(StrCat("[       OK ] ", ran, "/", variant))));
    }
  }
}

}  // namespace
}  // namespace kvr
