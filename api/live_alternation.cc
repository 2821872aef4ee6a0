// SPDX-License-Identifier: Apache-2.0
#include "api/live_alternation.h"

#include <chrono>
#include <utility>

#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

// A client that does not take its blocks must not fill the memory.
constexpr int64_t kMostWaiting = 4 << 20;  // steps
constexpr size_t kMostBuckets = 64;        // of a block; further ones are "other"
constexpr std::chrono::seconds kStepPatience(1);

}  // namespace

absl::Status Alternation::Start(const AlternationPlan& plan, const Fingerprint& found) {
  const std::lock_guard<std::mutex> lock(mutex_);
  plan_ = plan;
  found_ = found;
  serving_ = found;  // what somebody else has published since is not replaced
  random_.seed(plan.seed);
  leaving_ = false;
  in_step_ = false;
  block_.reset();
  finished_.clear();
  waiting_ = 0;
  end_ = {};
  side_ = SideOf(0);
  if (!Publish(plan_.sides[side_], /*quiet=*/false,
               StrCat("live A/B starts: ", plan.sides[0].Short(), " against ",
                      plan.sides[1].Short(), ", blocks of ", plan.block, " steps"))) {
    return end_.status;
  }
  active_.store(true, std::memory_order_release);
  return absl::OkStatus();
}

// Half of the rounds begin with either side.
int Alternation::SideOf(int block) {
  const int place = block % 4;
  if (place == 0) reversed_ = (random_() & 1) != 0;
  const bool b = place == 1 || place == 2;
  return b != reversed_ ? 1 : 0;
}

bool Alternation::Publish(const Fingerprint& digest, bool quiet, std::string reason) {
  PublicationRecord why;
  why.trigger = "live-ab";
  why.who = plan_.who;
  why.reason = std::move(reason);
  why.quiet = quiet;
  why.only_over = serving_.Hex();
  end_.status = runtime_.Rollback(digest.Hex(), std::move(why)).status();
  if (end_.status.ok()) serving_ = digest;
  return end_.status.ok();
}

void Alternation::Leave(std::string reason) {
  end_.reason = std::move(reason);
  // Refused where somebody else has published: that stays.
  end_.restored = Publish(found_, /*quiet=*/false,
                          StrCat("live A/B ended after ", end_.steps, " steps: ", end_.reason));
  block_.reset();  // cut short, so of no use
  in_step_ = false;
  active_.store(false, std::memory_order_release);
  left_.notify_all();
}

void Alternation::NextBlock() {
  const int number = block_ ? block_->number + 1 : 0;
  if (block_) {
    if (runtime_.generation()->digest() != serving_) {
      return Leave("somebody else published a generation");
    }
    waiting_ += block_->steps;
    finished_.push_back(*std::exchange(block_, std::nullopt));
    if (waiting_ > kMostWaiting) return Leave("the client does not read");
    side_ = SideOf(number);
    if (plan_.sides[side_] != serving_ && !Publish(plan_.sides[side_], /*quiet=*/true, "")) {
      const absl::Status failed = end_.status;
      Leave(absl::IsAborted(failed)
                ? "somebody else published a generation"
                : StrCat("a generation could not be published: ", What(failed)));
      if (end_.restored) end_.status = failed;
      return;
    }
  }
  block_.emplace();
  block_->number = number;
  block_->side = side_;
  seen_.clear();
}

void Alternation::Begin() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!active_.load(std::memory_order_relaxed)) return;
  in_step_ = false;  // an EndStep that never came
  if (leaving_) return Leave(leaving_why_);
  if (!block_ || block_->steps >= plan_.block) NextBlock();
  in_step_ = block_.has_value();
  tainted_ = false;
}

void Alternation::End(std::string_view bucket, double microseconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!std::exchange(in_step_, false)) return;
  ++block_->steps;
  ++end_.steps;
  auto seen = seen_.find(bucket);
  if (seen == seen_.end()) {
    seen = seen_.emplace(seen_.size() < kMostBuckets ? std::string(bucket) : "other", 0).first;
  }
  if (seen->second++ < plan_.warmup) return;
  if (tainted_) {
    ++block_->not_applied;
  } else {
    block_->us[seen->first].push_back(microseconds);
  }
}

void Alternation::CountError() {
  if (!active_.load(std::memory_order_acquire)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (block_) ++block_->errors;
}

void Alternation::CountApplied(const Applied& applied) {
  if (!active_.load(std::memory_order_acquire)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  tainted_ |= applied.outcome == Applied::kNeedsRecapture ||
              (applied.digest != Fingerprint{} && applied.digest != serving_);
}

std::vector<AlternationBlock> Alternation::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  waiting_ = 0;
  return std::exchange(finished_, {});
}

int64_t Alternation::steps() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return end_.steps;
}

bool Alternation::ended() const { return !active_.load(std::memory_order_acquire); }

AlternationEnd Alternation::Finish(std::string_view reason) {
  std::unique_lock<std::mutex> lock(mutex_);
  leaving_ = true;
  leaving_why_ = reason;
  const auto done = [this] { return !active_.load(std::memory_order_relaxed); };
  // A loop that has nothing to serve begins no step.
  if (!left_.wait_for(lock, kStepPatience, done)) Leave(leaving_why_);
  return end_;
}

}  // namespace kvr
