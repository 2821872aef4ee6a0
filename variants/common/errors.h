// SPDX-License-Identifier: Apache-2.0
//
// Errors of functions behind the plugin ABI: a code and one line in the caller's buffer.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <exception>

#include "kvr_plugin.h"

namespace kvr {

// Writes the line, as printf does, and returns `code`.
[[gnu::format(printf, 4, 5)]] inline int Fail(int code, char* error, size_t error_size,
                                              const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error, error_size, format, arguments);
  va_end(arguments);
  return code;
}

// What `f` returns; an exception, which must not cross the ABI, becomes KVR_INTERNAL.
template <typename F>
int Guarded(char* error, size_t error_size, const F& f) {
  try {
    return f();
  } catch (const std::exception& exception) {
    return Fail(KVR_INTERNAL, error, error_size, "%s", exception.what());
  }
}

}  // namespace kvr
