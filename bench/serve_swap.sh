#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Swaps while a server replays its graphs, on a GPU: examples/serve over four batch buckets and four layers,
# both ways of patching a graph. Needs no build tree: PREFIX is what `cmake --install` wrote, with the components
# kvr, tests and bench.
#
#   bench/serve_swap.sh PREFIX OUT [PART]...     parts: proof latency patch (default: all)
#
#   proof    a swap asked for in every step, every output held bit for bit against its generation
#   latency  step times while swapping (in every step; every 100 steps) and without, in turn
#   patch    a node's cost beside the raw driver calls
#
# Writes one JSON file a run under OUT, and each command's exit code to OUT/status.txt.
set -uo pipefail

prefix="$1"
out="$2"
shift 2
parts=("$@")
if [[ ${#parts[@]} -eq 0 ]]; then parts=(proof latency patch); fi
mkdir -p "$out"
export KVR_LEDGER_DIR=none

# step NAME COMMAND...: the command's stdout to OUT/NAME.json.
step() {
  local name="$1" start=$SECONDS code
  shift
  "$@" >"$out/$name.json" 2>"$out/$name.log"
  code=$?
  printf '%s exit %d, %d s\n' "$name" "$code" "$((SECONDS - start))" | tee -a "$out/status.txt"
  [[ $code -eq 0 ]] || tail -n 5 "$out/$name.log"
}

serve() {
  "$prefix/bin/kvr-serve" --device cuda:0 --layers 4 --buckets 1,8,48,96 --topk 512 --json "$@"
}
# Their bits differ from each other's, and from the default's: tiles, warps and splits change the order of sums.
different=(--swap-to w8 --swap-to 'baseline{BLOCK_T=32}' --swap-to 'w8{BLOCK_T=32}'
  --swap-to 'baseline{MIN_CHUNK=64}' --swap-to 'baseline{TARGET_CTAS=1024,NSPLIT_MAX=32}')
# As fast as the default, whose plan it has at topk 512: what differs is the swapping.
alike=(--swap-to 'baseline{MIN_CHUNK=16}')

for part in "${parts[@]}"; do
  for way in graph node; do
    keep=()
    if [[ $way == node ]]; then keep=(--keep-graph); fi
    case "$part" in
      proof) step "proof-$way" serve --steps 4000 --phase 4000 --swap-every 1 --check "${different[@]}" "${keep[@]}" ;;
      latency)
        step "every-step-$way" serve --steps 40000 --phase 500 --swap-every 1 "${alike[@]}" "${keep[@]}"
        step "every-100-$way" serve --steps 40000 --phase 500 --swap-every 100 "${alike[@]}" "${keep[@]}" ;;
      patch) if [[ $way == node ]]; then step patch "$prefix/bin/kvr-patch-bench" --device cuda:0 --rounds 1000; fi ;;
      *) echo "no such part: $part" >&2; exit 2 ;;
    esac
  done
done
