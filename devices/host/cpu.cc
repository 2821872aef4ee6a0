// SPDX-License-Identifier: Apache-2.0
#include "devices/host/cpu.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/fingerprint.h"

namespace kvr::host {

const std::string& CpuId() {
  static const std::string id = [] {
    std::vector<std::string> features;
    for (const auto& feature : llvm::sys::getHostCPUFeatures()) {
      features.push_back((feature.second ? "+" : "-") + feature.first().str());
    }
    std::sort(features.begin(), features.end());
    return absl::StrCat(llvm::sys::getHostCPUName().str(), "/",
                        FingerprintOf(absl::StrJoin(features, ",")).Short());
  }();
  return id;
}

}  // namespace kvr::host
