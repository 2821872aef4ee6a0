// SPDX-License-Identifier: Apache-2.0
//
// A ledger as a week of work leaves it, seeded: w8 and s3 against the baseline at six batch sizes
// with ship verdicts, A against A, a race of 64 configs with an exhaustive measurement beside it,
// noise bands, failures, a publication, somebody else's table.
//
// Threading: one caller.
#pragma once

#include <memory>
#include <string>

#include "core/op.h"
#include "tuner/ledger/ledger.h"

namespace kvr::report {

inline constexpr const char* kExampleOp = "sparse_decode";
inline constexpr int kExampleShapes = 6;

ledger::Environment ExampleDevice(const std::string& uuid = "GPU-4f1c2a90");
void FillExample(ledger::Ledger& ledger);

// Axes num_tokens, topk and the constant head_dim; moves num_tokens * topk * head_dim * 2 bytes.
std::unique_ptr<Operation> ExampleOperation();

}  // namespace kvr::report
