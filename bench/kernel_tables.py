#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of what kvr-kernels-bench wrote.

  kernel_tables.py RESULT.json...                      to standard output
  kernel_tables.py RESULT.json... --update PAGE.md     between <!-- table OP --> and <!-- end -->

A decode operation has a table a head count: the same rows' gather, the fastest exact variant, the
first baseline. A moe operation has one a model, with the line that its variants follow over the
active experts: least squares through the rows that share a variant and have no trouble.
"""
import argparse
import collections
import json
import re


def exact(rows):
    return [row for row in rows if row["semantics"] == "exact"]


def best_of(rows):
    selected = [row for row in exact(rows) if row["selected"]]
    return selected[0] if selected else min(exact(rows), key=lambda row: row["us"])


def by(rows, *fields):
    groups = collections.OrderedDict()
    for row in rows:
        groups.setdefault(tuple(row.get(field) for field in fields), []).append(row)
    return groups


def shapes(rows):
    groups = collections.OrderedDict()
    for row in rows:
        groups.setdefault(json.dumps(row["axes"], sort_keys=True), []).append(row)
    return groups.values()


def spread(rows):
    found = [row["aa"] for row in rows if "aa" in row]
    return f"{100 * found[0]:+.2f} %" if found else "–"


def config_text(row):
    return f"{row['variant']} {{{row['config']}}}" if row["config"] else row["variant"]


def line_fit(points):
    """Intercept, slope and R² of least squares; None for fewer than three different x."""
    if len({x for x, _ in points}) < 3:
        return None
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    intercept = mean_y - slope * mean_x
    rest = sum((y - intercept - slope * x) ** 2 for x, y in points)
    total = sum((y - mean_y) ** 2 for _, y in points)
    return intercept, slope, 1 - rest / total if total > 0 else 1.0


def decode_tables(rows):
    lines = []
    for (heads,), of_heads in by(rows, "num_qo_heads").items():
        lines += [f"{heads} heads:", "", "| topk | tokens | gather µs | fastest µs | × gather | A/A | baseline µs | fastest |",
                  "|--:|--:|--:|--:|--:|--:|--:|---|"]
        for shape in shapes(of_heads):
            best = best_of(shape)
            baseline = next((f"{row['us']:.2f}" for row in shape if row["variant"] == "baseline"), "–")
            lines.append(f"| {best['topk']} | {best['num_tokens']} | {best['gather_us']:.2f} | {best['us']:.2f} | "
                         f"{best['us'] / best['gather_us']:.2f} | {spread(shape)} | {baseline} | {config_text(best)} |")
        lines.append("")
    return lines


def approximate_table(of_model):
    """Speed and quality together; `against` is the fastest exact variant at the same shape."""
    lines = []
    for shape in shapes(of_model):
        best = best_of(shape)
        for row in [row for row in shape if "quality" in row]:
            quality = row["quality"]  # the first output's is the layer's
            error = next(value for name, value in quality.items() if name.endswith(".relative_error"))
            lines.append(f"| {row['num_tokens']} | {config_text(row)} | {row['active_experts']:g} of {best['active_experts']:g} | "
                         f"{row['us']:.1f} | {100 * (row['us'] / best['us'] - 1):+.1f} % of {best['variant']} | "
                         f"{error:.3f} | {100 * quality['experts_changed']:.0f} % | "
                         f"{quality['mass_kept']:.3f} |")
    if not lines:
        return []
    return ["| tokens | approximate | active experts | µs | against | relative error | tokens changed | mass kept |",
            "|--:|---|--:|--:|--:|--:|--:|--:|"] + lines + [""]


def moe_tables(rows):
    lines = []
    for (model, scaled), of_model in by(rows, "shape", "scaled").items():
        lines += [f"{model} ({scaled}):" if scaled else f"{model}:", "",
                  "| tokens | active experts | stream µs | fastest µs | × stream | over µs | A/A | topk µs | fastest |",
                  "|--:|--:|--:|--:|--:|--:|--:|--:|---|"]
        for shape in shapes(of_model):
            row = best_of(shape)
            baseline = next((f"{row['us']:.1f}" for row in shape if row["variant"] == "topk"), "–")
            lines.append(f"| {row['num_tokens']} | {row['active_experts']:g} | {row['stream_us']:.1f} | "
                         f"{row['us']:.1f} | {row['us'] / row['stream_us']:.2f} | {row['us'] - row['stream_us']:.1f} | "
                         f"{spread(shape)} | {baseline} | {config_text(row)} |")
        lines += [""] + approximate_table(of_model)
        fits = {"stream": [(row["active_experts"], row["stream_us"]) for row in exact(of_model)]}
        for (variant,), of_variant in by(of_model, "variant").items():
            timed = [row for row in of_variant if "trouble" not in row]
            fits[variant] = [(row["active_experts"], row["us"]) for row in timed]
            batches = by(timed, "num_tokens")
            for (tokens,), of_batch in batches.items() if len(batches) > 1 else ():
                fits[f"{variant}, {tokens} tokens"] = [(row["active_experts"], row["us"]) for row in of_batch]
        fitted = [(name, line_fit(points)) for name, points in fits.items()]
        if any(fit for _, fit in fitted):
            lines += ["| over active experts T | µs | R² |", "|---|---|--:|"]
            lines += [f"| {name} | {fit[0]:.1f} + {fit[1]:.3f} · T | {fit[2]:.5f} |" for name, fit in fitted if fit]
            lines.append("")
    return lines


def tables(document):
    if not document["rows"]:
        return ["Nothing was measured.", ""]
    environment = document["environment"]
    lines = [f"`{document['op']}` on {environment['device']}, driver {environment['driver']}, {environment['date']}, "
             f"{environment['mode']}; {max(row['rounds'] for row in document['rows'])} rounds a shape.", ""]
    short = sum("cut_short" in row for row in document["rows"])
    if short:
        lines += [f"{short} of {len(document['rows'])} rows were cut short by a budget: fewer configs or rounds.", ""]
    moe = "active_experts" in document["rows"][0]
    return lines + (moe_tables if moe else decode_tables)(document["rows"])


def update(page, documents):
    with open(page, encoding="utf-8") as file:
        text = file.read()
    for document in documents:
        op = document["op"]
        pattern = re.compile(rf"(<!-- table {re.escape(op)} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"{page} has no place for {op}: add the lines <!-- table {op} --> and <!-- end -->")
        text = pattern.sub(lambda found: found[1] + "\n" + "\n".join(tables(document)) + found[2], text)
    with open(page, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+")
    parser.add_argument("--update", metavar="PAGE.md")
    options = parser.parse_args()
    documents = []
    for path in options.results:
        with open(path, encoding="utf-8") as file:
            documents.append(json.load(file))
    if options.update:
        update(options.update, documents)
        return
    for document in documents:
        print("\n".join([f"## {document['op']}", ""] + tables(document)))


if __name__ == "__main__":
    main()
