// SPDX-License-Identifier: Apache-2.0
//
// printf is built into every host unit (kvr_host_cuda.h).
#pragma once
