// SPDX-License-Identifier: Apache-2.0
#include "examples/serve/check.h"

#include "core/config.h"
#include "core/status.h"
#include "core/strings.h"

namespace serve {
namespace {

// What serves the op now: "w8 {BLOCK_H=16,...}", several if buckets differ.
std::string ServedText(const kvr::Runtime& runtime) {
  std::vector<std::string> names;
  for (const kvr::ServedInfo& served : runtime.served()) {
    if (served.op != kOp) continue;
    std::string name = kvr::StrCat(served.variant, " {", kvr::ConfigText(served.config), "}");
    if (names.empty() || names.back() != name) names.push_back(std::move(name));
  }
  return kvr::StrJoin(names, " | ");
}

}  // namespace

absl::Status Expected::Learn() {
  const kvr::Fingerprint generation = runtime_.generation()->digest();
  for (const int64_t bucket : model_.options().buckets) {
    for (int set = 0; set < model_.options().input_sets; ++set) {
      KVR_RETURN_IF_ERROR(Learn(generation, bucket, set).status());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<const Expected::Bits*> Expected::Learn(const kvr::Fingerprint& generation,
                                                      int64_t bucket, int input_set) {
  Known& known = known_[generation.Hex()];
  const auto found = known.bits.find({bucket, input_set});
  if (found != known.bits.end()) return &found->second;
  const auto current = [&] { return runtime_.generation()->digest() == generation; };
  const absl::Status gone = absl::UnavailableError("another generation serves by now");
  if (!current()) return gone;
  KVR_RETURN_IF_ERROR(model_.Stage(bucket, input_set));
  KVR_RETURN_IF_ERROR(model_.LaunchEagerly(bucket));
  const std::string name = ServedText(runtime_);
  KVR_ASSIGN_OR_RETURN(Bits bits, model_.Outputs(bucket));
  if (!current()) return gone;
  known.name = name;
  return &(known.bits[{bucket, input_set}] = std::move(bits));
}

absl::StatusOr<std::string> Expected::Check(const kvr::Fingerprint& generation, int64_t bucket,
                                            int input_set) {
  KVR_ASSIGN_OR_RETURN(const Bits got, model_.Outputs(bucket));
  KVR_ASSIGN_OR_RETURN(const Bits* wanted, Learn(generation, bucket, input_set));
  if (got == *wanted) return "";
  return Describe(got, known_.at(generation.Hex()), bucket, input_set);
}

std::string Expected::Describe(const Bits& got, const Known& wanted, int64_t bucket,
                               int input_set) const {
  const Bits& bits = wanted.bits.at({bucket, input_set});
  size_t wrong = 0;
  while (got[wrong] == bits[wrong]) ++wrong;
  std::string text =
      kvr::StrCat("bucket ", bucket, ", input set ", input_set, ": layer ", wrong / 2,
                  wrong % 2 == 0 ? "'s output" : "'s lse", " is not that of ", wanted.name);
  for (const auto& [digest, other] : known_) {
    const auto found = other.bits.find({bucket, input_set});
    if (found == other.bits.end() || found->second != got) continue;
    return kvr::StrCat(text, ": ", other.name, " ran");
  }
  return kvr::StrCat(text, ", nor do all layers' bits come from any one of ", known_.size(),
                     " known generations");
}

int Expected::pairs() const {
  const auto count = static_cast<int>(known_.size());
  return count * (count - 1) / 2;
}

int Expected::pairs_told_apart() const {
  int apart = 0;
  for (auto a = known_.begin(); a != known_.end(); ++a) {
    for (auto b = std::next(a); b != known_.end(); ++b) {
      for (const auto& [key, bits] : a->second.bits) {
        const auto found = b->second.bits.find(key);
        if (found == b->second.bits.end() || found->second == bits) continue;
        ++apart;
        break;
      }
    }
  }
  return apart;
}

}  // namespace serve
