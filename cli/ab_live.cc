// SPDX-License-Identifier: Apache-2.0
#include "cli/ab_live.h"

#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cli/live.h"
#include "cli/live_verdict.h"
#include "cli/progress_bar.h"
#include "cli/table.h"
#include "cli/work.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr::cli {
namespace {

constexpr absl::Duration kTellEvery = absl::Seconds(5);

absl::StatusOr<LiveBlock> BlockOf(const LiveJson& event, int expected) {
  LiveBlock block;
  block.number = static_cast<int>(NumberOf(event, "block"));
  block.side = TextOf(event, "side") == "b" ? 1 : 0;
  block.steps = static_cast<int>(NumberOf(event, "steps"));
  block.errors = static_cast<int>(NumberOf(event, "errors"));
  block.not_applied = static_cast<int>(NumberOf(event, "not_applied"));
  const LiveJson& buckets = PartOf(event, "us");
  if (block.number != expected || !buckets.is_object()) {
    return Error(absl::StatusCode::kInternal,
                 StrCat("the program told of block ", block.number, " where block ", expected,
                        " was to come"),
                 "use kvr of the version that the program is built with");
  }
  for (const auto& [name, times] : buckets.items()) {
    std::vector<double>& us = block.us[name];
    for (const LiveJson& time : times) us.push_back(time.is_number() ? time.get<double>() : NAN);
  }
  return block;
}

// What the program says besides the blocks.
struct Course {
  std::string a, b;  // digests
  uint64_t seed = 0;
  LiveJson end;
};

Json ToJson(const AbLiveOptions& options, const LiveVerdict& verdict, const Course& course) {
  return {{"socket", options.socket},
          {"a", {{"name", options.a}, {"digest", course.a}}},
          {"b", {{"name", options.b}, {"digest", course.b}}},
          {"kind", options.rules.ship ? "ship" : "quick"},
          {"block", options.block},
          {"warmup", options.warmup},
          {"seed", course.seed},
          {"buckets", LiveBucketsJson(verdict)},
          {"verdict", LiveAnswer(verdict)},
          {"ship", verdict.ship},
          {"reason", verdict.reason},
          {"conclusion", LiveConclusion(verdict, options.rules.ship)},
          {"rounds", verdict.rounds},
          {"steps", verdict.steps},
          {"errors", verdict.errors},
          {"not_applied", verdict.not_applied},
          {"seconds", NumberOf(course.end, "seconds")},
          {"ended", TextOf(course.end, "reason")},
          {"restored", FlagOf(course.end, "restored")},
          {"serving", TextOf(course.end, "serving")}};
}

void PrintText(const AbLiveOptions& options, const LiveVerdict& verdict, const Course& course) {
  Print(Wrap(StrCat("B ", options.b, " (", ShortDigest(course.b), ") against A ", options.a, " (",
                    ShortDigest(course.a), ") in the program on ", options.socket),
             TerminalWidth(), 0));
  PrintLiveBuckets(verdict, options.rules.ship, "bucket");
  Print(Wrap(absl::StrFormat("%d rounds of four blocks of %d steps; %d steps of A and %d of B "
                             "count, %d errors; %.1f s; %s serves %s",
                             verdict.rounds, options.block, verdict.steps[0], verdict.steps[1],
                             verdict.errors[0] + verdict.errors[1], NumberOf(course.end, "seconds"),
                             ShortDigest(TextOf(course.end, "serving")),
                             FlagOf(course.end, "restored") ? "again" : "now"),
             TerminalWidth(), 0));
  Print("\n" + Wrap(LiveConclusion(verdict, options.rules.ship), TerminalWidth(), 0));
}

}  // namespace

absl::StatusOr<int> RunAbLive(const GlobalOptions& global, const AbLiveOptions& options) {
  LiveRequest request;
  request.command = LiveRequest::Command::kAb;
  KVR_ASSIGN_OR_RETURN(request.ab.a, ParseLiveTarget(options.a));
  KVR_ASSIGN_OR_RETURN(request.ab.b, ParseLiveTarget(options.b));
  request.ab.block = options.block;
  request.ab.warmup = options.warmup;
  request.ab.seconds = options.seconds;
  request.ab.seed = options.seed;
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<LiveClient> client, LiveClient::Connect(options.socket));

  LiveComparison comparison(options.rules);
  Course course;
  absl::Status broken;
  int blocks = 0;
  absl::Time told = absl::Now();
  const auto tell = [&](const std::string& what) {
    if (!global.json) std::fprintf(stderr, "kvr: %s\n", Shown(what).c_str());
  };
  LiveCall call;
  call.cancel = CancelOnInterrupt();
  call.patience = absl::Hours(1);  // a build, or a program that has nothing to do for a while
  call.each = [&](const LiveJson& event) {
    const std::string kind = TextOf(event, "event");
    if (kind == "progress") {
      const std::string note = TextOf(event, "note");
      tell(!note.empty()
               ? note
               : StrCat(TextOf(event, "side"), ": ", TextOf(PartOf(event, "swap"), "step")));
    } else if (kind == "started") {
      course.a = TextOf(event, "a");
      course.b = TextOf(event, "b");
      const LiveJson& seed = PartOf(event, "seed");
      course.seed = seed.is_number_unsigned() ? seed.get<uint64_t>() : 0;
      tell("the program alternates");
    } else if (kind == "block" && broken.ok() && !comparison.done()) {
      const absl::StatusOr<LiveBlock> block = BlockOf(event, blocks++);
      broken = block.status();
      if (block.ok()) comparison.Add(*block);
      if (absl::Now() - told >= kTellEvery) {
        told = absl::Now();
        tell(Count(static_cast<size_t>(comparison.rounds()), "round"));
      }
    }
    return broken.ok() && !comparison.done();
  };
  KVR_ASSIGN_OR_RETURN(course.end, client->Call(request, call));
  KVR_RETURN_IF_ERROR(broken);
  const LiveVerdict verdict = comparison.Judge();
  if (global.json) {
    PrintJson(ToJson(options, verdict, course));
  } else {
    PrintText(options, verdict, course);
  }
  if (const LiveJson& error = PartOf(course.end, "error"); error.is_object()) {
    if (!global.json) PrintError(LiveErrorOf(error), false);
    return kFailed;
  }
  if (call.cancel->load()) return Interrupted();
  return CodeOf(verdict.verdict);
}

}  // namespace kvr::cli
