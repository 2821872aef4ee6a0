// SPDX-License-Identifier: Apache-2.0
#include "tuner/publish.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/file_lock.h"

namespace kvr {
namespace {

// What `base` selects for the key, if it is neither the incumbent nor what is to be published.
std::string Unmet(const Publication& publication, const Generation* base) {
  if (!publication.incumbent.has_value() || base == nullptr) return "";
  const Generation::Op* op = base->FindOp(publication.op);
  if (op == nullptr || op->policy.text() != publication.policy.text()) return "";
  const auto found = op->selections.find(publication.key);
  if (found == op->selections.end()) return "";
  const Candidate current{found->second.variant, found->second.config};
  const Candidate next{publication.selection.variant, publication.selection.config};
  return current == *publication.incumbent || current == next ? "" : CandidateText(current);
}

bool SelectTheSame(const Generation::Op& a, const Generation::Op& b) {
  return a.policy.text() == b.policy.text() && a.selections.size() == b.selections.size() &&
         std::all_of(a.selections.begin(), a.selections.end(), [&](const auto& selected) {
           const auto found = b.selections.find(selected.first);
           return found != b.selections.end() && found->second.variant == selected.second.variant &&
                  found->second.config == selected.second.config;
         });
}

// The policy of what publishing would delete without knowing of it; empty: nothing.
std::string ForeignPolicy(const Publication& publication, const Generation* base) {
  const Generation::Op* there = base == nullptr ? nullptr : base->FindOp(publication.op);
  if (there == nullptr || there->selections.empty() ||
      there->policy.text() == publication.policy.text()) {
    return "";
  }
  const Generation::Op* known =
      publication.rekeyed == nullptr ? nullptr : publication.rekeyed->FindOp(publication.op);
  return known != nullptr && SelectTheSame(*there, *known) ? "" : there->policy.text();
}

}  // namespace

absl::StatusOr<LoadedSelections> ReadIncumbents(const std::string& path, const Catalog& catalog,
                                                const DeviceInfo& device) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return LoadedSelections();
  return ReadSelectionFile(path, catalog, device);
}

std::string LostBy(const Publication& publication, absl::Span<const DroppedSelection> dropped) {
  std::string lost;
  for (const DroppedSelection& selection : dropped) {
    const auto is_its = [&](const BucketedKey& key) {
      return selection.op == publication.op && selection.key == publication.policy.Named(key);
    };
    if (is_its(publication.key) ||
        std::any_of(publication.retuned.begin(), publication.retuned.end(), is_its)) {
      continue;
    }
    lost += StrCat(lost.empty() ? "" : "; ", selection.op, " {", AxesText(selection.key),
                   "}: ", selection.variant, ", because ", selection.reason);
  }
  return lost;
}

absl::StatusOr<GenerationPtr> PublishSelections(const std::string& path, const Catalog& catalog,
                                                const DeviceInfo& device,
                                                std::vector<Publication> publications,
                                                double lock_timeout_s, std::string* before) {
  FileLock lock;
  KVR_RETURN_IF_ERROR(lock.Take(StrCat(path, ".lock"), lock_timeout_s));
  KVR_ASSIGN_OR_RETURN(const LoadedSelections file, ReadIncumbents(path, catalog, device));
  const GenerationPtr& base = file.generation;
  if (before != nullptr) *before = base == nullptr ? "" : base->digest().Hex();
  GenerationBuilder builder =
      base == nullptr ? GenerationBuilder(device.model, device.target) : GenerationBuilder(*base);
  for (Publication& publication : publications) {
    if (const std::string lost = LostBy(publication, file.dropped); !lost.empty()) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   StrCat(path, " has selections that publishing here would delete: ", lost),
                   "tune with the --plugins that brought their variants, tune their keys anew, or "
                   "name another selection file");
    }
    if (const std::string met = Unmet(publication, base.get()); !met.empty()) {
      return Error(absl::StatusCode::kAborted,
                   StrCat(path, " selects ", met, " since, which this was not compared with"),
                   "tune again: it is the incumbent then");
    }
    if (const std::string policy = ForeignPolicy(publication, base.get()); !policy.empty()) {
      return Error(absl::StatusCode::kAborted,
                   StrCat(path, " has selections of ", publication.op, " keyed by ", policy,
                          " since, which keys of ", publication.policy.text(), " would delete"),
                   "tune again: they are the incumbents then");
    }
    builder.SetPolicy(publication.op, publication.policy);
    KVR_RETURN_IF_ERROR(
        builder.Select(publication.op, publication.key, std::move(publication.selection)));
  }
  GenerationPtr next = builder.Build(base == nullptr ? 1 : base->number() + 1);
  KVR_RETURN_IF_ERROR(WriteSelectionFile(*next, path));
  return next;
}

absl::StatusOr<GenerationPtr> PublishSelection(const std::string& path, const Catalog& catalog,
                                               const DeviceInfo& device, Publication publication,
                                               double lock_timeout_s, std::string* before) {
  std::vector<Publication> one;
  one.push_back(std::move(publication));
  return PublishSelections(path, catalog, device, std::move(one), lock_timeout_s, before);
}

}  // namespace kvr
