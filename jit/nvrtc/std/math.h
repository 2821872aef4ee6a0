// SPDX-License-Identifier: Apache-2.0
//
// NVRTC has the functions itself.
#pragma once
#ifndef INFINITY
#define INFINITY __builtin_bit_cast(float, 0x7f800000)
#endif
#ifndef NAN
#define NAN __builtin_bit_cast(float, 0x7fc00000)
#endif
#ifndef HUGE_VALF
#define HUGE_VALF INFINITY
#endif
