#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests that lie beside this script, on a machine with nothing else of KVR: those that
# need a GPU, and one inside PyTorch where python3 finds that. Each one's output goes to
# OUT/NAME.log, a line for each to standard output.
#
#   tests/run.sh [OUT]     OUT: a directory, default ./kvr-tests
#
# Exit code: 0 all passed, 1 one failed, 77 all were skipped.
set -uo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
out="${1:-kvr-tests}"
mkdir -p "$out"
KVR_CACHE_DIR="$(mktemp -d)"
export KVR_CACHE_DIR
trap 'rm -rf "$KVR_CACHE_DIR"' EXIT

passed=0 failed=0 skipped=0
for test in "$here"/*; do
  name="$(basename "$test")"
  if [[ ! -f "$test" || ! -x "$test" || "$name" == run.sh ]]; then continue; fi
  start=$SECONDS
  # It tries every device that is there: here the GPU alone.
  export GTEST_FILTER='*'
  if [[ "$name" == variant_conformance ]]; then GTEST_FILTER='Cuda/*'; fi
  (cd "$KVR_CACHE_DIR" && timeout -k 10 600 "$test") >"$out/$name.log" 2>&1 </dev/null
  code=$?
  case $code in
    0) word=passed passed=$((passed + 1)) ;;
    77) word="skipped: $(sed -n 's/^SKIPPED: //p' "$out/$name.log" | head -n 1)" skipped=$((skipped + 1)) ;;
    *) word="FAILED ($code), see $out/$name.log" failed=$((failed + 1)) ;;
  esac
  printf '%-32s %3d s  %s\n' "$name" "$((SECONDS - start))" "$word"
done
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
if [[ $failed -gt 0 ]]; then exit 1; fi
if [[ $passed -eq 0 ]]; then exit 77; fi
