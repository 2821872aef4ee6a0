// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/one_file_unit.h"

#include <memory>
#include <utility>

#include "core/fingerprint.h"
#include "core/status.h"
#include "jit/includes.h"

namespace kvr {

Unit OneFileUnit(const Compiler& compiler, const std::string& source,
                 const std::vector<std::string>& entries) {
  Unit unit;
  unit.name = "one file";
  unit.text = "#include \"kernel.cu\"\n";
  const auto text = std::make_shared<const std::string>(source);
  unit.headers.push_back({"kernel.cu", text, FingerprintOf(source), "kernel.cu"});
  unit.files.push_back({"kernel.cu", "kernel.cu", text, {}});
  unit.entries = entries;
  unit.entry_sites.resize(entries.size(), SourceSite{"kernel.cu", 1, 0});
  HeaderIndex(compiler.header_roots()).Resolve(&unit);
  return unit;
}

absl::StatusOr<Binary> CompileOneFile(Compiler& compiler, std::string_view target,
                                      const std::string& source,
                                      const std::vector<std::string>& entries) {
  KVR_ASSIGN_OR_RETURN(CompiledUnit compiled,
                       compiler.Compile(OneFileUnit(compiler, source, entries), target));
  Binary binary;
  binary.content = FingerprintOf(compiled.bytes);
  binary.target = std::string(target);
  binary.compiler = compiler.identity();
  binary.bytes = std::move(compiled.bytes);
  binary.kernels = std::move(compiled.kernels);
  return binary;
}

}  // namespace kvr
