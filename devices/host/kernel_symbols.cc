// SPDX-License-Identifier: Apache-2.0
#include "devices/host/kernel_symbols.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

#include "sdk/device/host/kvr_host_abi.h"

extern "C" {  // libgcc; called by generated code alone
void __divti3();
void __modti3();
void __udivti3();
void __umodti3();
void __truncdfhf2();
void __extendhfdf2();
void __fixsfti();
void __fixdfti();
void __fixunssfti();
void __fixunsdfti();
void __floattisf();
void __floattidf();
void __floatuntisf();
void __floatuntidf();
void __powisf2();
void __powidf2();
}

namespace kvr::host {
namespace {

// What kernels print goes to stderr: stdout may carry a protocol. It is put together first: a text
// at a wrong address must fault while nothing of stdio is locked (faults.h).
int printf(const char* format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, arguments);
  std::string text(static_cast<size_t>(std::max(size, 0)), 0);
  if (size > 0) std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  va_end(arguments);
  std::fwrite(text.data(), 1, text.size(), stderr);
  return size;
}
int putchar(int character) { return std::fputc(character, stderr); }
int puts(const char* text) { return printf("%s\n", text); }

int bcmp(const void* a, const void* b, size_t n) { return std::memcmp(a, b, n); }

template <class Type>
void* Address(Type* function) {
  return reinterpret_cast<void*>(function);
}

// The functions above stand before those of libc that have their names.
const KernelSymbol kSymbols[] = {
#define KVR_HOST_RUNTIME(name) {#name, Address(&name)},
#define KVR_HOST_FUNCTION(name, ...) {#name, Address<__VA_ARGS__>(&name)},
#include "sdk/device/host/kvr_host_symbols.h"
};

}  // namespace

absl::Span<const KernelSymbol> KernelSymbols() { return kSymbols; }

}  // namespace kvr::host
