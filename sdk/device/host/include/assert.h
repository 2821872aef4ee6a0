// SPDX-License-Identifier: Apache-2.0
//
// A failed assertion ends the launch with an error that names block and thread. Without a guard:
// the standard lets NDEBUG change between inclusions.
#undef assert
#if defined(NDEBUG)
#define assert(condition) static_cast<void>(0)
#else
#define assert(condition)             \
  ((condition) ? static_cast<void>(0) \
               : kvr_host_fail(kvr_host_self(), "assertion failed: " #condition, kvr_host_site()))
#endif
