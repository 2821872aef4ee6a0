// SPDX-License-Identifier: Apache-2.0
#include "api/host_library.h"
#include "tests/conformance/compilers/compiler_conformance.h"

namespace kvr {

INSTANTIATE_TEST_SUITE_P(Clang, CompilerConformance,
                         testing::Values(CompilerSubject{.name = "clang",
                                                         .open = &MakeHostCompiler}),
                         CompilerSubjectName);

}  // namespace kvr
