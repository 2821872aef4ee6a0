// SPDX-License-Identifier: Apache-2.0
//
// The handles of kvr.h: numbers in the shape of pointers, looked up in a table and never followed,
// so that NULL, garbage, another kind and a closed handle are found out for two loads.
//
// Threading: Find is wait-free; Make and Take lock. Whoever closes a handle sees to it that nobody
// uses it: an object that was found is not held.
// fork: the child's table is empty.
#pragma once

#include <cstdint>

namespace kvr::c {

// From 1; at most 15.
enum class HandleKind : uint8_t { kRuntime = 1, kBound, kScope, kBinding, kLive, kGraph };

// A new handle of `object`; null where there are too many (2^24).
void* MakeHandle(HandleKind kind, void* object);
// Its object; null where it is none of this kind.
void* FindHandle(HandleKind kind, const void* handle);
// The same, and the handle is dead.
void* TakeHandle(HandleKind kind, const void* handle);
// This process was forked from one that had handles.
bool HandlesLostInFork();

}  // namespace kvr::c
