// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "core/status.h"
#include "core/strings.h"

namespace kvr::cuda {
namespace {

// cuGetProcAddress as of 12.0 is exported as cuGetProcAddress_v2; older drivers lack it.
using GetProcAddress = Result (*)(const char*, void**, int, uint64_t, int*);

std::string InstallFix() {
  return StrCat("install NVIDIA driver ", kMinimumDriverText, " or newer");
}

// A form newer than the driver itself is not asked for: the answer might be an older form, which
// takes other parameters.
template <typename F>
absl::Status Look(GetProcAddress get, int api, const char* symbol, int version, bool required,
                  F** out) {
  void* address = nullptr;
  if (version <= api && get(symbol, &address, version, kLegacyStream, nullptr) == kSuccess &&
      address != nullptr) {
    *out = reinterpret_cast<F*>(address);
    return absl::OkStatus();
  }
  if (!required) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition,
               StrCat("the CUDA driver has no ", symbol, " as of CUDA ", ApiVersionText(version)),
               InstallFix());
}

bool HiddenByUser() {
  const char* value = std::getenv("KVR_NO_CUDA");
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

absl::StatusOr<Driver> LoadAndInit() {
  KVR_ASSIGN_OR_RETURN(Driver driver, LoadDriver("libcuda.so.1"));
  KVR_RETURN_IF_ERROR(InitDriver(driver));
  return driver;
}

struct Meaning {
  absl::StatusCode code;
  std::string_view fix;
};

constexpr std::string_view kLostContext =
    "the CUDA context is lost: end this process; run the kernel under compute-sanitizer to find "
    "the fault";

Meaning MeaningOf(Result result) {
  using Code = absl::StatusCode;
  switch (result) {
    case kInvalidValue:
      return {Code::kInvalidArgument,
              "check sizes, pointers and launch limits against `kvr explain`"};
    case kInvalidHandle:
    case kInvalidContext:
      return {Code::kInvalidArgument,
              "pass handles of this device's context that are alive (an event recorded, a stream "
              "not destroyed)"};
    case kInvalidDevice:
      return {Code::kNotFound, "`kvr doctor` lists the GPUs there are"};
    case kOutOfMemory:
      return {Code::kResourceExhausted, "free GPU memory or ask for less"};
    case kLaunchOutOfResources:
    case kCooperativeLaunchTooLarge:
      return {Code::kResourceExhausted,
              "use fewer threads, registers or shared memory per block, or a smaller grid for a "
              "cooperative launch"};
    case kInvalidClusterSize:
      return {Code::kInvalidArgument, "use a smaller cluster whose extents divide the grid's"};
    case kIllegalState:
      return {Code::kFailedPrecondition, "call it once, on a stream or graph in the right state"};
    case kInvalidImage:
    case kInvalidSource:
    case kInvalidPtx:
      return {Code::kInvalidArgument,
              "compile the binary again: it is no cubin or PTX for this driver"};
    case kNoBinaryForGpu:
    case kUnsupportedPtxVersion:
      return {Code::kFailedPrecondition,
              "compile for this GPU's exact target with a compiler no newer than the driver"};
    case kNotFound:
      return {Code::kNotFound, "check the name"};
    case kNotPermitted:
    case kStreamCaptureUnsupported:
    case kStreamCaptureImplicit:
    case kStreamCaptureWrongThread:
      return {Code::kFailedPrecondition,
              "a stream is capturing: load and allocate before the capture, and launch only into "
              "the capturing stream"};
    case kNotSupported:
      return {Code::kUnimplemented, "this GPU or driver lacks the feature"};
    case kDeviceUnavailable:
      return {Code::kUnavailable, "another process may own the GPU: wait, or choose another one"};
    case kNotInitialized:
    case kDeinitialized:
      return {Code::kFailedPrecondition, "do not use CUDA while the process ends"};
    default:
      // 700 to 799 are what running kernels raise; all of them lose the context.
      if (result >= 700 && result < 800) return {Code::kInternal, kLostContext};
      if (result >= 900 && result < 910) {
        return {Code::kFailedPrecondition, "end the capture of this stream first"};
      }
      return {Code::kInternal, "look the code up in the CUDA driver API's list of errors"};
  }
}

}  // namespace

std::string ApiVersionText(int api_version) {
  return StrCat(api_version / 1000, ".", api_version % 1000 / 10);
}

absl::StatusOr<Driver> LoadDriver(const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    return Error(absl::StatusCode::kUnavailable,
                 StrCat("no CUDA driver: ", reason == nullptr ? library : reason),
                 StrCat(InstallFix(), ", or use --device host"));
  }
  Driver driver;
  const auto version = reinterpret_cast<Result (*)(int*)>(dlsym(handle, "cuDriverGetVersion"));
  if (version == nullptr || version(&driver.api_version) != kSuccess) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat(library, " is not a working CUDA driver library"),
                 "check which file the loader finds; a toolkit's stub does not count");
  }
  const auto get = reinterpret_cast<GetProcAddress>(dlsym(handle, "cuGetProcAddress_v2"));
  if (driver.api_version < kMinimumDriverApi || get == nullptr) {
    return Error(
        absl::StatusCode::kFailedPrecondition,
        StrCat("the CUDA driver is too old: it speaks CUDA ", ApiVersionText(driver.api_version)),
        InstallFix());
  }
#define KVR_CUDA_LOOK(member, symbol, since, required, parameters) \
  KVR_RETURN_IF_ERROR(Look(get, driver.api_version, #symbol, since, required, &driver.member));
  KVR_CUDA_FUNCTIONS(KVR_CUDA_LOOK)
#undef KVR_CUDA_LOOK
  return driver;
}

absl::Status InitDriver(const Driver& driver) {
  const Result result = driver.Init(0);
  switch (result) {
    case kSuccess:
      return absl::OkStatus();
    case kNoDevice:
      return Error(absl::StatusCode::kUnavailable, "the CUDA driver finds no GPU",
                   "check `nvidia-smi` and CUDA_VISIBLE_DEVICES, or use --device host");
    case kStubLibrary:
      return Error(absl::StatusCode::kFailedPrecondition,
                   "libcuda.so.1 is a toolkit's stub, not the driver",
                   "take the toolkit's stubs folder out of LD_LIBRARY_PATH");
    case kSystemDriverMismatch:
    case kCompatNotSupported:
      return Error(absl::StatusCode::kFailedPrecondition,
                   "libcuda.so.1 and the kernel's NVIDIA module do not fit together",
                   "use the libcuda of the installed driver; reboot if it was just updated");
    default:
      return WithContext("CUDA does not start", ErrorFrom(driver, result, "cuInit"));
  }
}

absl::StatusOr<const Driver*> GetDriver() {
  if (HiddenByUser()) {
    return Error(absl::StatusCode::kUnavailable, "KVR_NO_CUDA hides CUDA", "unset KVR_NO_CUDA");
  }
  static const auto* const driver = new absl::StatusOr<Driver>(LoadAndInit());
  if (!driver->ok()) return driver->status();
  return &**driver;
}

absl::Status ErrorFrom(const Driver& driver, Result result, std::string_view call,
                       std::string_view detail) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.GetErrorName(result, &name) != kSuccess || name == nullptr) name = "unknown error";
  if (driver.GetErrorString(result, &text) != kSuccess || text == nullptr) text = "no text";
  std::string what(call);
  if (!detail.empty()) StrAppend(&what, "(", detail, ")");
  StrAppend(&what, ": ", name, " (", result, "): ", text);
  const Meaning meaning = MeaningOf(result);
  return Error(meaning.code, what, meaning.fix);
}

}  // namespace kvr::cuda
