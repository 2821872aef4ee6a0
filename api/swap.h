// SPDX-License-Identifier: Apache-2.0
//
// What a serving application includes to change its kernels while it runs: a swapper on its
// runtime, and the ledger as the journal of publications. Needs kvr-worker beside it
// (tuner/worker/client.h); serving alone needs none of it (api/runtime.h).
//
//   KVR_ASSIGN_OR_RETURN(std::unique_ptr<Swapper> swapper, OpenSwapper(*runtime));
//   KVR_RETURN_IF_ERROR(swapper->WatchSelectionFile("h200.json"));
//   const uint64_t id = swapper->Request({.op = "mla_sparse_decode", .variant = "w8"});
//
// Threading and errors: tuner/swapper.h. Ownership: the runtime outlives the swapper.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "api/runtime.h"
#include "registry/publication.h"
#include "tuner/swapper.h"

namespace kvr {

// `options.plugin_roots`: those that the runtime was opened with. `options.device` "auto": the
// runtime's.
absl::StatusOr<std::unique_ptr<Swapper>> OpenSwapper(Runtime& runtime, SwapperOptions options = {});

// For Runtime::SetJournal: a row in the ledger for each publication. `directory` empty:
// KVR_LEDGER_DIR or where `kvr tune` keeps its own. kNotFound: none can be named.
absl::StatusOr<std::unique_ptr<PublicationSink>> OpenPublicationLedger(
    Runtime& runtime, const std::string& directory = "");

}  // namespace kvr
