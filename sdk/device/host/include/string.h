// SPDX-License-Identifier: Apache-2.0
//
// Memory functions for host kernels.
#pragma once

#include <stddef.h>

extern "C" {
void* memcpy(void* to, const void* from, size_t bytes) noexcept;
void* memmove(void* to, const void* from, size_t bytes) noexcept;
void* memset(void* to, int value, size_t bytes) noexcept;
int memcmp(const void* a, const void* b, size_t bytes) noexcept;
}
