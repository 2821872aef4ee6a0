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

// Is it "OP/..." of an op of the stack?
bool NamesOp(std::string_view part) {
  return std::any_of(std::begin(kOps), std::end(kOps), [&](std::string_view op) {
    return part.size() > op.size() && part.starts_with(op) && part[op.size()] == '/';
  });
}

absl::Status SetTunables(const Catalog& catalog, std::string_view op, std::string_view text,
                         Overrides* overrides) {
  KVR_ASSIGN_OR_RETURN(const auto assigned, ParseAssignments(text, "tunable", /*negative=*/true));
  for (const auto& [name, value] : assigned) {
    KVR_RETURN_IF_ERROR(overrides->Set(catalog, op, name, value));
  }
  return absl::OkStatus();
}

// "mla_sparse_decode/w8{TARGET_CTAS=512}" or "mla_sparse_decode/TARGET_CTAS=512".
absl::Status ApplyPart(const Catalog& catalog, std::string_view part, Overrides* overrides) {
  const size_t slash = part.find('/');
  const std::string_view op = part.substr(0, slash);
  std::string_view what = part.substr(slash + 1);
  const size_t brace = what.find('{'), equals = what.find('=');
  if (brace == std::string_view::npos && equals != std::string_view::npos) {
    return SetTunables(catalog, op, what, overrides);
  }
  KVR_RETURN_IF_ERROR(overrides->Force(catalog, op, what.substr(0, brace)));
  if (brace == std::string_view::npos) return absl::OkStatus();
  if (!what.ends_with('}')) {
    return Error(absl::StatusCode::kInvalidArgument, StrCat(Quoted(part), " has no closing brace"),
                 "as in mla_sparse_decode/w8{TARGET_CTAS=512}");
  }
  what.remove_suffix(1);
  return SetTunables(catalog, op, what.substr(brace + 1), overrides);
}

}  // namespace

absl::Status AddPart(std::string_view part, DecodeContestant* contestant) {
  std::error_code error;
  if (NamesOp(part)) {
    contestant->parts.emplace_back(part);
  } else if (std::filesystem::is_regular_file(part, error)) {
    contestant->selection_file = part;
  } else {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat(Quoted(part), " is no selection file, and names no operation of the stack"),
                 "as in h200.json, mla_sparse_decode/w8{TARGET_CTAS=512} or "
                 "moe_decode/DEPTH=128");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DecodeSide>> DecodeSide::Open(const Platform& platform,
                                                             DecodeStack& stack,
                                                             const DecodeContestant& contestant,
                                                             absl::Span<const int64_t> buckets) {
  std::unique_ptr<DecodeSide> side(new DecodeSide(stack));
  const Catalog& catalog = platform.catalog();
  KVR_RETURN_IF_ERROR(CheckOptIns(catalog, contestant.approximate));
  DispatcherOptions options;
  options.approximate = contestant.approximate;
  KVR_ASSIGN_OR_RETURN(options.overrides, Overrides::FromEnvironment(catalog));
  for (const std::string& part : contestant.parts) {
    KVR_RETURN_IF_ERROR(ApplyPart(catalog, part, &options.overrides));
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
  KVR_RETURN_IF_ERROR(side->Load(buckets));
  KVR_RETURN_IF_ERROR(side->dispatcher_->PrepareStream(stack.stream()));
  side->dispatcher_->Freeze();
  for (const int64_t bucket : buckets) {
    for (int set = 0; set < stack.options().input_sets; ++set) {
      KVR_RETURN_IF_ERROR(side->Capture(bucket, set));
    }
  }
  return side;
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

absl::Status DecodeSide::Load(absl::Span<const int64_t> buckets) {
  for (const std::string_view op : kOps) {
    std::vector<Axes> shapes;
    for (const int64_t bucket : buckets) shapes.push_back(stack_.AxesOf(op, bucket));
    KVR_ASSIGN_OR_RETURN(const LoadReport report, dispatcher_->Load(op, shapes));
    for (const LoadItem& item : report.items) {
      const int64_t bucket = item.axes.at("num_tokens");
      if (!item.status.ok()) {
        return WithContext(StrCat(op, " at num_tokens=", bucket), item.status);
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
