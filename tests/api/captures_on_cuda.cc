// SPDX-License-Identifier: Apache-2.0
#include "tests/api/captures.h"

const char* const kvr::kCaptureDevice = "cuda";
