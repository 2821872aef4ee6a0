// SPDX-License-Identifier: Apache-2.0
#include "jit/prebuilt.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "jit/nvrtc/cubin.h"

namespace kvr {
namespace {

std::string NameOf(const SourceFile& file) { return file.path.empty() ? file.name : file.path; }

absl::Status Fault(const KernelSpec& kernel, std::string_view what, std::string_view fix) {
  return ErrorAt(absl::StatusCode::kInvalidArgument,
                 kernel.file.empty() ? "variant.toml" : kernel.file, kernel.line, 0,
                 StrCat("kernel '", kernel.name, "': ", what), fix);
}

int64_t SizeOf(const ArgSpec& arg) {
  constexpr int64_t kPointer = 8, kTensorMap = 128;
  switch (arg.kind) {
    case ArgSpec::Kind::kTensor:
    case ArgSpec::Kind::kWorkspace:
      return kPointer;
    case ArgSpec::Kind::kScalar:
    case ArgSpec::Kind::kValue:
      return DTypeSize(arg.dtype);
    case ArgSpec::Kind::kTensorMap:
      return kTensorMap;
  }
  return 0;
}

absl::Status CheckTarget(const PrebuiltBinary& cubin, const CubinInfo& info) {
  const std::string found = CubinTarget(info);
  if (found == cubin.target || StrCat(found, "a") == cubin.target) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat(NameOf(cubin.file), ": a cubin for ", found, ", listed for ", cubin.target),
               StrCat("list it under the target it is for, or compile it for ", cubin.target));
}

absl::Status CheckParameters(const KernelSpec& kernel, const CubinKernel& found) {
  const std::vector<int64_t>& bytes = found.parameter_bytes;
  if (bytes.empty()) return absl::OkStatus();
  if (bytes.size() != kernel.args.size()) {
    std::vector<std::string> passed;
    for (const ArgSpec& arg : kernel.args) passed.push_back(arg.text);
    return Fault(
        kernel,
        StrCat("the cubin's '", kernel.entry, "' takes ", bytes.size(),
               " parameters, but the manifest passes ", passed.size(), ": ", StrJoin(passed, ", ")),
        "pass as many; a Triton kernel's last ones are scratch pointers: i64(0)");
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    const ArgSpec& arg = kernel.args[i];
    if (SizeOf(arg) == bytes[i]) continue;
    return Fault(
        kernel,
        StrCat("parameter ", i + 1, " of the cubin's '", kernel.entry, "' has ", bytes[i],
               " bytes, but the manifest passes '", arg.text, "', which has ", SizeOf(arg)),
        "pass the arguments in the kernel's order, integers as i32(...) or i64(...)");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Binary>> FromCubin(const Variant& variant,
                                                  const PrebuiltBinary& cubin) {
  absl::StatusOr<CubinInfo> info = ReadCubin(cubin.file.content);
  if (!info.ok()) return WithContext(NameOf(cubin.file), info.status());
  KVR_RETURN_IF_ERROR(CheckTarget(cubin, *info));
  auto binary = std::make_shared<Binary>();
  binary->content = FingerprintOf(cubin.file.content);
  Hasher key;
  key.Field("schema", "kvr-cubin-1").Field("target", cubin.target);
  key.Field("content", binary->content);
  for (const KernelSpec& kernel : variant.plan.kernels) {
    const auto found = info->kernels.find(kernel.entry);
    if (found == info->kernels.end()) {
      std::vector<std::string> names;
      for (const auto& [name, ignored] : info->kernels) names.push_back(name);
      return Fault(kernel, StrCat(NameOf(cubin.file), " has no kernel '", kernel.entry, "'"),
                   StrCat("name a symbol that it has: ", StrJoin(names, ", ")));
    }
    KVR_RETURN_IF_ERROR(CheckParameters(kernel, found->second));
    if (binary->Find(kernel.entry) != nullptr) continue;
    BinaryKernel& made = binary->kernels.emplace_back();
    made.entry = made.symbol = kernel.entry;
    made.resources.registers = found->second.registers;
    made.resources.smem_static = found->second.smem_static;
    made.resources.frame_bytes = found->second.frame_bytes;
    made.resources.spill_bytes = -1;
    if (found->second.max_threads > 0) made.resources.max_threads = found->second.max_threads;
    key.Field("entry", kernel.entry);
  }
  binary->key = key.Finish();
  binary->compiler = "prebuilt cubin";
  binary->bytes = cubin.file.content;
  return binary;
}

}  // namespace

absl::StatusOr<BinaryPtr> PrebuiltFor(const Variant& variant, std::string_view target) {
  if (std::string reason; !variant.Supports(target, &reason)) {
    return Error(absl::StatusCode::kUnimplemented, reason, "choose a target that it supports");
  }
  auto binary = std::make_shared<Binary>();
  if (variant.has_launch_function) {
    binary->key = Hasher()
                      .Field("schema", "kvr-launch-function-1")
                      .Field("target", target)
                      .Field("variant", variant.fingerprint)
                      .Finish();
    binary->compiler = "launch function";
  } else {
    KVR_ASSIGN_OR_RETURN(binary, FromCubin(variant, *variant.Cubin(target)));
  }
  binary->target = std::string(target);
  return binary;
}

}  // namespace kvr
