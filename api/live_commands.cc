// SPDX-License-Identifier: Apache-2.0
#include "api/live_commands.h"

#include <errno.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/time/clock.h"
#include "api/live_status.h"
#include "api/platform.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(50);
constexpr absl::Duration kIdleNote = absl::Seconds(10);

LiveJson Line(const char* event) { return {{"event", event}}; }

bool Ended(const SwapResult& result) {
  return result.state != SwapResult::State::kWaiting && result.state != SwapResult::State::kRunning;
}

absl::Status NoSwapper() {
  return Error(absl::StatusCode::kUnimplemented, "the program was started without a swapper",
               "give Live::Start one; without it there is rollback, and nothing is built");
}

}  // namespace

LiveCommands::LiveCommands(Runtime& runtime, Swapper* swapper, std::string name)
    : runtime_(runtime),
      swapper_(swapper),
      name_(name.empty() ? program_invocation_short_name : std::move(name)),
      started_(absl::Now()),
      alternation_(runtime) {}

absl::Status LiveCommands::Handle(const LiveRequest& request, LiveTalk& talk) {
  switch (request.command) {
    case LiveRequest::Command::kStatus:
      return Status(request.selections, talk);
    case LiveRequest::Command::kSwap:
    case LiveRequest::Command::kRollback:
      return Swap(request, talk);
    case LiveRequest::Command::kAb:
      return Ab(request.ab, talk);
    case LiveRequest::Command::kForget:
      runtime_.platform().jit().Reload();
      talk.Send(Line("result"));
      return absl::OkStatus();
    case LiveRequest::Command::kStop:
      break;
  }
  return Error(absl::StatusCode::kFailedPrecondition, "there is no live A/B of this client to stop",
               "send stop on the connection that runs it");
}

absl::Status LiveCommands::Status(bool selections, LiveTalk& talk) {
  LiveProgram program{name_, absl::ToDoubleSeconds(absl::Now() - started_), ""};
  {
    const std::lock_guard<std::mutex> lock(control_);
    program.live_ab = live_ab_;
  }
  LiveJson event = Line("result");
  event.update(LiveStatusJson(runtime_, swapper_, steps_, program, selections));
  talk.Send(event);
  return absl::OkStatus();
}

absl::Status LiveCommands::Swap(const LiveRequest& request, LiveTalk& talk) {
  const bool rollback = request.command == LiveRequest::Command::kRollback;
  uint64_t id = 0;
  {
    const std::lock_guard<std::mutex> lock(control_);
    if (!live_ab_.empty()) {
      return Error(absl::StatusCode::kFailedPrecondition, StrCat("a live A/B runs: ", live_ab_),
                   "wait until it has ended, or end it");
    }
    if (swapper_ == nullptr && !rollback) return NoSwapper();
    if (swapper_ != nullptr) {
      id = swapper_->Request(ToSwapRequest(request, talk.who()));
    } else {
      ++rollbacks_;
    }
  }
  if (swapper_ == nullptr) {
    const absl::Status status = RollBackHere(request.target.digest, talk);
    const std::lock_guard<std::mutex> lock(control_);
    --rollbacks_;
    return status;
  }
  LiveJson event = Line("result");
  if (!request.wait) {
    event["swap"] = {{"id", id}, {"state", "waiting"}};
  } else {
    SwapResult result;
    KVR_RETURN_IF_ERROR(Follow(id, talk, LiveJson::object(), &result));
    event["swap"] = SwapJson(result);
  }
  talk.Send(event);
  return absl::OkStatus();
}

// Without a swapper: what was asked for is there already, and is published here.
absl::Status LiveCommands::RollBackHere(const std::string& digest, LiveTalk& talk) {
  PublicationRecord why;
  why.trigger = "rollback";
  why.who = talk.who();
  SwapResult result;
  result.step = "publish";
  result.before = runtime_.generation()->digest().Hex();
  const absl::Time start = absl::Now();
  KVR_ASSIGN_OR_RETURN(
      const LoadReport report,
      runtime_.Rollback(digest == "previous" ? std::string() : digest, std::move(why)));
  result.publish_ms = absl::ToDoubleMilliseconds(absl::Now() - start);
  result.state = report.unchanged ? SwapResult::State::kUnchanged : SwapResult::State::kPublished;
  result.after = runtime_.generation()->digest().Hex();
  LiveJson event = Line("result");
  event["swap"] = SwapJson(result);
  talk.Send(event);
  return absl::OkStatus();
}

// Tells of each step until the swap has ended, which it does whether or not the client stays.
absl::Status LiveCommands::Follow(uint64_t id, LiveTalk& talk, const LiveJson& about,
                                  SwapResult* result) {
  std::string told;
  bool first = true;
  do {
    const std::vector<SwapResult> recent = swapper_->recent();
    const auto found = std::find_if(recent.begin(), recent.end(),
                                    [&](const SwapResult& swap) { return swap.id == id; });
    if (found == recent.end()) {
      return Error(absl::StatusCode::kNotFound, StrCat("swap ", id, " is too long ago"),
                   "see `kvr status` and the journal");
    }
    *result = *found;
    if (Ended(*result)) return absl::OkStatus();
    // Every one waits for a moment; one that still does waits for another.
    if (std::exchange(first, false) && result->state == SwapResult::State::kWaiting) continue;
    LiveJson event = Line("progress");
    event.update(about);
    event["swap"] = SwapJson(*result);
    const std::string now =
        StrCat(result->step, static_cast<int>(result->state));  // nothing else changes meanwhile
    if (now != told && talk.Send(event)) told = now;
  } while (talk.Going(kLook));
  return Error(absl::StatusCode::kCancelled, "the client is gone, or the program ends",
               "see `kvr status` for how the swap went");
}

absl::Status LiveCommands::Begin(std::string what) {
  const std::lock_guard<std::mutex> lock(control_);
  if (!live_ab_.empty()) {
    return Error(absl::StatusCode::kFailedPrecondition, StrCat("a live A/B runs: ", live_ab_),
                 "wait until it has ended, or end it");
  }
  if (swapper_ != nullptr) {
    for (const SwapResult& swap : swapper_->recent()) {
      if (Ended(swap)) continue;
      return Error(absl::StatusCode::kFailedPrecondition, StrCat("swap ", swap.id, " is at work"),
                   "wait until it has ended");
    }
  }
  if (rollbacks_ > 0) {
    return Error(absl::StatusCode::kFailedPrecondition, "a rollback is at work",
                 "try again in a moment");
  }
  live_ab_ = std::move(what);
  return absl::OkStatus();
}

absl::Status LiveCommands::Ab(const LiveAbRequest& request, LiveTalk& talk) {
  KVR_RETURN_IF_ERROR(Begin(StrCat(LiveTargetText(request.a), " against ",
                                   LiveTargetText(request.b), " by ", talk.who())));
  const Fingerprint found = runtime_.generation()->digest();
  std::vector<Fingerprint> served = {found};  // newest first
  for (const GenerationPtr& older : runtime_.history()) served.push_back(older->digest());
  AlternationPlan plan;
  plan.block = request.block;
  plan.warmup = request.warmup;
  plan.who = talk.who();
  plan.seed = request.seed != 0 ? request.seed : std::random_device()() | uint64_t{1};

  absl::Status status;
  const LiveTarget* targets[] = {&request.a, &request.b};
  const char* names[] = {"a", "b"};
  for (int side = 0; side < 2 && status.ok(); ++side) {
    plan.sides[side] = found;
    status = Prepare(*targets[side], names[side], talk, &plan.sides[side]);
  }
  if (status.ok() && swapper_ != nullptr) status = swapper_->Pause();
  if (status.ok()) status = alternation_.Start(plan, found);
  if (status.ok()) return Stream(request, plan, served, talk);
  EndAb(served);
  return status;
}

void LiveCommands::EndAb(const std::vector<Fingerprint>& served) {
  runtime_.OrderHistory(served);
  if (swapper_ != nullptr) swapper_->Resume();
  const std::lock_guard<std::mutex> lock(control_);
  live_ab_.clear();
}

absl::Status LiveCommands::Restore(const Fingerprint& found, const Fingerprint& prepared,
                                   const std::string& who) {
  PublicationRecord why;
  why.trigger = "live-ab";
  why.who = who;
  why.reason = "what served before the live A/B was prepared";
  why.quiet = true;
  why.only_over = prepared.Hex();
  return runtime_.Rollback(found.Hex(), std::move(why)).status();
}

// `*digest`: of a generation that can be had at once; that of what serves, at first. What has to be
// built for it is, and is verified, as for a swap.
absl::Status LiveCommands::Prepare(const LiveTarget& target, const char* side, LiveTalk& talk,
                                   Fingerprint* digest) {
  if (!target.digest.empty()) return FindKept(target.digest, digest);
  if (swapper_ == nullptr) return NoSwapper();
  LiveRequest request;
  request.target = target;
  SwapRequest swap = ToSwapRequest(request, talk.who());
  swap.trigger = "live-ab";
  SwapResult result;
  const uint64_t id = swapper_->Request(std::move(swap));
  const absl::Status followed = Follow(id, talk, {{"side", side}}, &result);
  if (!followed.ok() && !talk.stopping()) {
    // It cannot be called off, and must not serve on.
    absl::StatusOr<SwapResult> ended = swapper_->Wait(id);
    if (ended.ok()) result = *std::move(ended);
  }
  if (result.state == SwapResult::State::kFailed) {
    return WithContext(LiveTargetText(target), result.status);
  }
  if (result.state != SwapResult::State::kPublished) return followed;
  const Fingerprint found = *digest;
  KVR_ASSIGN_OR_RETURN(*digest, Fingerprint::FromHex(result.after));
  // It serves nobody before its turn; and the other side builds on what was found, too.
  const absl::Status restored = Restore(found, *digest, talk.who());
  return followed.ok() ? restored : followed;
}

absl::Status LiveCommands::FindKept(const std::string& name, Fingerprint* digest) {
  const std::vector<GenerationPtr> history = runtime_.history();
  if (name == "current") return absl::OkStatus();
  if (name == "baseline" || name == "previous") {
    *digest = (name == "baseline" ? history.back() : history.front())->digest();
    return absl::OkStatus();
  }
  std::vector<Fingerprint> digests = {*digest};
  for (const GenerationPtr& older : history) digests.push_back(older->digest());
  std::sort(digests.begin(), digests.end());
  digests.erase(std::unique(digests.begin(), digests.end()), digests.end());
  std::erase_if(digests, [&](const Fingerprint& candidate) {
    return name.size() < 8 || candidate.Hex().compare(0, name.size(), name) != 0;
  });
  if (digests.size() != 1) {
    return Error(absl::StatusCode::kNotFound,
                 digests.empty() ? StrCat("no generation ", name, " can be had at once")
                                 : StrCat("several digests begin with ", name),
                 "name 8 digits or more of one that `kvr status` lists, 'current', 'baseline' or "
                 "'previous', or give a selection file");
  }
  *digest = digests.front();
  return absl::OkStatus();
}

absl::Status LiveCommands::Stream(const LiveAbRequest& request, const AlternationPlan& plan,
                                  const std::vector<Fingerprint>& served, LiveTalk& talk) {
  LiveJson event = Line("started");
  event["a"] = plan.sides[0].Hex();
  event["b"] = plan.sides[1].Hex();
  event["seed"] = plan.seed;
  talk.Send(event);
  const absl::Time start = absl::Now();
  const auto send_blocks = [&] {
    for (const AlternationBlock& block : alternation_.Take()) {
      LiveJson line = Line("block");
      line["block"] = block.number;
      line["side"] = block.side == 0 ? "a" : "b";
      line["steps"] = block.steps;
      line["errors"] = block.errors;
      line["not_applied"] = block.not_applied;
      line["us"] = block.us;
      if (!talk.Send(line)) return;
    }
  };
  std::string reason;
  absl::Time stepped = start;
  int64_t steps = 0;
  while (reason.empty() && !alternation_.ended()) {
    if (!talk.Going(kLook)) {
      reason = "the client is gone, or the program ends";
    } else if (talk.Interrupted()) {
      reason = "the client ended it";
    } else if (request.seconds > 0 && absl::Now() - start >= absl::Seconds(request.seconds)) {
      reason = "its time is over";
    }
    send_blocks();
    const int64_t now = alternation_.steps();
    if (std::exchange(steps, now) != now) stepped = absl::Now();
    if (absl::Now() - stepped >= kIdleNote) {
      stepped = absl::Now();
      event = Line("progress");
      event["note"] = StrCat("no step for ", absl::ToInt64Seconds(kIdleNote),
                             " s: the program is idle, or does not call BeginStep and EndStep");
      talk.Send(event);
    }
  }
  const AlternationEnd end = alternation_.Finish(reason);
  send_blocks();
  EndAb(served);  // before the client hears of the end
  event = Line("result");
  event["reason"] = end.reason;
  event["restored"] = end.restored;
  event["serving"] = runtime_.generation()->digest().Hex();
  event["steps"] = end.steps;
  event["seconds"] = absl::ToDoubleSeconds(absl::Now() - start);
  if (!end.status.ok()) {
    event["error"] = LiveErrorJson(end.status);
    event["error"].erase("event");
  }
  talk.Send(event);
  return absl::OkStatus();
}

}  // namespace kvr
