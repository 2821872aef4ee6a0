// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/variants/world.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "tests/conformance/variants/edges.h"

namespace kvr {
namespace {

constexpr unsigned kSeconds = 1200;  // what hangs, and no machine that is slow

// Read by the signal handler. Written by one thread; another that reads half of it loses little.
std::array<char, 1024> current_place;

std::unique_ptr<Device> OpenKind(std::string_view kind) {
  for (const std::string& name : ThePlatform().DeviceNames()) {
    if (name.substr(0, kind.size()) != kind) continue;
    absl::StatusOr<std::unique_ptr<Device>> device = ThePlatform().OpenDevice(name);
    if (device.ok()) return *std::move(device);
    std::cout << name << " does not open: " << What(device.status()) << std::endl;
  }
  return nullptr;
}

// Never closed: subjects hold it, and a GPU's context may be broken at the end.
Device* DeviceOf(std::string_view kind) {
  static auto* const devices = new std::map<std::string, Device*, std::less<>>;
  const auto found = devices->find(kind);
  if (found != devices->end()) return found->second;
  return devices->emplace(kind, OpenKind(kind).release()).first->second;
}

void Write(std::string_view text) {
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) _exit(3);
}

void OnFatalSignal(int number) {
  const char* const what = number == SIGALRM   ? "it takes longer than twenty minutes"
                           : number == SIGABRT ? "the process aborts"
                           : number == SIGILL || number == SIGTRAP
                               ? "a trap ended the process"
                               : "an illegal access ended the process";
  Write("\nFAILED: ");
  Write({current_place.data(), strnlen(current_place.data(), current_place.size())});
  Write(": ");
  Write(what);
  Write("\n");
  _exit(2);
}

}  // namespace

Platform& ThePlatform() {
  static Platform* const platform = [] {
    absl::StatusOr<std::unique_ptr<Platform>> opened = Platform::Open({});
    if (!opened.ok()) {
      std::cerr << opened.status() << std::endl;
      std::exit(1);
    }
    return opened->release();
  }();
  return *platform;
}

void PrintTo(const VariantSubject& subject, std::ostream* out) {
  *out << subject.op->name() << "/" << subject.variant->name;
}

std::vector<VariantSubject> AllVariants() {
  std::vector<VariantSubject> subjects;
  for (const auto& op : ThePlatform().catalog().ops()) {
    for (const VariantPtr& variant : op->variants) subjects.push_back({op.get(), variant, nullptr});
  }
  return subjects;
}

std::vector<VariantSubject> SubjectsOn(std::string_view kind) {
  Device* const device = DeviceOf(kind);
  if (device == nullptr) return {};
  std::vector<VariantSubject> subjects = AllVariants();
  for (VariantSubject& subject : subjects) subject.device = device;
  return subjects;
}

std::string VariantSubjectName(const testing::TestParamInfo<VariantSubject>& info) {
  return StrCat(info.param.op->name(), "__", info.param.variant->name);
}

absl::StatusOr<PreparedPtr> PrepareOn(const VariantSubject& subject, const Config& config) {
  const std::string& target = subject.device->info().target;
  KVR_ASSIGN_OR_RETURN(Built built,
                       ThePlatform().jit().Build(subject.spec(), *subject.variant, config, target));
  return Prepare(*subject.device, subject.spec(), subject.variant, config, built.binary);
}

absl::StatusOr<InputSetPtr> InputsOf(const Operation& op, const AxisVector& axes, uint64_t seed) {
  static auto* const sets =
      new std::map<std::tuple<std::string, AxisVector, uint64_t>, InputSetPtr>;
  InputSetPtr& set = (*sets)[{op.spec().name, axes, seed}];
  if (set == nullptr) {
    KVR_ASSIGN_OR_RETURN(set, InputSets(/*threads=*/0).Get(op, axes, seed));
  }
  return set;
}

Place::Place(const VariantSubject& subject, const Config& config, const AxisVector& axes,
             const Device& device)
    : text_(StrCat(subject.op->name(), "/", subject.variant->name, " {", ConfigText(config),
                   "} at ", ShapeText(subject.spec(), axes), " on ", device.info().kind)) {
  const size_t size = std::min(text_.size(), current_place.size() - 1);
  std::memcpy(current_place.data(), text_.data(), size);
  current_place[size] = '\0';
  alarm(kSeconds);
}

Place::~Place() {
  alarm(0);
  current_place[0] = '\0';
}

void ReportFatalSignals() {
  // On a stack of its own: what overflowed may be the thread's.
  static std::array<char, 64 << 10> stack;
  stack_t alternate = {};
  alternate.ss_sp = stack.data();
  alternate.ss_size = stack.size();
  sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_handler = &OnFatalSignal;
  action.sa_flags = SA_ONSTACK | SA_RESETHAND;
  for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGALRM}) {
    sigaction(number, &action, nullptr);
  }
}

}  // namespace kvr
