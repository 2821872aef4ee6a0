// SPDX-License-Identifier: Apache-2.0
//
// What every compiler must do, as one suite. A compiler takes part by adding one file here that
// says
//
//   INSTANTIATE_TEST_SUITE_P(Nvrtc, CompilerConformance, testing::Values(CompilerSubject{...}),
//                            CompilerSubjectName);
//
// and its name in CMakeLists.txt. Where it is not installed, its tests are skipped and say why.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "jit/compiler.h"

namespace kvr {

struct CompilerSubject {
  std::string name;
  // Several live side by side. kNotFound: not on this machine.
  std::function<absl::StatusOr<std::unique_ptr<Compiler>>(const std::string& sdk_dir)> open;
};

void PrintTo(const CompilerSubject& subject, std::ostream* out);
std::string CompilerSubjectName(const testing::TestParamInfo<CompilerSubject>& info);

class CompilerConformance : public testing::TestWithParam<CompilerSubject> {
 protected:
  void SetUp() override;
  std::unique_ptr<Compiler> Another();  // of the same kind

  absl::StatusOr<CompiledUnit> Compile(const std::string& source,
                                       const std::vector<std::string>& entries = {"k"});
  // The what of the refusal, which must be a fault of the unit, with a fix.
  std::string Refusal(const std::string& source, const std::vector<std::string>& entries = {"k"});

  std::unique_ptr<Compiler> compiler_;
  std::string target_;  // the first that it compiles for
};

}  // namespace kvr
