// SPDX-License-Identifier: Apache-2.0
//
// Scanning: find, parse, then admit each bundle after the one it extends.
#include "plugins/scan.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "core/definition.h"
#include "core/key_policy.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "plugins/admit.h"
#include "plugins/code.h"
#include "plugins/discover.h"
#include "plugins/extend.h"
#include "plugins/library.h"
#include "plugins/manifest.h"

namespace kvr {
namespace {

using bundle::Invalid;
using bundle::Manifest;

constexpr size_t kMaxExtendsDepth = 8;

struct Candidate {
  enum class State { kWaiting, kInProgress, kAdmitted, kRejected };
  std::string path;   // of the manifest
  Manifest manifest;  // after admission: merged
  State state = State::kWaiting;
  VariantPtr variant;
  absl::Status status;
};

class Admission {
 public:
  Admission(std::vector<Candidate> candidates, absl::Span<const OpSpec* const> ops,
            const std::map<std::string, absl::Status>& refused_ops)
      : candidates_(std::move(candidates)), ops_(ops), refused_ops_(refused_ops) {}

  void Run(Scan* scan) {
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const bool admitted = Admitted(i);
      const Candidate& candidate = candidates_[i];
      if (admitted) {
        scan->variants.push_back(candidate.variant);
      } else {
        scan->rejections.push_back({candidate.path, candidate.status});
      }
    }
  }

 private:
  using State = Candidate::State;

  bool Admitted(size_t index) {
    Candidate& candidate = candidates_[index];
    if (candidate.state == State::kWaiting) {
      candidate.state = State::kInProgress;
      absl::StatusOr<Variant> variant = Admit(index);
      if (variant.ok()) {
        candidate.variant = std::make_shared<const Variant>(*std::move(variant));
        candidate.state = State::kAdmitted;
      } else {
        candidate.status = variant.status();
        candidate.state = State::kRejected;
      }
    }
    return candidate.state == State::kAdmitted;
  }

  absl::StatusOr<Variant> Admit(size_t index) {
    Manifest& manifest = candidates_[index].manifest;
    const OpSpec* op = FindOp(manifest.op.value);
    if (op == nullptr) {
      if (const auto refused = refused_ops_.find(manifest.op.value);
          refused != refused_ops_.end()) {
        return bundle::At(
            manifest.op.at, absl::StatusCode::kFailedPrecondition,
            StrCat("operation '", manifest.op.value, "' is refused: ", What(refused->second)),
            Fix(refused->second));
      }
      std::vector<std::string_view> known;
      for (const OpSpec* spec : ops_) known.push_back(spec->name);
      return bundle::At(manifest.op.at, UnknownName("op", manifest.op.value, known));
    }
    KVR_RETURN_IF_ERROR(CheckUnique(index));
    if (manifest.extends) {
      KVR_RETURN_IF_ERROR(CheckChain(index));
      KVR_ASSIGN_OR_RETURN(const size_t parent, Parent(index));
      KVR_ASSIGN_OR_RETURN(manifest, bundle::Extend(candidates_[parent].manifest, manifest));
    }
    absl::StatusOr<Variant> variant = bundle::Admit(manifest, *op);
    if (!variant.ok() && manifest.extends && !Blames(variant.status(), manifest)) {
      return bundle::At(
          manifest.extends->variant.at, variant.status().code(),
          StrCat("extends '", manifest.ParentName(),
                 "', and what that states does not fit here: ", What(variant.status())),
          StrCat("state it in this manifest as '", op->name, "' needs it; ",
                 Fix(variant.status())));
    }
    return variant;
  }

  // Does the error's place lie in the manifest itself, not in one that it extends?
  static bool Blames(const absl::Status& status, const Manifest& manifest) {
    return What(status).starts_with(StrCat(manifest.at.file, ":"));
  }

  const OpSpec* FindOp(std::string_view name) const {
    for (const OpSpec* op : ops_) {
      if (op->name == name) return op;
    }
    return nullptr;
  }

  // The first admitted one of a name, and of an op's baselines, stays.
  absl::Status CheckUnique(size_t index) {
    const Manifest& own = candidates_[index].manifest;
    const bool baseline = own.baseline && own.baseline->value;
    for (size_t i = 0; i < index; ++i) {
      const Manifest& other = candidates_[i].manifest;
      if (other.op.value != own.op.value) continue;
      const bool same_name = other.name.value == own.name.value;
      const bool both = baseline && other.baseline && other.baseline->value;
      if ((!same_name && !both) || !Stays(i)) continue;
      if (same_name) {
        return bundle::At(own.name.at, absl::StatusCode::kAlreadyExists,
                          StrCat("variant '", own.name.value, "' of '", own.op.value,
                                 "' is already there, from ", candidates_[i].path),
                          "give it another name, or remove one of the two");
      }
      return bundle::At(own.baseline->at, absl::StatusCode::kAlreadyExists,
                        StrCat("op '", own.op.value, "' already has the baseline '",
                               other.name.value, "', from ", candidates_[i].path),
                        "state baseline = false");
    }
    return absl::OkStatus();
  }

  // An earlier bundle whose admission waits for this one counts as there.
  bool Stays(size_t index) {
    return candidates_[index].state == State::kInProgress || Admitted(index);
  }

  // By name alone, before anything recurses: what a chain is does not depend on where one starts.
  absl::Status CheckChain(size_t index) const {
    const Manifest& own = candidates_[index].manifest;
    const bundle::Text& wanted = own.extends->variant;
    std::vector<const Manifest*> seen;
    const Manifest* at = &own;
    while (seen.size() <= kMaxExtendsDepth) {
      if (!at->extends) return absl::OkStatus();
      if (IsParent(own, *at)) return Cycle(own);
      const auto next = std::find_if(
          candidates_.begin(), candidates_.end(),
          [&](const Candidate& candidate) { return IsParent(candidate.manifest, *at); });
      if (next == candidates_.end()) return absl::OkStatus();  // Parent() says so
      at = &next->manifest;
      // A cycle further up is the fault of those in it; Parent() reports theirs.
      if (std::find(seen.begin(), seen.end(), at) != seen.end()) return absl::OkStatus();
      seen.push_back(at);
    }
    return Invalid(wanted.at, StrCat("a chain of more than ", kMaxExtendsDepth, " extends"),
                   "extend a variant nearer to the baseline");
  }

  // By op and name; the version is Parent()'s to check.
  static bool IsParent(const Manifest& candidate, const Manifest& child) {
    return candidate.op.value == child.ParentOp() &&
           candidate.name.value == child.extends->variant.value;
  }

  static absl::Status Cycle(const Manifest& child) {
    const bool same_op = child.ParentOp() == child.op.value;
    return Invalid(child.extends->variant.at,
                   IsParent(child, child)
                       ? StrCat("variant '", child.name.value, "' extends itself")
                       : StrCat("a cycle: '", child.ParentName(), "' extends, in the end, '",
                                same_op ? "" : StrCat(child.op.value, "/"), child.name.value, "'"),
                   "extend a variant that stands on its own");
  }

  absl::StatusOr<size_t> Parent(size_t index) {
    const Manifest& child = candidates_[index].manifest;
    const bundle::Text& wanted = child.extends->variant;
    const Candidate* rejected = nullptr;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const Manifest& other = candidates_[i].manifest;
      if (!IsParent(other, child)) continue;
      if (Admitted(i)) {
        KVR_RETURN_IF_ERROR(CheckMajor(child, other));
        return i;
      }
      if (candidates_[i].state == State::kInProgress) return Cycle(child);
      rejected = &candidates_[i];
    }
    if (rejected == nullptr) return UnknownParent(child);
    return bundle::At(
        wanted.at, absl::StatusCode::kFailedPrecondition,
        StrCat("extends '", child.ParentName(), "', which is rejected: ", What(rejected->status)),
        Fix(rejected->status));
  }

  absl::Status UnknownParent(const Manifest& child) const {
    constexpr std::string_view kElsewhere = "; what lies elsewhere is named with --plugins";
    const std::string op(child.ParentOp());
    std::vector<std::string_view> names;
    if (FindOp(op) == nullptr) {
      for (const OpSpec* spec : ops_) names.push_back(spec->name);
      const absl::Status unknown = WithContext("extends", UnknownName("op", op, names));
      return bundle::At(child.extends->op->at, absl::StatusCode::kNotFound, What(unknown),
                        StrCat(Fix(unknown), kElsewhere));
    }
    bool nameless = false;  // a manifest that could not be parsed may be the one wanted
    for (const Candidate& candidate : candidates_) {
      const Manifest& other = candidate.manifest;
      nameless |= other.name.value.empty();
      if (other.op.value == op && &other != &child) names.push_back(other.name.value);
    }
    const std::string& wanted = child.extends->variant.value;
    return bundle::At(
        child.extends->variant.at, absl::StatusCode::kNotFound,
        StrCat("extends: unknown variant ", Quoted(wanted), " of '", op, "'"),
        StrCat(SuggestNames(wanted, names),
               nameless ? "; or correct the bundles that were rejected" : "", kElsewhere));
  }

  static absl::Status CheckMajor(const Manifest& child, const Manifest& parent) {
    const std::string_view version = parent.version.value;
    if (version.substr(0, version.find('.')) == child.extends->version.value) {
      return absl::OkStatus();
    }
    return bundle::At(
        child.extends->version.at, absl::StatusCode::kFailedPrecondition,
        StrCat("extends '", child.ParentName(), "' version ", child.extends->version.value,
               ", but version ", version, " is there (", parent.at.file, ")"),
        "check what changed, then state its major version");
  }

  std::vector<Candidate> candidates_;
  absl::Span<const OpSpec* const> ops_;
  const std::map<std::string, absl::Status>& refused_ops_;
};

// Reads what was found: operations at once, bundles as candidates for admission.
class Reader {
 public:
  Reader(const ScanOptions& options, Scan* scan)
      : options_(options), scan_(scan), ops_(options.ops.begin(), options.ops.end()) {}

  void ReadDirectory(const std::string& path) {
    absl::StatusOr<bundle::BundleDirectory> files = bundle::BundleDirectory::Open(path);
    AddCandidate(StrCat(path, "/", bundle::kManifestName),
                 files.ok() ? bundle::ReadBundle(*files) : files.status());
  }

  void ReadLibrary(const std::string& path) {
    const auto library = PluginLibrary::Read(path, options_.check_load);
    if (!library.ok()) {
      scan_->rejections.push_back({path, library.status()});
      return;
    }
    for (const auto& [name, content] : (*library)->section().files) {
      const size_t slash = name.rfind('/');
      const std::string directory = slash == std::string::npos ? "" : name.substr(0, slash);
      const std::string_view leaf = std::string_view(name).substr(slash + 1);
      const bundle::EmbeddedBundle files(path, directory, (*library)->section().files);
      if (leaf == bundle::kManifestName) {
        AddCandidate(files.FilePath(leaf), bundle::ReadBundle(files, *library));
      } else if (leaf == bundle::kDefinitionName) {
        absl::Status status = AddOperation(files, *library);
        if (!status.ok()) scan_->rejections.push_back({files.FilePath(leaf), std::move(status)});
      }
    }
  }

  std::vector<Candidate> TakeCandidates() { return std::move(candidates_); }
  absl::Span<const OpSpec* const> ops() const { return ops_; }
  // Whose definition was read and refused, and why.
  const std::map<std::string, absl::Status>& refused_ops() const { return refused_ops_; }

 private:
  void AddCandidate(std::string path, absl::StatusOr<Manifest> manifest) {
    Candidate candidate;
    candidate.path = std::move(path);
    if (manifest.ok()) {
      candidate.manifest = *std::move(manifest);
    } else {
      candidate.status = manifest.status();
      candidate.state = Candidate::State::kRejected;
    }
    candidates_.push_back(std::move(candidate));
  }

  absl::Status AddOperation(const bundle::EmbeddedBundle& files,
                            const std::shared_ptr<const PluginLibrary>& library) {
    const std::string file = files.FilePath(bundle::kDefinitionName);
    KVR_ASSIGN_OR_RETURN(const std::string json,
                         files.ReadText(bundle::kDefinitionName, bundle::kMaxSourceBytes));
    KVR_ASSIGN_OR_RETURN(OpSpec spec, ParseDefinition(json, file));
    if (absl::Status policy = KeyPolicy::Parse(spec.key_policy, spec).status(); !policy.ok()) {
      return Refuse(spec.name, WithContext(file, policy));
    }
    for (const OpSpec* other : ops_) {
      if (other->name != spec.name) continue;
      return Error(absl::StatusCode::kAlreadyExists,
                   StrCat(file, ": operation '", spec.name, "' is already there"),
                   "give it another name, or remove one of the two");
    }
    if (!library->section().has_code) {
      return Refuse(spec.name,
                    Error(absl::StatusCode::kInvalidArgument,
                          StrCat(file, ": operation '", spec.name,
                                 "' has no code: the library defines no exported kvr_plugin_v1"),
                          "define it, with KVR_EXPORT before it"));
    }
    scan_->operations.push_back(MakePluginOperation(std::move(spec), library));
    ops_.push_back(&scan_->operations.back()->spec());
    return absl::OkStatus();
  }

  absl::Status Refuse(const std::string& op, absl::Status why) {
    refused_ops_.emplace(op, why);
    return why;
  }

  const ScanOptions& options_;
  Scan* scan_;
  std::vector<Candidate> candidates_;
  std::vector<const OpSpec*> ops_;  // known so far
  std::map<std::string, absl::Status> refused_ops_;
};

}  // namespace

Scan ScanPlugins(absl::Span<const std::string> roots, const ScanOptions& options) {
  Scan scan;
  Reader reader(options, &scan);
  for (const bundle::Found& found : bundle::FindPlugins(roots, &scan.rejections)) {
    if (found.is_library) {
      reader.ReadLibrary(found.path);
    } else {
      reader.ReadDirectory(found.path);
    }
  }
  Admission(reader.TakeCandidates(), reader.ops(), reader.refused_ops()).Run(&scan);
  return scan;
}

}  // namespace kvr
