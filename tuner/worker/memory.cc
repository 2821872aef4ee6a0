// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "tuner/compare.h"

namespace kvr {
namespace {

constexpr int64_t kAlign = 256;
int64_t AlignUp(int64_t value) { return (value + kAlign - 1) / kAlign * kAlign; }

std::string Mebibytes(int64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Arena>> Arena::Create(Device& device, MemoryBudget& budget,
                                                     absl::Span<const int64_t> sizes,
                                                     int64_t fence) {
  std::unique_ptr<Arena> arena(new Arena(device, budget));
  arena->fence_ = fence;
  int64_t end = fence;
  for (int64_t size : sizes) {
    arena->sizes_.push_back(size);
    arena->offsets_.push_back(end);
    end = AlignUp(end + size) + fence;
  }
  const int64_t bytes = std::max(end, kAlign);
  if (budget.limit > 0 && budget.used + bytes > budget.limit) {
    return Error(
        absl::StatusCode::kResourceExhausted,
        absl::StrCat("insufficient memory: needs ", Mebibytes(bytes), " beside ",
                     Mebibytes(budget.used), " in use, --memory allows ", Mebibytes(budget.limit)),
        "raise --memory or choose smaller axes");
  }
  absl::StatusOr<void*> memory = device.Allocate(bytes);
  if (!memory.ok()) {
    return Error(absl::StatusCode::kResourceExhausted,
                 absl::StrCat("insufficient memory: ", Mebibytes(bytes), " on ", device.info().name,
                              ": ", std::string(What(memory.status()))),
                 "free memory on the device or choose smaller axes");
  }
  arena->base_ = static_cast<char*>(*memory);
  arena->bytes_ = bytes;
  budget.used += bytes;
  return arena;
}

Arena::~Arena() {
  if (base_ == nullptr) return;
  device_.Free(base_);
  budget_.used -= bytes_;
}

absl::Status Arena::FillAll(Stream stream) {
  return device_.MemsetAsync(base_, kCanaryByte, bytes_, stream);
}

absl::StatusOr<std::string> Arena::CheckFences(Stream stream,
                                               absl::Span<const std::string> names) const {
  std::vector<uint8_t> bytes;
  int64_t begin = 0;  // of the fence before buffer i
  for (size_t i = 0; i <= sizes_.size(); ++i) {
    const int64_t end = i < sizes_.size() ? offsets_[i] : bytes_;
    bytes.resize(end - begin);
    if (!bytes.empty()) {
      KVR_RETURN_IF_ERROR(device_.CopyToHost(bytes.data(), base_ + begin, end - begin, stream));
      KVR_RETURN_IF_ERROR(device_.Synchronize(stream));
    }
    if (const int64_t at = FindBrokenCanary(bytes); at >= 0) {
      const bool after = i > 0 && (i == sizes_.size() || at < (end - begin) / 2);
      return after ? absl::StrCat(at + 1, " bytes past the end of ", names[i - 1])
                   : absl::StrCat(end - begin - at, " bytes before the start of ", names[i]);
    }
    if (i < sizes_.size()) begin = offsets_[i] + sizes_[i];
  }
  return std::string();
}

}  // namespace kvr
