#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""KVR inside PyTorch's CUDA graphs, on a GPU: kernels of torch before, between and after KVR's, on two forked streams,
with the graph kept and with it destroyed, while variants are swapped. Prints one line of JSON.

  torch_gpu_test.py [--steps N]

Of an install it finds kvr.py and libkvr.so by itself. Exit code: 0 all is right, 1 it is not, 77 no PyTorch or no GPU.
"""
import argparse
import json
import math
import os
import statistics
import sys
import threading
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
for directory in ("../python", "../../python"):
    sys.path.insert(0, os.path.join(HERE, directory))
import kvr  # noqa: E402  pylint: disable=wrong-import-position

if os.environ.get("KVR_NO_CUDA", "0") not in ("", "0"):
    print("SKIPPED: KVR_NO_CUDA hides the GPU")
    sys.exit(77)
try:
    import torch
except ImportError as error:
    print(f"SKIPPED: no PyTorch: {error}")
    sys.exit(77)
if not torch.cuda.is_available():
    print("SKIPPED: PyTorch sees no GPU")
    sys.exit(77)

OP = "mla_sparse_decode"
TOKENS, HEADS, TOPK, PAGE, PAGES = 8, 16, 512, 64, 64
SHAPE = f"num_tokens={TOKENS},num_qo_heads={HEADS},topk={TOPK},page_size={PAGE},num_pages={PAGES}"
SCALE = 1 / math.sqrt(192)
VARIANTS = ("w8", "s3", "baseline")


class Results:
    """What is printed in the end."""

    def __init__(self):
        self.values, self.checks, self.failed = {}, 0, []

    def check(self, holds, what):
        self.checks += 1
        if not holds and len(self.failed) < 20:
            self.failed.append(what)
        return holds


class Problem:
    """Static buffers of one layer, and the work that a step does on them."""

    def __init__(self):
        def bf16(*shape):
            return torch.randn(shape, device="cuda").to(torch.bfloat16)
        self.base, self.gain = bf16(TOKENS, HEADS, 512), torch.ones(1, device="cuda", dtype=torch.bfloat16)
        self.q_nope, self.q_pe = torch.empty_like(self.base), bf16(TOKENS, HEADS, 64)
        self.q_side = torch.empty_like(self.base)
        self.ckv, self.kpe = bf16(PAGES, PAGE, 512), bf16(PAGES, PAGE, 64)
        self.indices = torch.empty(TOKENS, TOPK, device="cuda", dtype=torch.int32)
        self.out, self.out_side = torch.empty_like(self.base), torch.empty_like(self.base)
        self.lse, self.lse_side = (torch.empty(TOKENS, HEADS, device="cuda") for _ in range(2))
        self.middle, self.total = torch.empty_like(self.base), torch.empty_like(self.base)
        self.side = torch.cuda.Stream()
        self.draw(0)

    def draw(self, seed):
        """Other inputs, on the current stream."""
        generator = torch.Generator(device="cuda").manual_seed(seed)
        self.base.normal_(generator=generator)
        self.gain.fill_(0.5 + (seed % 7) / 4)
        self.indices.random_(0, PAGE * PAGES, generator=generator)
        self.indices[:, TOPK - seed % 100:] = -1  # padding at the end
        if seed % 5 == 4:
            self.indices[0] = -1  # a row of padding
        for output in (self.out, self.out_side, self.total):
            output.fill_(float("nan"))

    def step(self, rt):
        """torch before, KVR on two streams with torch between, torch after; on the current stream."""
        main = torch.cuda.current_stream()
        torch.mul(self.base, self.gain, out=self.q_nope)
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            torch.neg(self.q_nope, out=self.q_side)
            rt.launch(OP, self.q_side, self.q_pe, self.ckv, self.kpe, self.indices, SCALE, self.out_side, self.lse_side)
        rt.launch(OP, self.q_nope, self.q_pe, self.ckv, self.kpe, self.indices, SCALE, self.out, self.lse)
        torch.mul(self.out, 0.5, out=self.middle)
        rt.launch(OP, self.middle, self.q_pe, self.ckv, self.kpe, self.indices, SCALE, self.out, self.lse)
        main.wait_stream(self.side)
        torch.add(self.out, self.out_side, out=self.total)

    def outputs(self):
        copies = [tensor.clone() for tensor in (self.out, self.lse, self.out_side, self.lse_side, self.total)]
        torch.cuda.synchronize()  # before another stream draws new inputs
        return copies

    def expect(self, results, what):
        """The last step's outputs, against float64."""
        for name, query, out, lse in (("middle", self.middle, self.out, self.lse),
                                      ("side", self.q_side, self.out_side, self.lse_side)):
            expected, bound, expected_lse = self.reference(query)
            results.check(bool(((out.double() - expected).abs() <= bound).all()), f"{what}: output of {name}")
            finite = torch.isfinite(expected_lse)
            results.check(torch.equal(lse[~finite], expected_lse[~finite].float()), f"{what}: infinite lse of {name}")
            difference = (lse.double() - expected_lse)[finite].abs()
            results.check(bool((difference <= 1e-6 + 8.01 / 65536 * expected_lse[finite].abs()).all()),
                          f"{what}: lse of {name}")
        results.check(torch.equal(self.q_side, -(self.base * self.gain)), f"{what}: torch before")
        results.check(torch.equal(self.total, self.out + self.out_side), f"{what}: torch after")

    def reference(self, query):
        """The op's definition in float64: output, what it may differ by, lse."""
        kept = self.indices >= 0
        slots = self.indices.clamp(min=0).long()
        values = self.ckv.view(-1, 512)[slots].double()
        keys = self.kpe.view(-1, 64)[slots].double()
        scores = torch.einsum("thd,tkd->thk", query.double(), values)
        scores = (scores + torch.einsum("thd,tkd->thk", self.q_pe.double(), keys)) * SCALE
        scores = scores.masked_fill(~kept[:, None, :], float("-inf"))
        weights = torch.nan_to_num(torch.softmax(scores, -1))
        output = torch.einsum("thk,tkd->thd", weights, values)
        magnitude = torch.einsum("thk,tkd->thd", weights, values.abs())
        return output, (output.abs() + magnitude) / 256, torch.logsumexp(scores, -1) / math.log(2)


class Captured:
    """The step as a CUDA graph, kept beside its executable or not."""

    def __init__(self, rt, problem, stream, keep):
        self.rt, self.problem, self.stream, self.keep = rt, problem, stream, keep
        self.graph = torch.cuda.CUDAGraph(keep_graph=keep)
        with torch.cuda.graph(self.graph, stream=stream):
            with rt.capture(pool="decode", spare_nodes=1, keeps_graph=keep) as scope:
                problem.step(rt)
        if keep:
            self.graph.instantiate()
        self.binding, self.exec = scope.binding, self.graph.raw_cuda_graph_exec()

    def apply(self, digest=None):
        return self.binding.apply(self.exec, digest)

    def replay(self):
        with torch.cuda.stream(self.stream):
            self.graph.replay()

    def close(self):
        torch.cuda.synchronize()
        self.binding.close()
        self.graph.reset()


def select(rt, variant):
    """Makes `variant` serve, however it served before; the digest."""
    if variant == "baseline":
        if rt.generation()[1] != BASELINE[0]:
            rt.rollback(BASELINE[0])
    else:
        rt.swap_wait(rt.swap(OP, variant, who="torch_gpu_test"))
    return rt.generation()[1]


BASELINE = [""]  # digest of generation 0


def swaps_between_replays(rt, problem, stream, keep, results):
    """Every variant in turn, each step against the reference; what each variant's bits are."""
    name = "kept" if keep else "destroyed"
    captured = Captured(rt, problem, stream, keep)
    start = rt.generation()[1]
    results.check(captured.binding.digest(captured.exec) == start, f"{name}: digest after the capture")
    patches, bits, seed = [], {}, 0
    for variant in VARIANTS + VARIANTS:
        digest = select(rt, variant)
        runs = captured.binding.digest(captured.exec)
        applied = captured.apply()
        results.check(applied.outcome == ("unchanged" if runs == digest else "applied"),
                      f"{name}: {variant}: {applied}")
        results.check(applied.digest == digest, f"{name}: {variant}: digest of {applied}")
        if applied.outcome == "applied":
            results.check(applied.whole_graph != keep, f"{name}: {variant}: the way of {applied}")
            patches.append((applied.microseconds, applied.nodes))
        for _ in range(3):
            seed += 1
            with torch.cuda.stream(stream):
                problem.draw(seed)
            captured.replay()
            torch.cuda.synchronize()
            problem.expect(results, f"{name}: {variant}: step {seed}")
        with torch.cuda.stream(stream):
            problem.draw(0)
        captured.replay()
        torch.cuda.synchronize()
        now = problem.outputs()
        if digest in bits:
            results.check(all(map(torch.equal, bits[digest], now)), f"{name}: {variant}: other bits than before")
        bits[digest] = now
    results.values[name] = {
        "patches": len(patches), "nodes": max(nodes for _, nodes in patches),
        "us_per_patch": round(statistics.median(us for us, _ in patches), 2),
        "us_per_node": round(statistics.median(us / max(nodes, 1) for us, nodes in patches), 3)}
    captured.close()
    return bits


def swaps_under_replay(rt, problem, stream, steps, bits, results):
    """Another thread swaps as fast as it can; this one applies at step boundaries, replays both graphs and compares
    each output with the bits of the generation that ran. In the middle of it a third graph is captured."""
    graphs = [Captured(rt, problem, stream, keep) for keep in (True, False)]
    stop, swaps, errors = threading.Event(), [0], []

    def swap():
        try:
            while not stop.is_set():
                select(rt, VARIANTS[swaps[0] % len(VARIANTS)])
                swaps[0] += 1
        except Exception as caught:  # pylint: disable=broad-except
            errors.append(repr(caught))

    thread = threading.Thread(target=swap)
    thread.start()
    ran, times, wrong = {}, [], 0
    for step in range(steps):
        if step == steps // 2:
            graphs.append(Captured(rt, problem, stream, False))
        captured = graphs[step % len(graphs)]
        with torch.cuda.stream(stream):
            problem.draw(0)
        begin = time.perf_counter()
        applied = captured.apply()
        captured.replay()
        stream.synchronize()
        times.append((time.perf_counter() - begin) * 1e6)
        results.check(applied.outcome != "needs recapture", f"under replay: step {step}: {applied.reason}")
        if applied.digest not in bits:
            results.check(False, f"under replay: step {step}: a generation that nobody published")
            continue
        ran[applied.digest] = ran.get(applied.digest, 0) + 1
        wrong += not all(map(torch.equal, bits[applied.digest], problem.outputs()))
    stop.set()
    thread.join()
    for captured in graphs:
        captured.close()
    results.check(not errors, f"under replay: {errors}")
    results.check(wrong == 0, f"under replay: {wrong} steps with other bits than their generation's")
    results.check(len(ran) > 1, "under replay: one generation alone ran")
    times.sort()
    results.values["under_replay"] = {"steps": steps, "swaps": swaps[0], "generations_ran": sorted(ran.values()),
                                      "wrong": wrong, "step_p50_us": round(times[len(times) // 2], 1),
                                      "step_p99_us": round(times[len(times) * 99 // 100], 1)}


def eager(rt, problem, stream, results):
    """Launches without a graph, bound ones, and that no tensor is held on to."""
    with torch.cuda.stream(stream):
        problem.draw(1)
        problem.step(rt)
        torch.cuda.synchronize()
        problem.expect(results, "eager")
        with rt.bind(OP, problem.q_nope, problem.q_pe, problem.ckv, problem.kpe, problem.indices, SCALE, problem.out,
                     problem.lse) as bound:
            problem.out.fill_(float("nan"))
            bound.launch()
            problem.middle.copy_(problem.q_nope)
            torch.add(problem.out, problem.out_side, out=problem.total)
        torch.cuda.synchronize()
        problem.expect(results, "bound")
        before = torch.cuda.memory_allocated()
        for _ in range(1000):
            held = torch.empty_like(problem.out)
            rt.launch(OP, problem.q_nope, problem.q_pe, problem.ckv, problem.kpe, problem.indices, SCALE, held,
                      problem.lse)
            del held
        torch.cuda.synchronize()
        results.check(torch.cuda.memory_allocated() == before, "tensors of launches are held")
        begin = time.perf_counter()
        for _ in range(1000):
            rt.launch(OP, problem.q_nope, problem.q_pe, problem.ckv, problem.kpe, problem.indices, SCALE, problem.out,
                      problem.lse)
        results.values["eager_launch_us"] = round((time.perf_counter() - begin) * 1e3, 2)
        torch.cuda.synchronize()


def refusals(rt, problem, stream, results):
    """What is wrong is said, and a capture stays valid."""
    def refused(what, *changes):
        arguments = [problem.q_nope, problem.q_pe, problem.ckv, problem.kpe, problem.indices, SCALE, problem.out,
                     problem.lse]
        for index, value in changes:
            arguments[index] = value
        try:
            rt.launch(OP, *arguments)
        except kvr.KvrError as caught:
            return caught.code == "INVALID_ARGUMENT" and bool(caught.what)
        return results.check(False, f"{what} was taken")

    results.check(refused("float32", (0, problem.q_nope.float())), "float32")
    results.check(refused("a host tensor", (0, problem.q_nope.cpu())), "a host tensor")
    results.check(refused("a strided tensor", (0, problem.q_nope.transpose(0, 1))), "a strided tensor")
    results.check(refused("a scalar on the GPU", (5, torch.tensor(SCALE, device="cuda"))), "a scalar on the GPU")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        with rt.capture() as scope:
            results.check(refused("float32, captured", (0, problem.q_nope[:0])), "other shapes, captured")
            problem.step(rt)
    results.check(scope.binding is not None, "a capture is valid after a refusal")
    with torch.cuda.stream(stream):
        problem.draw(2)
        graph.replay()
    torch.cuda.synchronize()
    problem.expect(results, "after a refusal")
    scope.binding.close()
    graph.reset()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    steps = parser.parse_args().steps
    results = Results()
    torch.cuda.init()
    with kvr.Runtime(f"cuda:{torch.cuda.current_device()}") as rt:
        rt.load(OP, SHAPE)
        problem, stream = Problem(), torch.cuda.Stream()
        torch.cuda.synchronize()
        for prepared in (stream, problem.side):
            rt.prepare_stream(prepared)
            rt.prepare_stream(prepared, "decode")
        BASELINE[0] = rt.generation()[1]
        for variant in VARIANTS:  # compiled and verified before what follows is timed
            select(rt, variant)
        rt.freeze()
        eager(rt, problem, stream, results)
        refusals(rt, problem, stream, results)
        bits = swaps_between_replays(rt, problem, stream, True, results)
        destroyed = swaps_between_replays(rt, problem, stream, False, results)
        for digest, outputs in bits.items():
            results.check(all(map(torch.equal, outputs, destroyed[digest])), f"{digest}: both ways, other bits")
        results.values["variants_with_bits_of_their_own"] = len(
            {tuple(outputs[0].view(torch.int16).flatten().tolist()) for outputs in bits.values()})
        swaps_under_replay(rt, problem, stream, steps, bits, results)
        counters = rt.counters()
        results.check(counters["unscoped"] == 0 and counters["refused"] == 0 and counters["recaptures"] == 0,
                      f"counters: {counters}")
    line = {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "checks": results.checks,
            "failed": results.failed, **results.values, "counters": counters}
    print(json.dumps(line))
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
