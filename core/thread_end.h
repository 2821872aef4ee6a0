// SPDX-License-Identifier: Apache-2.0
//
// What a thread has until it ends, made when it is first needed:
//
//   constinit thread_local Slot* slot = nullptr;
//   if (slot == nullptr) {
//     slot = TakeSlot();
//     AtThreadEnd([](void*) { Return(std::exchange(slot, nullptr)); });
//   }
//
// A thread_local object would be gone for the destructors that run after its own, of thread_locals
// made before it, and is not made twice. Here such a destructor gets another, which is returned in
// its turn; a static's, after the main thread's end, keeps it until the process is gone.
//
// Threading: for the calling thread.
#pragma once

#include <cxxabi.h>

extern "C" __attribute__((visibility("hidden"))) void* __dso_handle;  // of the library that calls

namespace kvr {

// `function` runs among the destructors of this thread's thread_local objects, the latest first.
inline void AtThreadEnd(void (*function)(void*)) {
  abi::__cxa_thread_atexit(function, nullptr, &__dso_handle);
}

}  // namespace kvr
