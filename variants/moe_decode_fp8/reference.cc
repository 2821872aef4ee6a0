// SPDX-License-Identifier: Apache-2.0
//
// The definition in float64, and how far a result's experts are from it.
#include "variants/common/moe/quality.h"
#include "variants/moe_decode_fp8/inputs.h"
#include "variants/moe_decode_fp8/op.h"

namespace kvr::moe_decode_fp8 {

int Reference(const int64_t* axes, const kvr_tensor* inputs, int threads, kvr_expected* outputs,
              char* error, size_t error_size) {
  moe::RoutingInputs routing;
  if (const int code = ReadRouting(axes, inputs, &routing, error, error_size)) return code;
  Expect(axes, inputs, moe::RouteEach(routing), threads, outputs);
  return KVR_OK;
}

int Quality(const int64_t* axes, const kvr_tensor* inputs, const kvr_tensor* outputs,
            const kvr_expected* exact, double* values, char* error, size_t error_size) {
  moe::RoutingInputs routing;
  if (const int code = ReadRouting(axes, inputs, &routing, error, error_size)) return code;
  return moe::MeasureChoices(routing, static_cast<const int32_t*>(outputs[kExpertIds].data),
                             axes[kSlots], exact[kExpertIds].expected, values, error, error_size);
}

}  // namespace kvr::moe_decode_fp8
