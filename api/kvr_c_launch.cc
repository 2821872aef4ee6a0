// SPDX-License-Identifier: Apache-2.0
//
// kvr.h: launch and bind.
#include <array>
#include <utility>

#include "absl/types/span.h"
#include "api/kvr_c.h"
#include "api/kvr_c_tensors.h"

using namespace kvr;     // NOLINT(google-build-using-namespace)
using namespace kvr::c;  // NOLINT(google-build-using-namespace)

namespace {

// The op, and the tensors as it wants them.
struct Arguments {
  OpHandle handle;
  const OpSpec* op = nullptr;
  std::array<TensorView, kMaxTensors> views;
  Scalars scalars;

  absl::Span<const TensorView> tensors() const {
    return {views.data(), static_cast<size_t>(op->tensor_count())};
  }
};

absl::Status ReadArguments(const Runtime& runtime, const char* op,
                           const kvr_dltensor* const* tensors, size_t count, Arguments* out) {
  if (op == nullptr) return NullArgument("op");
  KVR_ASSIGN_OR_RETURN(out->handle, runtime.FindOp(op));
  out->op = &runtime.catalog().ops()[static_cast<size_t>(out->handle.index)]->spec();
  return ReadTensors(*out->op, tensors, count, runtime.device().info(), out->views.data(),
                     &out->scalars);
}

}  // namespace

kvr_code kvr_launch(kvr_runtime* runtime, const char* op, const kvr_dltensor* const* tensors,
                    size_t count, void* stream) {
  return With(runtime, [&](RuntimePtr& kvr) -> absl::Status {
    Arguments arguments;
    KVR_RETURN_IF_ERROR(ReadArguments(*kvr->runtime, op, tensors, count, &arguments));
    return kvr->runtime->Launch(arguments.handle, arguments.tensors(), Stream{stream});
  });
}

kvr_code kvr_bind(kvr_runtime* runtime, const char* op, const kvr_dltensor* const* tensors,
                  size_t count, kvr_bound** bound) {
  return With(runtime, [&](RuntimePtr& kvr) -> absl::Status {
    if (bound == nullptr) return NullArgument("bound");
    Arguments arguments;
    KVR_RETURN_IF_ERROR(ReadArguments(*kvr->runtime, op, tensors, count, &arguments));
    KVR_ASSIGN_OR_RETURN(BoundLaunch launch, kvr->runtime->Bind(op, arguments.tensors()));
    return Make(bound, kvr, arguments.op,
                std::vector<TensorView>(arguments.tensors().begin(), arguments.tensors().end()),
                std::move(launch));
  });
}

kvr_code kvr_bound_launch(kvr_bound* bound, void* stream) {
  return With(bound, [&](OpenBound& handle) { return handle.launch.Launch(Stream{stream}); });
}

kvr_code kvr_bound_set(kvr_bound* bound, int32_t index, const kvr_dltensor* tensor) {
  return With(bound, [&](OpenBound& handle) -> absl::Status {
    const OpSpec& op = *handle.op;
    if (index < 0 || index >= op.tensor_count()) {
      return Error(absl::StatusCode::kOutOfRange, StrCat(op.name, " has no tensor ", index),
                   StrCat("count from 0, inputs first, to ", op.tensor_count() - 1));
    }
    TensorView view;
    uint64_t scalar = 0;
    KVR_RETURN_IF_ERROR(
        ReadTensor(op, index, tensor, handle.kvr->runtime->device().info(), &view, &scalar));
    const TensorView& before = handle.shapes[static_cast<size_t>(index)];
    if (view.dtype != before.dtype || view.rank != before.rank || view.shape != before.shape) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("tensor ", index, " (", op.tensor(index).name, ") of ", op.name,
                          " has another type or shape than the one that was bound"),
                   "bind anew: a bound launch is for fixed shapes");
    }
    return handle.launch.SetData(index, view.data);
  });
}

kvr_code kvr_bound_close(kvr_bound* bound) { return Close(bound); }
