#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing, builds, and runs every test that this machine can run.
#
#   scripts/test.sh [PRESET]     release (default), debug, asan or tsan
#
# asan is AddressSanitizer with UndefinedBehaviorSanitizer. Both sanitizers' builds leave the host
# device out: Clang is not instrumented, and its fibers change stacks under the sanitizer's feet.
# tsan first builds Abseil, from Debian's source package.
#
# KVR_NO_CUDA, KVR_NO_SYSTEM_CUDA and KVR_JOBS as in scripts/setup.sh.

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

preset="${1:-release}"
kvr_setup
options=()
if [[ "$preset" == tsan ]]; then
  kvr_abseil "-fsanitize=thread -O1"
  options=("-Dabsl_DIR=$KVR_ABSEIL/installed/lib/cmake/absl")
fi
kvr_build "$preset" -DKVR_TESTS=ON ${options[@]+"${options[@]}"}

# Tests neither read nor fill the caches of the person who runs them.
KVR_CACHE_DIR="$(mktemp -d)"
export KVR_CACHE_DIR
trap 'rm -rf "$KVR_CACHE_DIR"' EXIT

# What a sanitizer finds ends the test, with a stack.
export ASAN_OPTIONS="${ASAN_OPTIONS-detect_stack_use_after_return=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS-print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS-halt_on_error=1 second_deadlock_stack=1 suppressions=$PWD/tests/tsan.suppressions}"

exclude=()
if [[ -z "$KVR_GPU" ]]; then
  exclude=(-LE '^gpu$')
  left_out="$(ctest --test-dir "build/$preset" -N -L '^gpu$' | sed -n 's/^Total Tests: //p')"
  kvr_line skipped "${left_out:-0} tests labelled gpu: $KVR_NO_GPU_REASON"
fi
if [[ -z "$KVR_CUDA" ]]; then
  kvr_line skipped "what needs a CUDA compiler: there is none; such tests say so below"
fi
ctest --test-dir "build/$preset" --output-on-failure -j2 ${exclude[@]+"${exclude[@]}"} </dev/null
