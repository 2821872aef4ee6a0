// SPDX-License-Identifier: Apache-2.0
//
// CUDA's language and vector types are built into every host unit (kvr_host.h).
#pragma once

#include <stddef.h>
