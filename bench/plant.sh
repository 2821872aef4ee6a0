#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Plugins for bench/ab.sh, of mla_sparse_decode:
#   planted  the baseline, slower by a known spin: {SPIN=400} holds every block of mla_split up for
#            400 cycles before it begins; what `kvr ab` must find
#   wide     the baseline with further configs, for a race of at least 64 at one shape
#
#   bench/plant.sh OUT     writes OUT/planted and OUT/wide, for kvr's --plugins OUT
set -euo pipefail

baseline="$(cd "$(dirname "${BASH_SOURCE[0]}")/../variants/mla_sparse_decode/baseline" && pwd)"
bundle="$1/planted"
mkdir -p "$bundle"
cp "$baseline"/*.cu "$baseline"/*.cuh "$bundle"

sed -e 's/^name = "baseline"/name = "planted"/' -e '/^baseline = true/d' \
  -e 's/^description = "Split-KV.*/description = "The baseline, slower by SPIN cycles a block"/' \
  -e 's/"i32(topk)",/"i32(topk)", "i32(SPIN)",/' "$baseline/variant.toml" >"$bundle/variant.toml"
# A tunable's table stands before [let].
spins="$(seq -s ', ' 0 100 6300)"
sed -i "s/^\[let\]/[tunables.SPIN]\nvalues = [$spins]\ndefault = 0\nscope = \"launch\"\ndescription = \"cycles\"\n\n[let]/" "$bundle/variant.toml"

sed -i -e 's/int num_qo_heads, int topk) {/int num_qo_heads, int topk, int spin) {\n  for (const long long begin = clock64(); clock64() - begin < spin;) continue;/' "$bundle/split.cu"

for file in variant.toml split.cu; do
  if cmp -s "$baseline/$file" "$bundle/$file" || ! grep -qi spin "$bundle/$file"; then
    echo "plant.sh: $file of the baseline no longer looks as expected" >&2
    exit 1
  fi
done

mkdir -p "$1/wide"
cat >"$1/wide/variant.toml" <<'TOML'
schema = 1
op = "mla_sparse_decode"
name = "wide"
version = "1.0.0"
description = "The baseline with further split targets"
extends = { variant = "baseline", version = "1" }

[tunables.TARGET_CTAS]
values = [64, 96, 192, 384, 768]
default = 192
scope = "launch"
description = "blocks to aim for"
TOML
