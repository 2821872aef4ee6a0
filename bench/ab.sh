#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What KVR's verdicts are worth on a GPU: noise bands, A against A, planted slow-downs, w8 and s3
# against the baseline, a race against an exhaustive measurement, and a crowded device. Needs no
# build tree: PREFIX is where the kvr and kvr-bench archives were unpacked, PLANTED what bench/plant.sh
# wrote.
#
#   bench/ab.sh PREFIX PLANTED OUT [PART]...     parts: env noise ship race report aa planted crowded (default: all)
#
# Writes JSON under OUT, the ledger to OUT/ledger, and each command's exit code to OUT/status.txt.
set -uo pipefail

prefix="$1"
planted="$2"
out="$3"
kvr="$prefix/bin/kvr"
shift 3
parts=("$@")
if [[ ${#parts[@]} -eq 0 ]]; then parts=(env noise ship race report aa planted crowded); fi
op=mla_sparse_decode
mkdir -p "$out"
common=(--device cuda --ledger "$out/ledger" --json)

# step NAME COMMAND...: the command's stdout to OUT/NAME.json.
step() {
  local name="$1" start=$SECONDS code
  shift
  "$@" >"$out/$name.json" 2>"$out/$name.log"
  code=$?
  printf '%s exit %d, %d s: %s\n' "$name" "$code" "$((SECONDS - start))" "$*" | cut -c1-300 | tee -a "$out/status.txt"
  [[ $code -ne 1 && $code -ne 2 ]] || tail -n 5 "$out/$name.log"
}

# The batch sizes of the comparison; the noise bands are of three of them.
batches="1 8 48 64 80 96"
axes() { local b; for b in $1; do printf -- '--axes num_tokens=%s ' "$b"; done; }

for part in "${parts[@]}"; do
  # shellcheck disable=SC2046  # axes prints options
  case "$part" in
    env)
      nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu --format=csv >"$out/gpu.csv"
      step doctor "$kvr" doctor --json ;;
    noise) step noise "$kvr" noise $op "${common[@]}" $(axes "1 64 96") ;;
    aa)
      for i in $(seq 1 20); do
        step "aa-$i" "$kvr" ab $op "${common[@]}" --incumbent baseline --challenger baseline $(axes "1 64 96")
      done ;;
    planted)  # about 0, 5 and 10 %; SPIN=0 is the control: another source, the same work
      for where in 1:0 1:1000 1:2000 64:0 64:3000 64:6000; do
        step "planted-${where/:/-}" "$kvr" ab $op "${common[@]}" --plugins "$planted" \
          --incumbent baseline --challenger "planted{SPIN=${where#*:}}" --axes "num_tokens=${where%:*}"
      done ;;
    ship)
      for variant in w8 s3; do
        step "ship-$variant" "$kvr" ab $op "${common[@]}" --incumbent baseline --challenger $variant --ship $(axes "$batches")
      done ;;
    race)
      step regret "$prefix/bin/kvr-regret-bench" $op --device cuda --ledger "$out/ledger" --plugins "$planted" \
        --variant baseline --variant w8 --variant s3 --variant wide --axes num_tokens=64,topk=2048 ;;
    report)
      step report "$kvr" report $op --ledger "$out/ledger" --json --out "$out/report" ;;
    crowded)  # 95 % of what is free taken, and a process that keeps the device busy
      python3 - "$out/crowd.ready" <<'PY' &
import sys, torch
free, _ = torch.cuda.mem_get_info()
hog = torch.empty(int(free * 0.95) - (1 << 28), dtype=torch.uint8, device="cuda")
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
for i in range(1 << 30):
    b = a @ a
    if i % 64 == 0:
        torch.cuda.synchronize()
        open(sys.argv[1], "w").close()
PY
      crowd=$!
      until [[ -e "$out/crowd.ready" ]] || ! kill -0 $crowd; do sleep 0.2; done
      for i in 1 2 3 4 5; do
        step "crowded-$i" "$kvr" ab $op "${common[@]}" --memory 512 --incumbent baseline --challenger baseline --axes num_tokens=64
      done
      step crowded-planted "$kvr" ab $op "${common[@]}" --memory 512 --incumbent baseline --challenger w8 --axes num_tokens=64
      step crowded-refused "$kvr" ab $op "${common[@]}" --incumbent baseline --challenger baseline --axes num_tokens=65535,num_qo_heads=128,num_pages=65536
      if kill -0 $crowd; then echo "crowd: alive" | tee -a "$out/status.txt"; fi
      kill $crowd; wait $crowd 2>/dev/null
      rm -f "$out/crowd.ready" ;;
    *) echo "no such part: $part" >&2; exit 2 ;;
  esac
done
