#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What KVR shows on a GPU: every variant verified over a grid of shapes, the space tuned, launches
# through the registry, and compute-sanitizer over the lot. Needs no build tree: PREFIX is what
# `cmake --install` wrote, on this machine or another.
#
#   bench/gpu.sh PREFIX OUT [PART]...     parts: env verify tune run dispatch control memcheck racecheck (default: all)
#
# Writes one JSON file a part under OUT, and the exit code of each command to OUT/status.txt.
set -uo pipefail

prefix="$1"
kvr="$prefix/bin/kvr"
out="$2"
shift 2
parts=("$@")
if [[ ${#parts[@]} -eq 0 ]]; then parts=(env verify tune run dispatch control memcheck racecheck); fi
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

# Memory fences around every allocation: without them a write into the neighbour's goes unseen.
padding=512

# sanitize TOOL AXES...: every variant launched in this process, where the tool sees it.
sanitize() {
  local tool="$1" variant options=()
  shift
  if [[ "$tool" == memcheck ]]; then options=(--padding "$padding"); fi
  for variant in $("$kvr" list $op --json | sed -n 's/.*"name": "\(.*\)",$/\1/p' | grep -v "^$op$"); do
    step "$tool-$variant" compute-sanitizer --tool "$tool" "${options[@]}" --error-exitcode 9 --log-file "$out/$tool-$variant.txt" \
      "$kvr" run $op --device cuda --variant "$variant" --json "$@"
    tail -n 1 "$out/$tool-$variant.txt"
  done
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
    dispatch)  # from the kvr-bench archive, where it is unpacked too
      if [[ -x "$prefix/bin/kvr-dispatch-bench" ]]; then
        for device in cuda:0 null; do
          "$prefix/bin/kvr-dispatch-bench" --device "$device" --benchmark_repetitions=3 --benchmark_min_time=0.2 \
            --benchmark_out="$out/dispatch-${device%:0}.json" --benchmark_out_format=json >"$out/dispatch-${device%:0}.log" 2>&1
          echo "dispatch-${device%:0} exit $?" | tee -a "$out/status.txt"
        done
      fi ;;
    control)  # a planted write past the output: 9 is right, anything else says that memcheck sees nothing
      step control compute-sanitizer --tool memcheck --padding "$padding" --error-exitcode 9 --log-file "$out/control.txt" \
        "$kvr" run $op --plugins "$prefix/share/kvr/tests/faulty" --variant faulty --set MODE=2 --device cuda --json ;;
    memcheck) sanitize memcheck $(grid "16 64 128" "1 37 512" "1 7") ;;
    racecheck) sanitize racecheck $(grid 16 512 7) ;;
    *) echo "no such part: $part" >&2; exit 2 ;;
  esac
done
