// SPDX-License-Identifier: Apache-2.0
//
// What a tuning application includes: compile, verify and tune an op's variants on a device of this
// machine. Serving needs none of it (api/runtime.h).
//
//   KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform,
//                        Platform::Open({.check_plugin = TryPlugin}));
//   TuneRequest request;
//   request.op = "mla_sparse_decode";
//   request.shapes = {{{"num_tokens", 96}, {"topk", 512}}};
//   request.selection_file = "h200.json";
//   KVR_ASSIGN_OR_RETURN(TuneReport report, Tune(*platform, {.device = "cuda:0"}, request));
//
// Kernels run in kvr-worker (KVR_WORKER, else <prefix>/bin): whatever they do, this process and its
// CUDA contexts are not touched. Verify and Tune open no device here. Plan functions of compiled
// plugins are called here; TryPlugin loads a stranger's library in kvr-worker first.
//
// Threading, cancelling, errors: tuner/tune.h.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "api/platform.h"
#include "tuner/tune.h"
#include "tuner/worker/try_plugin.h"

namespace kvr {

struct TuneSettings {
  std::string device = "auto";            // as Platform::OpenDevice takes it
  std::vector<std::string> plugin_roots;  // those the platform was opened with
  int64_t memory_bytes = 0;               // most device memory for the worker; 0: what there is
  double timeout_s = 30;                  // for one config's kernels
  std::string ledger_directory;           // empty: DefaultLedgerDirectory(); "none": no ledger
  Progress* progress = nullptr;
  const std::atomic<bool>* cancel = nullptr;
};

absl::StatusOr<VerifyReport> Verify(Platform& platform, const TuneSettings& settings,
                                    const VerifyRequest& request);
absl::StatusOr<TuneReport> Tune(Platform& platform, const TuneSettings& settings,
                                const TuneRequest& request);

// `targets` empty: all that a compiler here supports. Overwrites request.targets.
absl::StatusOr<CompileReport> Compile(Platform& platform, const TuneSettings& settings,
                                      const std::vector<std::string>& targets,
                                      CompileRequest request);

// A device of `target`, for plans: this machine's, else a profile of that target, else one without
// a name.
DeviceInfo DeviceOfTarget(Platform& platform, std::string_view target);

}  // namespace kvr
