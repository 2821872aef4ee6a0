// SPDX-License-Identifier: Apache-2.0
//
// The math functions are built into every host unit (kvr_host_math.h).
#pragma once

#define M_PI 3.14159265358979323846
#define M_E 2.7182818284590452354
#define M_LN2 0.69314718055994530942
#define M_LOG2E 1.4426950408889634074
#define M_SQRT2 1.41421356237309504880
