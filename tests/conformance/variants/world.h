// SPDX-License-Identifier: Apache-2.0
//
// What there is to test here: every variant that the catalog finds (built-in, or in a directory of
// KVR_PLUGIN_PATH) on every kind of device that opens, with inputs and references made once a
// shape.
//
// Threading: the main thread, but for Place.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "api/platform.h"
#include "core/device.h"
#include "core/op.h"
#include "core/variant.h"
#include "registry/catalog.h"
#include "registry/prepared.h"
#include "tuner/worker/inputs.h"

namespace kvr {

// Opened once; the process ends where that fails.
Platform& ThePlatform();

struct VariantSubject {
  const Catalog::Op* op = nullptr;
  VariantPtr variant;
  Device* device = nullptr;  // null: not to be launched

  const OpSpec& spec() const { return op->spec(); }
};
void PrintTo(const VariantSubject& subject, std::ostream* out);

// `kind`: "host" or "cuda" (the first GPU; others are of the same kind). Empty where there is none.
std::vector<VariantSubject> SubjectsOn(std::string_view kind);
std::vector<VariantSubject> AllVariants();  // without a device
std::string VariantSubjectName(const testing::TestParamInfo<VariantSubject>& info);

// Compiled, loaded. kUnimplemented: the variant is not for this device, and why.
absl::StatusOr<PreparedPtr> PrepareOn(const VariantSubject& subject, const Config& config);

// Kept for the life of the process. An error is the op's fault: its constraints allow the shape.
absl::StatusOr<InputSetPtr> InputsOf(const Operation& op, const AxisVector& axes, uint64_t seed);

// "mla_sparse_decode/w8 {BLOCK_H=16} at num_tokens=3 on host", the start of every failure; what is
// launched there now, should the process end in the middle of it.
class Place {
 public:
  Place(const VariantSubject& subject, const Config& config, const AxisVector& axes,
        const Device& device);
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// From here on a fatal signal, or a Place that lasts longer than twenty minutes, is a line that
// names the last Place.
void ReportFatalSignals();

}  // namespace kvr
