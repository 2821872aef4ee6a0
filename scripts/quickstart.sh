#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# From a fresh clone to the main job: installs what is missing, builds, then loads the variants of
# mla_sparse_decode, compiles their CUDA source at run time, proves each correct, tunes, selects and
# launches through the registry. Ends with a table. Again: the same, from the cache.
#
# KVR_NO_CUDA, KVR_NO_SYSTEM_CUDA and KVR_JOBS as in scripts/setup.sh.

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

op=mla_sparse_decode
targets=sm_90a,sm_120a
selections="$KVR_ROOT/build/selections"  # -host.json or -cuda.json
shape=num_tokens=4,num_qo_heads=16,topk=64,page_size=16  # small enough for a CPU

kvr_setup
kvr_build release -DKVR_TESTS=OFF
kvr="$KVR_ROOT/build/release/bin/kvr"

# kvr_json NAME ARGUMENT...: a kvr command's --json into build/logs/NAME.json. Exit code 1, "it ran,
# and something is wrong", is left to the table; anything else ends here.
kvr_json() {
  local name="$1" start status=0
  shift
  start="$(kvr_seconds)"
  "$kvr" "$@" --json >"$KVR_LOGS/$name.json" </dev/null || status=$?
  if [[ $status -eq 0 ]]; then
    kvr_line "$name" "kvr $*" "$start"
  else
    kvr_line "$name" "FAILED ($status): kvr $*" "$start"
  fi
  if [[ $status -gt 1 ]]; then
    tail -c 2000 "$KVR_LOGS/$name.json" >&2
    exit "$status"
  fi
}

results=()
printf '\n'
# 1 says that something there is broken, and what; the main job may do without it.
status=0
"$kvr" doctor || status=$?
if [[ $status -gt 1 ]]; then exit "$status"; fi
printf '\n'
"$kvr" list "$op"
printf '\n'
if [[ -n "$KVR_CUDA" ]]; then
  kvr_json compile compile "$op" --target "$targets"
  results+=(--compile "$KVR_LOGS/compile.json")
else
  kvr_line compile "left out: there is no CUDA compiler"
fi
kvr_json verify verify "$op" --device host --axes "$shape"
results+=(--verify "host=$KVR_LOGS/verify.json")
if [[ -n "$KVR_GPU" && -n "$KVR_CUDA" ]]; then
  kvr_json verify-gpu verify "$op" --device cuda
  kvr_json tune tune "$op" --device cuda --selections "$selections-cuda.json"
  results+=(--verify "GPU=$KVR_LOGS/verify-gpu.json" --tune "$KVR_LOGS/tune.json")
  device=cuda launch=()
else
  kvr_json tune tune "$op" --device host --axes "$shape" --selections "$selections-host.json"
  results+=(--tune "$KVR_LOGS/tune.json")
  device=host launch=(--axes "$shape")
fi
launch+=(--selections "$selections-$device.json")
start="$(kvr_seconds)"
"$kvr" run "$op" --device "$device" "${launch[@]}"
kvr_line run "kvr run $op --device $device ${launch[*]}" "$start"
printf '\n'
python3 "$KVR_ROOT/scripts/summary.py" "${results[@]}"
printf '\nNext: build/release/bin/kvr --help, docs/, scripts/test.sh\n'
