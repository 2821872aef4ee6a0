#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One table of what `kvr compile`, `verify` and `tune` said with --json: a row per variant.

summary.py [--compile FILE] [--verify DEVICE=FILE]... [--tune FILE]
Exits 1 if a binary failed to compile, a variant failed to verify, or nothing was selected.
"""

import argparse
import json
import sys
import textwrap


PASSED = "PASSED"
WIDTH = 100  # of what is wrapped


def load(path, key):
    if path is None:
        return []
    with open(path, encoding="utf-8") as file:
        return json.load(file).get(key, [])


def compiled(binaries):
    """What a variant's binary for one target uses, in a cell."""
    if not binaries:
        return "-"
    binary = binaries[0]
    if binary["status"] != PASSED:
        return binary["status"]
    uses = ["{} regs".format(binary["registers"])]
    if binary["smem_dynamic"] is not None:  # it fits the device at the shape asked for
        shared = binary["smem_static"] + binary["smem_dynamic"]
        uses.append("{:.1f} KiB".format(shared / 1024))
    if binary["spill_bytes"]:
        uses.append("{} B spilled".format(binary["spill_bytes"]))
    return ", ".join(uses)


def verified(results, skipped):
    """PASSED, or what went wrong first, or that it was not tried."""
    if not results:
        return "skipped" if skipped else "-"
    failed = [r["status"] for r in results if r["status"] != PASSED]
    return failed[0] if failed else "PASSED"


def of(variant, rows):
    return [row for row in rows if row["variant"] == variant]


def table(header, rows):
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    line = "  ".join("-" * width for width in widths)
    for row in [header, None, *rows]:
        print(line if row is None else "  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compile")
    parser.add_argument("--verify", action="append", default=[])
    parser.add_argument("--tune")
    options = parser.parse_args()

    binaries = load(options.compile, "binaries")
    selections = load(options.tune, "selections")
    devices = {}
    for argument in options.verify:
        device, path = argument.split("=", 1)
        devices[device] = (load(path, "results"), load(path, "skipped"))
    results = [row for rows, _ in devices.values() for row in rows]
    skipped = [row for _, rows in devices.values() for row in rows]

    targets = list(dict.fromkeys(b["target"] for b in binaries))
    names = {row["variant"] for row in [*binaries, *results, *skipped]}
    names |= {s["variant"] for s in selections if s["variant"]}
    variants = sorted(names, key=lambda name: (name != "baseline", name))
    rows = []
    for variant in variants:
        row = [variant]
        row += [verified(of(variant, r), of(variant, s)) for r, s in devices.values()]
        for target in targets:
            row.append(compiled([b for b in of(variant, binaries) if b["target"] == target]))
        keys = []
        for selection in of(variant, selections):
            key = ",".join("{}={}".format(*axis) for axis in selection["key"].items())
            keys.append("{} at {:.1f} us".format(key, selection["median_us"]))
        row.append("; ".join(keys) or "-")
        rows.append(row)
    table(["variant", *("verified on " + d for d in devices), *targets, "selected for"], rows)
    for device, (tried, left_out) in devices.items():
        for variant in variants:
            if of(variant, left_out) and not of(variant, tried):
                text = "{} skipped on {}: {}".format(variant, device, of(variant, left_out)[0]["reason"])
                print(textwrap.fill(text, WIDTH, subsequent_indent="  "))

    if binaries:
        hits = sum(binary["cache"] == "hit" for binary in binaries)
        print("\n{} GPU binaries: {} from the cache, {} compiled".format(
            len(binaries), hits, len(binaries) - hits))
    bad = [row for row in [*binaries, *results] if row["status"] != PASSED]
    if bad or not any(s["variant"] for s in selections):
        print("\nnot all is well: {} failed, {} selected".format(len(bad), len(selections)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
