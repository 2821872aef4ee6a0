// SPDX-License-Identifier: Apache-2.0
//
// size_t and friends for host kernels.
#pragma once

typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef decltype(nullptr) nullptr_t;
#define offsetof(type, member) __builtin_offsetof(type, member)
#define NULL __null
