// SPDX-License-Identifier: Apache-2.0
#include "tuner/publication_ledger.h"

#include <atomic>
#include <cstdio>
#include <optional>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/journal.h"
#include "tuner/ledger/ledger.h"

namespace kvr {
namespace {

// "op {key}: before -> variant {config}, ..." in its parts; what is not there is empty.
struct ChangeParts {
  std::string op, variant, config;
};

std::string Between(std::string_view text, std::string_view open, std::string_view close) {
  const size_t begin = text.find(open);
  if (begin == std::string_view::npos) return "";
  const size_t end = text.find(close, begin + open.size());
  if (end == std::string_view::npos) return "";
  return std::string(text.substr(begin + open.size(), end - begin - open.size()));
}

ChangeParts PartsOf(std::string_view change) {
  ChangeParts parts;
  parts.op = std::string(change.substr(0, change.find_first_of(" :")));
  const size_t arrow = change.find(" -> ");
  if (arrow == std::string_view::npos || change.find("keys by") != std::string_view::npos) {
    return parts;
  }
  const std::string_view after = change.substr(arrow + 4);
  parts.variant = std::string(after.substr(0, after.find(' ')));
  parts.config = Between(after, "{", "}");
  return parts;
}

ledger::Publication RowOf(const PublicationRecord& record) {
  ledger::Publication row;
  row.time = record.time;
  row.trigger = record.trigger;
  row.before = record.before;
  row.after = record.after;
  row.outcome = record.outcome == "unchanged" ? "kept" : record.outcome;
  std::optional<ChangeParts> all;
  for (const std::string& change : record.changes) {
    const ChangeParts parts = PartsOf(change);
    if (!all) all = parts;
    if (all->op != parts.op) all->op.clear();
    if (all->variant != parts.variant || all->config != parts.config) {
      all->variant.clear();
      all->config.clear();
    }
  }
  if (all && !all->op.empty()) {
    row.op = all->op;
    row.variant = all->variant;
    row.config = all->config;
  }
  row.reason = record.reason;
  for (const std::string& change : record.changes) {
    StrAppend(&row.reason, row.reason.empty() ? "" : "\n", change);
  }
  StrAppend(&row.reason, row.reason.empty() ? "" : "\n", "asked for by ", record.who);
  return row;
}

class PublicationLedger : public PublicationSink {
 public:
  PublicationLedger(std::unique_ptr<ledger::Ledger> ledger, ledger::Environment environment)
      : ledger_(std::move(ledger)), environment_(std::move(environment)) {}

  void Record(const PublicationRecord& record) override {
    absl::Status status = Store(record);
    if (status.ok() || lost_.fetch_add(1) > 0) return;
    std::fprintf(stderr,
                 "kvr: the ledger %s cannot be written: %s; publications go on, and are counted "
                 "only\n",
                 ledger_->path().c_str(), std::string(What(status)).c_str());
  }
  uint64_t lost() const override { return lost_; }

 private:
  absl::Status Store(const PublicationRecord& record) {
    ledger::Publication row = RowOf(record);
    KVR_ASSIGN_OR_RETURN(row.environment, ledger_->Remember(environment_));
    return ledger_->Add(std::move(row));
  }

  const std::unique_ptr<ledger::Ledger> ledger_;
  const ledger::Environment environment_;
  std::atomic<uint64_t> lost_{0};
};

}  // namespace

absl::StatusOr<std::unique_ptr<PublicationSink>> OpenPublicationLedger(const std::string& directory,
                                                                       const DeviceInfo& device,
                                                                       std::string compiler) {
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<ledger::Ledger> ledger, ledger::Ledger::Open(directory));
  return std::make_unique<PublicationLedger>(std::move(ledger),
                                             EnvironmentOf(device, std::move(compiler)));
}

}  // namespace kvr
