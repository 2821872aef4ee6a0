// SPDX-License-Identifier: Apache-2.0
#include "cli/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cli/command.h"
#include "cli/table.h"
#include "core/strings.h"

namespace kvr::cli {
namespace {

constexpr int kBarCells = 24, kLeastBarCells = 8;
constexpr int kFallbackWidth = 80;
constexpr absl::Duration kRedraw = absl::Milliseconds(50);
constexpr absl::Duration kPlainLine = absl::Seconds(5);

std::atomic<bool> interrupted{false};
std::atomic<bool> line_open{false};  // a bar is drawn
constexpr int kNoPhase = -1;
std::atomic<int> phase{kNoPhase};

void Say(std::string_view text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

// Only what a signal handler may call.
extern "C" void OnInterrupt(int) {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  interrupted.store(true);
  Say(line_open.load() ? "\nkvr: interrupted: waiting for this step "
                       : "kvr: interrupted: waiting for this step ");
  if (const int at = phase.load(); at != kNoPhase) {
    Say("of ");
    Say(PhaseName(static_cast<Phase>(at)));
    Say(" ");
  }
  Say("to end; again to stop now\n");
}

int ErrorWidth() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kFallbackWidth;
  return size.ws_col;
}

// "measure 3/12"; "measure" while nobody knows how many there are.
std::string StepText(const ProgressUpdate& update) {
  const std::string phase_name(PhaseName(update.phase));
  return update.total > 0 ? StrCat(phase_name, " ", update.done, "/", update.total) : phase_name;
}

}  // namespace

std::string BarText(const ProgressUpdate& update, int width) {
  const std::string head = "] " + StepText(update);
  const std::string tail =
      update.eta_seconds >= 0 ? absl::StrFormat("  %.0f s left", update.eta_seconds) : "";
  std::string current = update.current.empty() ? "" : "  " + update.current;
  // What is being done says more than the bar.
  const int spare = width - 1 - static_cast<int>(head.size() + current.size() + tail.size());
  const int cells = std::clamp(spare, kLeastBarCells, kBarCells);
  const int filled =
      update.total > 0 ? static_cast<int>(int64_t{cells} * update.done / update.total) : 0;
  const std::string bar = StrCat("[", std::string(static_cast<size_t>(filled), '#'),
                                 std::string(static_cast<size_t>(cells - filled), '.'), head);
  const int room = width - static_cast<int>(bar.size() + tail.size());
  if (static_cast<int>(current.size()) > room) {
    constexpr int kEllipsis = 3;
    current =
        room > kEllipsis ? current.substr(0, static_cast<size_t>(room - kEllipsis)) + "..." : "";
  }
  return bar + current + tail;
}

ProgressBar::ProgressBar(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() { Wipe(); }

void ProgressBar::Wipe() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  drawn_ = false;
  line_open = false;
}

void ProgressBar::Update(const ProgressUpdate& update) {
  phase = static_cast<int>(update.phase);
  if (quiet_) return;
  const bool new_phase = !any_ || update.phase != last_phase_;
  const bool last = update.total > 0 && update.done == update.total;
  const absl::Time now = absl::Now();
  if (!new_phase && !last && now - last_ < (terminal_ ? kRedraw : kPlainLine)) return;
  any_ = true;
  last_phase_ = update.phase;
  last_ = now;
  if (!terminal_) {
    // What is measured changes with every look; what is compiled or verified is one of many.
    const std::string what = update.phase == Phase::kMeasure && !update.current.empty()
                                 ? "  " + update.current
                                 : std::string();
    std::fprintf(stderr, "%s%s\n", StepText(update).c_str(), what.c_str());
    return;
  }
  Wipe();
  std::fputs(BarText(update, ErrorWidth() - 1).c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
  line_open = true;
}

void ProgressBar::Note(std::string_view line) {
  Wipe();
  const std::string shown = Shown(line);  // it may quote what a plugin said
  const bool wrapped = terminal_ && shown.find('\n') == std::string::npos;
  std::fputs((wrapped ? Wrap(shown, ErrorWidth(), 0) : shown + "\n").c_str(), stderr);
}

const std::atomic<bool>* CancelOnInterrupt() {
  std::signal(SIGINT, OnInterrupt);
  std::signal(SIGTERM, OnInterrupt);  // timeout(1)
  return &interrupted;
}

}  // namespace kvr::cli
