// SPDX-License-Identifier: Apache-2.0
#include "tests/devices/host/host_fixture.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "devices/host_module.h"
#include "jit/includes.h"

namespace kvr {
namespace {

const HostModule& TheModule() {
  static const HostModule module = [] {
    HostModule m;
    void* library = dlopen(KVR_HOST_MODULE, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::abort();
    }
    auto entry = reinterpret_cast<HostModuleEntry*>(dlsym(library, kHostModuleEntryName));
    if (entry == nullptr || entry(&m) != 0 || m.abi != kHostModuleAbi) std::abort();
    return m;
  }();
  return module;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenHostDevice() { return TheModule().create_device(); }

Device& HostDeviceUnderTest() {
  static Device* const device = OpenHostDevice().value().release();
  return *device;
}

std::unique_ptr<Compiler> OpenHostCompiler(const std::string& sdk_dir) {
  absl::Status status;
  std::unique_ptr<Compiler> compiler(TheModule().create_compiler(sdk_dir.c_str(), &status));
  if (compiler == nullptr) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return compiler;
}

Compiler& HostCompilerUnderTest() {
  static Compiler* const compiler = OpenHostCompiler(KVR_SOURCE_DIR "/sdk/device").release();
  return *compiler;
}

absl::StatusOr<Binary> CompileForHost(const std::string& source,
                                      const std::vector<std::string>& entries, Compiler& compiler) {
  Unit unit;
  unit.name = "test";
  unit.text = "#include \"kernel.cu\"\n";
  auto text = std::make_shared<const std::string>(source);
  unit.headers.push_back({"kernel.cu", text, FingerprintOf(source), "kernel.cu"});
  unit.files.push_back({"kernel.cu", "kernel.cu", text, {}});
  unit.entries = entries;
  unit.entry_sites.resize(entries.size(), SourceSite{"kernel.cu", 1, 0});
  HeaderIndex index(compiler.header_roots());
  index.Resolve(&unit);
  absl::StatusOr<CompiledUnit> compiled = compiler.Compile(unit, "host");
  if (!compiled.ok()) return compiled.status();
  Binary binary;
  binary.target = "host";
  binary.compiler = compiler.identity();
  binary.bytes = compiled->bytes;
  binary.kernels = compiled->kernels;
  return binary;
}

HostKernel::HostKernel(const std::string& source, const std::string& entry, int64_t dynamic_smem) {
  absl::StatusOr<Binary> binary = CompileForHost(source, {entry});
  if (!binary.ok()) {
    ADD_FAILURE() << binary.status();
    return;
  }
  binary_ = *std::move(binary);
  absl::StatusOr<std::unique_ptr<Module>> module = HostDeviceUnderTest().Load(binary_);
  if (!module.ok()) {
    ADD_FAILURE() << module.status();
    return;
  }
  module_ = *std::move(module);
  absl::StatusOr<Function> function = module_->Get(kernel().symbol, dynamic_smem);
  if (!function.ok()) {
    ADD_FAILURE() << function.status();
    return;
  }
  function_ = *function;
}

absl::Status HostKernel::RunWith(Dim3 grid, Dim3 block, int64_t smem, void* const* params) {
  if (function_.handle == nullptr) return absl::UnknownError("not loaded");
  KernelLaunch launch;
  launch.grid = grid;
  launch.block = block;
  launch.smem = smem;
  Device& device = HostDeviceUnderTest();
  absl::Status status = device.Launch(function_, launch, {}, params, Stream{});
  if (!status.ok()) return status;
  return device.Synchronize(Stream{});
}

}  // namespace kvr
