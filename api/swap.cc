// SPDX-License-Identifier: Apache-2.0
#include "api/swap.h"

#include <utility>

#include "api/platform.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/ledger/ledger.h"
#include "tuner/publication_ledger.h"

namespace kvr {

absl::StatusOr<std::unique_ptr<Swapper>> OpenSwapper(Runtime& runtime, SwapperOptions options) {
  const DeviceInfo& device = runtime.device().info();
  if (options.device == "auto") {
    options.device = device.kind == "cuda" ? StrCat("cuda:", device.ordinal) : device.kind;
  }
  return Swapper::Create(runtime.dispatcher(), runtime.platform().jit(), std::move(options));
}

absl::StatusOr<std::unique_ptr<PublicationSink>> OpenPublicationLedger(
    Runtime& runtime, const std::string& directory) {
  const std::string place = directory.empty() ? ledger::DefaultLedgerDirectory() : directory;
  if (place.empty() || place == "none") {
    return Error(absl::StatusCode::kNotFound, "there is no directory for a ledger",
                 "name one, or set KVR_LEDGER_DIR");
  }
  const DeviceInfo& device = runtime.device().info();
  return OpenPublicationLedger(place, device, runtime.platform().jit().Identity(device.target));
}

}  // namespace kvr
