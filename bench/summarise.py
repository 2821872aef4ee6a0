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

def dispatch(device):
    """Medians over the repetitions, of a row that is not there if the program was not run."""
    path = os.path.join(out, f"dispatch-{device}.json")
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        found = json.loads(re.sub(r"-?\bnan\b", "NaN", file.read()))
    fields = ("raw_ns", "ns", "own_ns", "ratio", "allocs", "locks")
    rows = {
        row["run_name"].replace("/manual_time", ""): {field: row[field] for field in fields}
        for row in found["benchmarks"]
        if row.get("aggregate_name") == "median"
    }
    context = {key: found["context"][key] for key in ("date", "num_cpus", "mhz_per_cpu", "load_avg", "device", "driver")}
    keep(f"dispatch-{device}.json", {"context": context, "rows": rows})
    lines.extend(["", f"Device {context['device']}, {context['num_cpus']} CPUs of {context['mhz_per_cpu']} MHz:", ""])
    lines.extend(["| call | raw ns | ns | KVR's own ns | × raw | allocations | locks |", "|---|--:|--:|--:|--:|--:|--:|"])
    for name, row in rows.items():
        lines.append(
            f"| {name} | {row['raw_ns']:.1f} | {row['ns']:.1f} | {row['own_ns']:.1f} | {row['ratio']:.2f} | "
            f"{row['allocs']:.0f} | {abs(row['locks']):.0f} |"
        )


if any(name.startswith("dispatch-") for name in os.listdir(out)):
    lines += [
        "",
        "## Launching",
        "",
        "`kvr-dispatch-bench`: a call through KVR and the raw driver call with arguments laid out already, in alternating "
        "batches of one loop; medians. `single` has one kernel, `empty` two and a workspace; `bound` is a BoundLaunch, "
        "`launch/loaded` and `launch/other` a shape that was loaded and another of its key, `other-random` another shape "
        "every time. Keys and threads are measured on the null device, which does nothing.",
    ]
    dispatch("cuda")
    dispatch("null")
with open(os.path.join(results, "README.md"), "w", encoding="utf-8") as file:
    file.write("\n".join(lines) + "\n")
