// SPDX-License-Identifier: Apache-2.0
#include "api/decode/side.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

constexpr std::string_view kOps[] = {kDecodeAttention, kDecodeMoe};

// "mla_sparse_decode/w8{TARGET_CTAS=512}" or "mla_sparse_decode/TARGET_CTAS=512".
struct Part {
  std::string_view text, op, variant;  // no variant: whatever serves
  std::vector<std::pair<std::string, int64_t>> tunables;
};

absl::StatusOr<Part> ParsePart(std::string_view text) {
  const size_t slash = text.find('/');
  Part part{.text = text, .op = text.substr(0, slash)};
  std::string_view what = text.substr(slash + 1);
  const size_t brace = what.find('{');
  if (brace != std::string_view::npos || what.find('=') == std::string_view::npos) {
    part.variant = what.substr(0, brace);
    if (brace == std::string_view::npos) return part;
    if (!what.ends_with('}')) {
      return Error(absl::StatusCode::kInvalidArgument, "there is no closing brace",
                   "as in mla_sparse_decode/w8{TARGET_CTAS=512}");
    }
    what.remove_suffix(1);
    what.remove_prefix(brace + 1);
    if (what.empty()) return part;
  }
  KVR_ASSIGN_OR_RETURN(const auto assigned, ParseAssignments(what, "tunable", /*negative=*/true));
  for (const auto& [name, value] : assigned) part.tunables.emplace_back(name, value);
  return part;
}

// What the registry says of a value, and which option of the bench said it.
absl::Status Blame(std::string_view option, std::string_view text, const absl::Status& status) {
  std::string_view what = What(status);
  constexpr std::string_view kRegistrys = "--set: ";
  if (what.starts_with(kRegistrys)) what.remove_prefix(kRegistrys.size());
  return Error(status.code(), StrCat(option, " ", text, ": ", what), Fix(status));
}

// `option` empty: --variant or --set, as the part has it.
absl::StatusOr<std::vector<Part>> ParseParts(const std::vector<std::string>& texts,
                                             std::string_view option) {
  std::vector<Part> parts;
  std::map<std::string, std::string> said;
  for (const std::string& text : texts) {
    absl::StatusOr<Part> part = ParsePart(text);
    if (!part.ok()) return Blame(option.empty() ? "--variant" : option, text, part.status());
    const auto once = [&](const std::string& what, const std::string& value) {
      const auto [first, is_new] = said.emplace(what, value);
      if (is_new) return absl::OkStatus();
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat(option.empty() ? "" : StrCat(option, ": "), what,
                          " is said twice: ", first->second, " and ", value),
                   "say it once");
    };
    if (!part->variant.empty()) {
      KVR_RETURN_IF_ERROR(once(StrCat("the variant of ", part->op), std::string(part->variant)));
    }
    for (const auto& [name, value] : part->tunables) {
      KVR_RETURN_IF_ERROR(once(StrCat(part->op, "/", name), StrCat(value)));
    }
    parts.push_back(*std::move(part));
  }
  return parts;
}

std::string_view OptionOf(const Part& part, std::string_view option) {
  return !option.empty() ? option : part.variant.empty() ? "--set" : "--variant";
}

absl::Status Apply(const Catalog& catalog, const Part& part, std::string_view option,
                   Overrides* overrides) {
  absl::Status status;
  if (!part.variant.empty()) status = overrides->Force(catalog, part.op, part.variant);
  for (const auto& [name, value] : part.tunables) {
    if (status.ok()) status = overrides->Set(catalog, part.op, name, value);
  }
  return status.ok() ? status : Blame(OptionOf(part, option), part.text, status);
}

// A tunable that nothing that serves has would go unnoticed.
absl::Status CheckTunables(const std::vector<Part>& parts, std::string_view option,
                           const std::vector<DecodeServed>& served) {
  for (const Part& part : parts) {
    for (const auto& [name, value] : part.tunables) {
      std::vector<std::string> serving;
      bool found = false;
      for (const DecodeServed& one : served) {
        if (one.op != part.op) continue;
        found |= one.config.contains(name);
        serving.push_back(one.variant);
      }
      if (found) continue;
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat(OptionOf(part, option), " ", part.text, ": ", part.op, " is served by ",
                          StrJoin(serving, ", "), ", which has no tunable '", name, "'"),
                   StrCat("leave it out, or name a variant that has it: ", part.op, "/VARIANT{",
                          name, "=", value, "}"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool NamesOp(std::string_view part) {
  return std::any_of(std::begin(kOps), std::end(kOps), [&](std::string_view op) {
    return part.size() > op.size() && part.starts_with(op) && part[op.size()] == '/';
  });
}

absl::Status AddChange(std::string_view part, DecodeContestant* contestant) {
  if (NamesOp(part)) {
    contestant->changes.emplace_back(part);
    return absl::OkStatus();
  }
  std::error_code error;
  if (std::filesystem::is_regular_file(part, error)) {
    contestant->selection_file = part;
    return absl::OkStatus();
  }
  if (part.ends_with(".json") || part.starts_with('/') || part.starts_with('.')) {
    const bool there = std::filesystem::exists(part, error);
    return Error(absl::StatusCode::kNotFound,
                 StrCat("cannot read ", part, ": ",
                        there   ? "it is no file"
                        : error ? error.message()
                                : "there is no such file"),
                 "give a selection file, as `kvr tune` writes it");
  }
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat(Quoted(part), " is no selection file, and names no operation of the stack"),
               "as in h200.json, mla_sparse_decode/w8{TARGET_CTAS=512} or "
               "moe_decode/DEPTH=128");
}

absl::Status CheckParts(const DecodeContestant& contestant) {
  KVR_RETURN_IF_ERROR(ParseParts(contestant.parts, "").status());
  return ParseParts(contestant.changes, "--ab").status();
}

absl::StatusOr<std::unique_ptr<DecodeSide>> DecodeSide::Open(const Platform& platform,
                                                             DecodeStack& stack,
                                                             const DecodeContestant& contestant,
                                                             absl::Span<const int64_t> buckets) {
  std::unique_ptr<DecodeSide> side(new DecodeSide(stack, buckets));
  const Catalog& catalog = platform.catalog();
  KVR_RETURN_IF_ERROR(CheckOptIns(catalog, contestant.approximate));
  DispatcherOptions options;
  options.approximate = contestant.approximate;
  KVR_ASSIGN_OR_RETURN(options.overrides, Overrides::FromEnvironment(catalog));
  KVR_ASSIGN_OR_RETURN(const std::vector<Part> parts, ParseParts(contestant.parts, ""));
  KVR_ASSIGN_OR_RETURN(const std::vector<Part> changes, ParseParts(contestant.changes, "--ab"));
  for (const Part& part : parts) {
    const bool replaced = std::any_of(changes.begin(), changes.end(), [&](const Part& change) {
      return !part.variant.empty() && !change.variant.empty() && change.op == part.op;
    });
    if (!replaced) KVR_RETURN_IF_ERROR(Apply(catalog, part, "", &options.overrides));
  }
  for (const Part& change : changes) {
    KVR_RETURN_IF_ERROR(Apply(catalog, change, "--ab", &options.overrides));
  }
  side->dispatcher_ =
      std::make_unique<Dispatcher>(catalog, stack.device(), platform.jit(), std::move(options));
  if (!contestant.selection_file.empty()) {
    KVR_ASSIGN_OR_RETURN(
        LoadedSelections selections,
        ReadSelectionFile(contestant.selection_file, catalog, stack.device().info()));
    side->dropped_ = std::move(selections.dropped);
    KVR_RETURN_IF_ERROR(side->dispatcher_->Publish(std::move(selections.generation)).status());
  }
  KVR_RETURN_IF_ERROR(side->Load());
  // The other contestant's parts are checked where they are its own.
  KVR_RETURN_IF_ERROR(contestant.changes.empty() ? CheckTunables(parts, "", side->served_)
                                                 : CheckTunables(changes, "--ab", side->served_));
  return side;
}

absl::Status DecodeSide::Capture() {
  KVR_RETURN_IF_ERROR(dispatcher_->PrepareStream(stack_.stream()));
  dispatcher_->Freeze();
  for (const int64_t bucket : buckets_) {
    for (int set = 0; set < stack_.options().input_sets; ++set) {
      KVR_RETURN_IF_ERROR(Capture(bucket, set));
    }
  }
  return absl::OkStatus();
}

DecodeSide::~DecodeSide() {
  (void)stack_.device().Synchronize(stack_.stream());
  graphs_.clear();
  dispatcher_.reset();
  stack_.device().Collect();  // what the graphs retained
}

std::string DecodeSide::digest() const {
  const GenerationPtr generation = dispatcher_->generation();
  return generation == nullptr || generation->ops().empty() ? "" : generation->digest().Hex();
}

absl::Status DecodeSide::Load() {
  for (const std::string_view op : kOps) {
    std::vector<Axes> shapes;
    for (const int64_t bucket : buckets_) shapes.push_back(stack_.AxesOf(op, bucket));
    KVR_ASSIGN_OR_RETURN(const LoadReport report, dispatcher_->Load(op, shapes));
    for (const LoadItem& item : report.items) {
      const int64_t bucket = item.axes.at("num_tokens");
      if (!item.status.ok()) {
        // What was asked for cannot be had here: the input is wrong, not the run.
        const absl::StatusCode code = item.status.code();
        const bool refused = code == absl::StatusCode::kFailedPrecondition ||
                             code == absl::StatusCode::kUnimplemented;
        return Error(refused ? absl::StatusCode::kInvalidArgument : code,
                     StrCat(op, " at num_tokens=", bucket, ": ", What(item.status)),
                     Fix(item.status));
      }
      const auto same = std::find_if(served_.begin(), served_.end(), [&](const DecodeServed& s) {
        return s.op == op && s.variant == item.variant && s.config == item.config &&
               s.why == item.why;
      });
      if (same == served_.end()) {
        served_.push_back({std::string(op), item.variant, item.config, item.why, {bucket}});
      } else {
        same->buckets.push_back(bucket);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status DecodeSide::Capture(int64_t bucket, int set) {
  Device& device = stack_.device();
  const Stream stream = stack_.stream();
  KVR_RETURN_IF_ERROR(device.BeginCapture(stream, CaptureMode::kThreadLocal));
  // From here on the capture has to be ended, whatever happens. Nothing is swapped later, so the
  // binding may go.
  const absl::Status recorded = [&] {
    KVR_ASSIGN_OR_RETURN(const std::unique_ptr<CaptureScope> scope,
                         dispatcher_->OpenCapture(stream));
    for (int layer = 0; layer < stack_.options().layers; ++layer) {
      for (const std::string_view op : kOps) {
        KVR_RETURN_IF_ERROR(
            dispatcher_->Launch(op, stack_.Tensors(op, layer, set, bucket), stream));
      }
    }
    return scope->Finish().status();
  }();
  absl::StatusOr<std::unique_ptr<Graph>> graph = device.EndCapture(stream);
  KVR_RETURN_IF_ERROR(recorded);
  KVR_RETURN_IF_ERROR(graph.status());
  graphs_[{bucket, set}] = *std::move(graph);
  return absl::OkStatus();
}

}  // namespace kvr
