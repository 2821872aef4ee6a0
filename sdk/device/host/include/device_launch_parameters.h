// SPDX-License-Identifier: Apache-2.0
//
// Built into every host unit (kvr_host_cuda.h).
#pragma once
