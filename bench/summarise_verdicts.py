#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns what bench/ab.sh wrote into what bench/results keeps.

  summarise_verdicts.py OUT RESULTS

RESULTS gets noise.json (the bands with their samples), verdicts.json (everything decided) and
VERDICTS.md with the tables.
"""
import csv
import glob
import json
import os
import sys

out, results = sys.argv[1:3]
os.makedirs(results, exist_ok=True)


def load(name):
    with open(os.path.join(out, name), encoding="utf-8") as file:
        return json.load(file)


def short(value):
    """Times to a nanosecond: what events resolve is coarser."""
    if isinstance(value, float):
        return round(value, 6 if abs(value) < 1 else 3)
    if isinstance(value, list):
        return [short(item) for item in value]
    if isinstance(value, dict):
        return {key: short(item) for key, item in value.items()}
    return value


def keep(name, data):
    with open(os.path.join(results, name), "w", encoding="utf-8") as file:
        json.dump(short(data), file, separators=(",", ":"))
        file.write("\n")


def tokens(axes):
    return axes["num_tokens"]


def percent(share):
    return "" if share is None else f"{100 * share:+.1f} %"


def difference(shape):
    low, high = shape["interval"]
    return f"{percent(shape['difference'])} ({percent(low)} … {percent(high)})"


noise, regret = load("noise.json"), load("regret.json")
ships = {name: load(f"ship-{name}.json") for name in ("w8", "s3")}
repeats = [load(os.path.basename(path)) for path in sorted(glob.glob(os.path.join(out, "aa-*.json")))]
planted = {
    os.path.basename(path)[len("planted-"):-len(".json")]: load(os.path.basename(path))
    for path in sorted(glob.glob(os.path.join(out, "planted-*.json")))
}
crowded = [load(os.path.basename(path)) for path in sorted(glob.glob(os.path.join(out, "crowded-[0-9p]*.json")))]
with open(os.path.join(out, "gpu.csv"), encoding="utf-8") as file:
    environment = list(csv.reader(file, skipinitialspace=True))

keep("noise.json", noise)
keep("verdicts.json", {"ship": ships, "same_against_same": repeats, "planted": planted, "crowded": crowded, "regret": regret})

lines = ["# Verdicts", "", "; ".join(f"{key} {value}" for key, value in zip(*environment)) + " (clocks as found, idle).", ""]
lines += ["Written by `bench/ab.sh`; `verdicts.json` and `noise.json` have everything, samples included.", ""]
lines += ["## Noise: the baseline against itself, 20 processes × 80 rounds", ""]
lines += ["| tokens | band | of a session | session medians, least … most |", "|--:|--:|--:|--:|"]
for band in noise["bands"]:
    medians = band["session_medians"]
    lines.append(
        f"| {tokens(band['axes'])} | ±{100 * band['band']:.2f} % | {100 * band['sigma']:.2f} % | "
        f"{percent(min(medians))} … {percent(max(medians))} |"
    )
counts = {}
for run in repeats:
    for shape in run["shapes"]:
        counts.setdefault(tokens(shape["axes"]), []).append(shape["verdict"])
lines += ["", f"## The same against itself, {len(repeats)} runs of `kvr ab`", "", "| tokens | verdicts |", "|--:|---|"]
for count, verdicts in sorted(counts.items()):
    lines.append(f"| {count} | " + ", ".join(f"{verdicts.count(v)} {v}" for v in sorted(set(verdicts))) + " |")
lines += ["", "## Planted slow-downs", "", "| tokens | spin, cycles | difference | verdict | rounds |", "|--:|--:|--:|---|--:|"]
for name, run in planted.items():
    shape = run["shapes"][0]
    lines.append(f"| {tokens(shape['axes'])} | {name.split('-')[1]} | {difference(shape)} | {shape['verdict']} | {shape['rounds']} |")
lines += ["", "## Ship verdicts, 16 processes × 20 rounds a shape", "", "| tokens | challenger | baseline µs | challenger µs | difference | verdict |", "|--:|---|--:|--:|--:|---|"]
for name, run in ships.items():
    for shape in run["shapes"]:
        lines.append(
            f"| {tokens(shape['axes'])} | {name} | {shape['incumbent_us']:.2f} | {shape['challenger_us']:.2f} | "
            f"{difference(shape)} | {shape['verdict']} |"
        )
lines += [
    "",
    "## A race against an exhaustive measurement",
    "",
    f"{regret['configs_raced']} configs at {regret['axes']}: `kvr tune` took {regret['tune_seconds']:.1f} s, compiling included, and "
    f"picked one of {regret['picked_us']:.2f} µs; the fastest by {regret['exhaustive_sessions']} processes × "
    f"{regret['exhaustive_rounds']} rounds of all takes {regret['fastest_us']:.2f} µs: a regret of {100 * regret['regret']:.2f} %.",
    "",
    "## 95 % of the memory taken, and a process that multiplies matrices without pause",
    "",
]
for run in crowded:
    for shape in run.get("shapes", []):
        lines.append(f"- {run['challenger']['name']} against {run['incumbent']['name']}: {shape['verdict']}, {shape['reason']}")
with open(os.path.join(results, "VERDICTS.md"), "w", encoding="utf-8") as file:
    file.write("\n".join(lines) + "\n")
