#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles a Triton kernel for sm_90a into a bundle: the cubin, and the manifest that says how to launch it.

  pip install triton
  make_cubin.py [DIRECTORY]     default: triton, beside this file

It needs no GPU: Triton brings its own assembler. Run with Triton 3.6 and 3.9.
"""
import os
import pathlib
import sys

os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # the paths of this machine are nobody's business

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

BLOCK = 1024  # elements of a program
NUM_WARPS = 4


@triton.jit
def scale_rows(x, factor, y, width, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = column < width
    value = tl.load(x + row * width + column, mask=mask)
    tl.store(y + row * width + column, value * tl.load(factor + row), mask=mask)


MANIFEST = """# SPDX-License-Identifier: Apache-2.0
#
# Written by make_cubin.py with Triton {triton}. What a compiled kernel does not say of itself stands
# here: {warps} warps a block, {shared} bytes of shared memory, and after the kernel's own arguments
# the {scratch} scratch pointers that Triton appends, null because this kernel uses none.
schema = 1
op = "scale_rows"
name = "triton"
version = "1.0.0"
semantics = "exact"
description = "Compiled by Triton {triton}, {block} elements a block"
targets = ["sm_90a"]
host_skip_reason = "compiled for sm_90a by Triton"
cubins = {{ sm_90a = "scale_rows.sm_90a.cubin" }}
constraints = ["rows <= 65535"]

[[kernel]]
name = "scale_rows"
entry = "{entry}"
grid = ["ceildiv(width, {block})", "rows"]
block = ["{threads}"]
smem = "{shared}"
args = ["x", "factor", "y", "i32(width)"{nulls}]
"""


def main():
    default = pathlib.Path(__file__).resolve().parent / "triton"
    directory = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    source = ASTSource(
        fn=scale_rows,
        signature={"x": "*fp32", "factor": "*fp32", "y": "*fp32", "width": "i32", "BLOCK": "constexpr"},
        constexprs={"BLOCK": BLOCK},
    )
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32),
                            options={"num_warps": NUM_WARPS, "enable_fp_fusion": True})
    facts = kernel.metadata
    if facts.global_scratch_size or facts.profile_scratch_size:
        sys.exit("the kernel uses Triton's scratch memory; give it a [[workspace]] in the manifest")
    # The assembler's own list of parameters: the kernel's four, then what Triton appends.
    parameters = kernel.asm["ptx"].split(".entry", 1)[1].split(")", 1)[0].count(".param")
    scratch = parameters - 4

    directory.mkdir(parents=True, exist_ok=True)
    (directory / "scale_rows.sm_90a.cubin").write_bytes(kernel.asm["cubin"])
    (directory / "variant.toml").write_text(MANIFEST.format(
        triton=triton.__version__, entry=facts.name, block=BLOCK, warps=facts.num_warps, threads=32 * facts.num_warps,
        shared=facts.shared, scratch=scratch, nulls=', "i64(0)"' * scratch), encoding="utf-8")
    print(f"{directory}: entry {facts.name}, {facts.num_warps} warps, {facts.shared} bytes shared, "
          f"{scratch} scratch pointers, cubin {len(kernel.asm['cubin'])} bytes")


main()
