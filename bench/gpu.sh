#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What KVR shows on a GPU: every variant verified over a grid of shapes, the space tuned, launches
# through the registry, and compute-sanitizer over the lot. Needs no build tree: PREFIX is what
# `cmake --install` wrote, on this machine or another.
#
#   bench/gpu.sh PREFIX OUT [PART]...     parts: env verify tune run memcheck racecheck (default: all)
#
# Writes one JSON file a part under OUT, and the exit code of each command to OUT/status.txt.
set -uo pipefail

kvr="$1/bin/kvr"
out="$2"
shift 2
parts=("$@")
if [[ ${#parts[@]} -eq 0 ]]; then parts=(env verify tune run memcheck racecheck); fi
op=mla_sparse_decode
mkdir -p "$out"

# step NAME COMMAND...: the command's stdout to OUT/NAME.json.
step() {
  local name="$1" start=$SECONDS code
  shift
  "$@" >"$out/$name.json" 2>"$out/$name.log"
  code=$?
  printf '%s exit %d, %d s: %s\n' "$name" "$code" "$((SECONDS - start))" "$*" | cut -c1-400 | tee -a "$out/status.txt"
  [[ $code -eq 0 ]] || tail -n 5 "$out/$name.log"
}

grid() {  # every combination of heads x topk x batch, as --axes options
  local heads topk batch
  for heads in $1; do for topk in $2; do for batch in $3; do
    printf -- '--axes num_tokens=%s,num_qo_heads=%s,topk=%s ' "$batch" "$heads" "$topk"
  done; done; done
}

for part in "${parts[@]}"; do
  # shellcheck disable=SC2046  # grid prints options
  case "$part" in
    env)
      nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu --format=csv >"$out/gpu.csv"
      step doctor "$kvr" doctor --json ;;
    verify)
      step verify "$kvr" verify $op --device cuda --timeout 120 --json $(grid "16 64 128" "1 37 512 2048" "1 7 64") ;;
    tune)
      for heads in 16 64; do for topk in 512 2048; do
        step "tune-h$heads-k$topk" "$kvr" tune $op --device cuda --selections "$out/selections-h$heads.json" --json \
          --key-policy "topk:pow2; num_tokens:ceil(1,16,64,128)" $(grid "$heads" "$topk" "1 16 64 128")
      done; done ;;
    run)
      step run "$kvr" run $op --device cuda --selections "$out/selections-h16.json" --json $(grid 16 "512 2048" "1 16 64 128") ;;
    memcheck)
      step memcheck compute-sanitizer --tool memcheck --error-exitcode 9 --target-processes all \
        "$kvr" verify $op --device cuda --timeout 300 --json $(grid "16 64 128" "1 37 512" "1 7") ;;
    racecheck)
      step racecheck compute-sanitizer --tool racecheck --error-exitcode 9 --target-processes all \
        "$kvr" verify $op --device cuda --timeout 300 --json $(grid 16 512 7) ;;
    *) echo "no such part: $part" >&2; exit 2 ;;
  esac
done
