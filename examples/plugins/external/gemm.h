/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GEMM_H_
#define GEMM_H_

#include "kvr_plugin.h"

/* Positions in gemm/definition.json; tensors: inputs, then outputs. */
enum { AXIS_M, AXIS_N, AXIS_K };
enum { TENSOR_A, TENSOR_B, TENSOR_C };

extern const kvr_variant gemm_cublas;

#endif
