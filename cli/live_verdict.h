// SPDX-License-Identifier: Apache-2.0
//
// How a verdict of tuner/live_ab.h is told: as data, as a table with its remarks, and as an exit
// code. What `kvr ab --live` and `kvr bench decode --ab` share.
//
// Threading: the CLI's own thread only.
#pragma once

#include <string>

#include "cli/command.h"
#include "tuner/live_ab.h"

namespace kvr::cli {

Json LiveBucketsJson(const LiveVerdict& verdict);
// "SHIP" where it says so, else the verdict's name.
std::string LiveAnswer(const LiveVerdict& verdict);
// `bucket`: what its column is called.
void PrintLiveBuckets(const LiveVerdict& verdict, bool ship, const char* bucket);

// The exit code that tells a verdict.
int CodeOf(stats::Verdict verdict);

}  // namespace kvr::cli
