// SPDX-License-Identifier: Apache-2.0
//
// NVRTC has assert itself; what it leaves to this header is to switch it off.
#ifdef NDEBUG
#undef assert
#define assert(condition) static_cast<void>(0)
#endif
