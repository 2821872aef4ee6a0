#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What a comparison inside a running server is worth on a GPU: examples/serve over four batch buckets and four
# layers, the same generation against itself, and against planted slow-downs. Needs no build tree: PREFIX is what
# `cmake --install` wrote, with the components kvr and tests, PLANTED what bench/plant.sh wrote.
#
#   bench/live_ab.sh PREFIX PLANTED OUT [PART]...     parts: aa planted ship (default: all)
#
#   aa       ten times A against A, and once with --ship
#   planted  SPIN=0 (another source, the same work), and spins of about 5 and 10 % of a step of one token
#   ship     the 5 % with --ship; w8 against the baseline with --ship
#
# Writes one JSON file a run under OUT, each command's exit code to OUT/status.txt, what `kvr status` said after
# each, and what the server counted in the end, to OUT/serve.json.
set -uo pipefail

prefix="$1"
planted="$2"
out="$3"
shift 3
parts=("$@")
if [[ ${#parts[@]} -eq 0 ]]; then parts=(aa planted ship); fi
mkdir -p "$out"
export KVR_LEDGER_DIR=none
kvr="$prefix/bin/kvr"
socket="$(mktemp -d)/kvr.sock"

"$prefix/bin/kvr-serve" --device cuda:0 --layers 4 --buckets 1,8,48,96 --topk 512 --json \
  --plugins "$planted" --socket "$socket" --journal "$out/journal.jsonl" >"$out/serve.json" 2>"$out/serve.log" &
server=$!
trap 'kill -INT $server 2>/dev/null; wait $server' EXIT
for _ in $(seq 1 300); do
  [[ -S "$socket" ]] && "$kvr" status "$socket" --json >"$out/before.json" 2>/dev/null && break
  kill -0 $server 2>/dev/null || { tail -n 5 "$out/serve.log"; exit 1; }
  sleep 0.1
done

# live NAME ARGUMENTS...: one comparison, then whether the server is as it was found.
live() {
  local name="$1" start=$SECONDS code
  shift
  "$kvr" ab --live "$socket" "$@" --json >"$out/$name.json" 2>"$out/$name.log"
  code=$?
  printf '%s exit %d, %d s: %s\n' "$name" "$code" "$((SECONDS - start))" "$*" | tee -a "$out/status.txt"
  [[ $code -ne 1 && $code -ne 2 ]] || tail -n 5 "$out/$name.log"
  "$kvr" status "$socket" --json >"$out/$name.status.json"
}

spin() { echo "mla_sparse_decode/planted{SPIN=$1}"; }
for part in "${parts[@]}"; do
  case "$part" in
    aa)
      for i in $(seq 1 10); do live "aa-$i" current; done
      live aa-ship current --ship ;;
    planted) for cycles in 0 1500 3000; do live "planted-$cycles" "$(spin $cycles)"; done ;;
    ship)
      live ship-planted-1500 "$(spin 1500)" --ship
      live ship-w8 mla_sparse_decode/w8 --ship ;;
    *) echo "no such part: $part" >&2; exit 2 ;;
  esac
done
