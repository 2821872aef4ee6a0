#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns what bench/gpu.sh wrote into what bench/results keeps.

  summarise.py OUT RESULTS

RESULTS gets the JSON, tune files without the configs that were never measured (they make up nine
tenths), and a README.md with the environment, the commands and the tables.
"""
import csv
import json
import os
import re
import sys

out, results = sys.argv[1:3]
os.makedirs(results, exist_ok=True)


def load(name):
    with open(os.path.join(out, name), encoding="utf-8") as file:
        return json.load(file)


def keep(name, data):
    with open(os.path.join(results, name), "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1)
        file.write("\n")


lines = ["# " + os.path.basename(os.path.normpath(results)), ""]
with open(os.path.join(out, "gpu.csv"), encoding="utf-8") as file:
    rows = list(csv.reader(file, skipinitialspace=True))
lines += ["; ".join(f"{key} {value}" for key, value in zip(rows[0], rows[1])) + " (clocks as found, idle).", ""]
doctor = load("doctor.json")
compiler = next(component["detail"] for component in doctor["components"] if component["name"] == "nvrtc")
keep("environment.json", {"gpu": dict(zip(rows[0], rows[1])), "devices": doctor["devices"], "compiler": compiler})
lines += [f"Compiler: {compiler}.", ""]

with open(os.path.join(out, "status.txt"), encoding="utf-8") as file:
    statuses = [re.sub(r"\S*bin/kvr ", "kvr ", re.sub(r"/\S*/out/", "out/", line.strip())) for line in file]
lines += ["Commands: `bench/gpu.sh`. Exit codes and times:", "", "```"]
lines += [line if len(line) < 110 else line[:107] + "..." for line in statuses] + ["```", ""]

verify = load("verify.json")
keep("verify.json", verify)
passed = sum(result["status"] == "PASSED" for result in verify["results"])
lines += [
    "## Verified",
    "",
    f"{passed} of {len(verify['results'])} results passed against the float64 reference on "
    f"{verify['device']} (seed {verify['seed']}): each variant's default config at num_qo_heads 16, 64, 128 × "
    "topk 1, 37, 512, 2048 × num_tokens 1, 7, 64, two input sets each.",
    "",
]
for name in sorted(os.listdir(out)):
    match = re.fullmatch(r"(memcheck|racecheck|control)(-\w+)?\.txt", name)
    if match:
        with open(os.path.join(out, name), encoding="utf-8") as file:
            summary = file.read().strip().splitlines()[-1].strip("= ")
        lines.append(f"- compute-sanitizer, {name[:-4]}: {summary}")
lines += [
    "",
    "## Tuned",
    "",
    "Medians of interleaved rounds, CUDA events around batches of launches of at least 100 µs, on a cold "
    "L2 (as many copies of the inputs as it takes), two input sets; no verdict with error control yet, so differences of a few percent between configs mean nothing. "
    "Spread is half the interquartile range over the median, of the race. Time and baseline (its default config) are of fresh rounds "
    "that only these two took part in.",
    "",
    "| heads | topk | tokens | selected | µs | spread | baseline µs | gain |",
    "|---|---|---|---|---|---|---|---|",
]
for name in sorted(os.listdir(out)):
    match = re.fullmatch(r"tune-h(\d+)-k(\d+)\.json", name)
    if not match:
        continue
    tune = load(name)
    tune["pruned_count"] = len(tune.pop("pruned"))
    tune["trials"] = [trial for trial in tune["trials"] if trial["screen_us"] >= 0]
    keep(name, tune)
    for selection in tune["selections"]:
        spread = next(
            (
                trial["spread"]
                for trial in tune["trials"]
                if trial["variant"] == selection["variant"]
                and trial["config"] == selection["config"]
                and trial["axes"]["num_tokens"] == selection["key"]["num_tokens"]
            ),
            float("nan"),
        )
        config = ", ".join(
            f"{key} {value}"
            for key, value in selection["config"].items()
            if key in ("BLOCK_H", "BLOCK_T", "TARGET_CTAS", "NSPLIT_MAX")
        )
        lines.append(
            f"| {match[1]} | {match[2]} | {selection['key']['num_tokens']} | {selection['variant']} ({config}) | "
            f"{selection['median_us']:.1f} | {100 * spread:.1f} % | {selection['incumbent_us']:.1f} | "
            f"{100 * selection['gain']:.0f} % |"
        )
with open(os.path.join(results, "README.md"), "w", encoding="utf-8") as file:
    file.write("\n".join(lines) + "\n")
