// SPDX-License-Identifier: Apache-2.0
#include "tuner/journal.h"

#include <unistd.h>

#include <utility>

#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

// Errors in a row after which the ledger is asked no more: a busy one takes its time to say so.
constexpr int kGiveUp = 3;

}  // namespace

ledger::Environment EnvironmentOf(const DeviceInfo& device, std::string compiler) {
  ledger::Environment environment;
  environment.device_kind = device.kind;
  environment.device_name = device.name;
  environment.device_model = device.model;
  environment.device_uuid = device.uuid;
  environment.target = device.target;
  environment.driver = device.driver;
  environment.compiler = std::move(compiler);
  environment.kvr_version = KVR_VERSION;
  char host[256] = "unknown";
  gethostname(host, sizeof host - 1);
  environment.host = host;
  return environment;
}

void Journal::SetEnvironment(ledger::Environment environment) {
  const std::lock_guard<std::mutex> lock(mutex_);
  environment_ = std::move(environment);
  environment_id_.reset();
}

ledger::Environment Journal::environment() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return environment_;
}

std::string Journal::BeginSession() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return session_ = ledger::NewUid();
}

template <class Record>
absl::Status Journal::TryStore(Record record) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!environment_id_.has_value()) {
      KVR_ASSIGN_OR_RETURN(environment_id_, ledger_->Remember(environment_));
    }
    record.environment = *environment_id_;
  }
  return ledger_->Add(std::move(record));
}

template <class Record>
void Journal::Store(Record record) {
  if (ledger_ == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (in_a_row_ >= kGiveUp) {
      ++errors_;
      return;
    }
  }
  const absl::Status stored = TryStore(std::move(record));
  if (!stored.ok()) return Report(stored);
  const std::lock_guard<std::mutex> lock(mutex_);
  in_a_row_ = 0;
}
template void Journal::Store(ledger::Build);
template void Journal::Store(ledger::Trial);
template void Journal::Store(ledger::Verdict);
template void Journal::Store(ledger::Band);
template void Journal::Store(ledger::Publication);

void Journal::Report(const absl::Status& error) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++in_a_row_;
    if (++errors_ > 1) return;
    first_ = error;
  }
  if (progress_ == nullptr) return;
  progress_->Note(StrCat("going on without the ledger: ", What(error),
                         Fix(error).empty() ? "" : "; ", Fix(error)));
}

bool Journal::trouble() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return errors_ > 0;
}

std::string Journal::why() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (errors_ == 0) return "";
  std::string why = StrCat(What(first_), Fix(first_).empty() ? "" : "; ", Fix(first_));
  if (errors_ > 1) StrAppend(&why, " (and ", errors_ - 1, " more errors)");
  return why;
}

}  // namespace kvr
