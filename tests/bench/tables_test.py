#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of results, from made-up rows.

  tables_test.py SOURCE_DIR
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = sys.argv.pop(1)
PAGE = os.path.join(SOURCE, "docs/performance.md")


def row(tokens, active, variant, us, *, op_axes, **fields):
    made = {"shape": "deepseek-v3", "num_tokens": tokens, "active_experts": active, "variant": variant,
            "semantics": "exact", "us": us, "stream_us": 2.5 + 10 * active, "selected": False, "config": "STAGES=3",
            "rounds": 16, "axes": op_axes}
    made.update(fields)
    return made


def fp8_document():
    """What the benchmark writes of moe_decode_fp8: a rank of eight, two exact variants, one opt-in."""
    rows = []
    for tokens, active, correlation in ((1, 1, 0), (8, 7, 0), (16, 13, 0), (32, 20, 0), (64, 27, 0), (16, 9, 675)):
        fields = {"op_axes": {"seq_len": tokens, "correlation": correlation, "num_local_experts": 32},
                  "scaled": "32 of 256 experts: one rank of eight"}
        rows.append(row(tokens, active, "topk", 20 + 12 * active, **fields))
        rows.append(row(tokens, active, "stream", 10 + 11 * active, selected=True, aa=0.0012, config="WARPS=8", **fields))
        if correlation:
            quality = {"output.cosine_difference": 0.01, "output.relative_error": 0.125, "experts_changed": 0.5,
                       "mass_kept": 0.95, "active_experts": 6, "active_experts_exact": 9}
            rows.append(row(tokens, 6, "oea", 92.5, semantics="approximate", quality=quality, config="K0=4", **fields))
    return document("moe_decode_fp8", rows)


def document(op, rows):
    return {"op": op, "environment": {"device": "Some GPU", "driver": "1.2", "date": "2026-01-02", "mode": "graph cold"},
            "rows": rows, "left_out": []}


class Tables(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def run_tables(self, made, *arguments):
        result = os.path.join(self.directory.name, "result.json")
        with open(result, "w", encoding="utf-8") as file:
            json.dump(made, file)
        return subprocess.run([sys.executable, os.path.join(SOURCE, "bench/kernel_tables.py"), result, *arguments],
                              capture_output=True, text=True, check=False)

    def tables(self, made):
        done = self.run_tables(made)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def page(self):
        page = os.path.join(self.directory.name, "page.md")
        if not os.path.exists(page):
            shutil.copyfile(PAGE, page)
        return page

    def read_page(self):
        with open(self.page(), encoding="utf-8") as file:
            return file.read()

    def test_a_moe_operation_has_its_shapes_its_opt_ins_and_its_line(self):
        text = self.tables(fp8_document())
        for line in ("`moe_decode_fp8` on Some GPU, driver 1.2, 2026-01-02, graph cold; 16 rounds a shape.",
                     "deepseek-v3 (32 of 256 experts: one rank of eight):",
                     "| 1 | 1 | 12.5 | 21.0 | 1.68 | 8.5 | +0.12 % | 32.0 | stream {WARPS=8} |",
                     "| 64 | 27 | 272.5 | 307.0 | 1.13 | 34.5 | +0.12 % | 344.0 | stream {WARPS=8} |",
                     "| 16 | oea {K0=4} | 6 of 9 | 92.5 | -15.1 % of stream | 0.125 | 50 % | 0.950 |",
                     "| stream | 10.0 + 11.000 · T | 1.00000 |", "| topk | 20.0 + 12.000 · T | 1.00000 |"):
            self.assertIn(line + "\n", text)

    def test_rows_that_a_budget_cut_short_are_told(self):
        made = fp8_document()
        self.assertNotIn("cut short", self.tables(made))
        made["rows"][0]["cut_short"] = ["4 of 16 rounds were taken"]
        self.assertIn("1 of 13 rows were cut short by a budget", self.tables(made))

    def test_every_table_is_whole(self):
        columns = None
        for line in self.tables(fp8_document()).splitlines():
            if not line.startswith("|"):
                columns = None
                continue
            columns = columns or line.count("|")
            self.assertEqual(line.count("|"), columns, line)
            self.assertNotIn("None", line)

    def test_a_whole_model_and_one_made_smaller_are_tables_of_their_own(self):
        whole = row(16, 13, "topk", 176, op_axes={"num_experts": 256})
        smaller = row(16, 8, "topk", 116, op_axes={"num_experts": 32}, scaled="32 of 256 experts")
        text = self.tables(document("moe_decode", [whole, smaller]))
        self.assertIn("deepseek-v3:\n", text)
        self.assertIn("deepseek-v3 (32 of 256 experts):\n", text)

    def test_the_page_has_a_place_for_each_operation_that_the_benchmark_knows(self):
        for op in ("mla_sparse_decode", "mla_sparse_decode_fp8", "mla_sparse_decode_fp8_v32", "moe_decode",
                   "moe_decode_fp8"):
            with self.subTest(op=op):
                before = self.read_page()
                done = self.run_tables(dict(fp8_document(), op=op), "--update", self.page())
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotEqual(self.read_page(), before)
                self.assertIn(f"<!-- table {op} -->\n\n`{op}` on Some GPU", self.read_page())

    def test_an_update_replaces_what_the_last_one_wrote_and_nothing_else(self):
        before = self.read_page()
        self.assertEqual(self.run_tables(fp8_document(), "--update", self.page()).returncode, 0)
        once = self.read_page()
        self.assertEqual(self.run_tables(fp8_document(), "--update", self.page()).returncode, 0)
        self.assertEqual(self.read_page(), once)
        begin, end = "<!-- table moe_decode_fp8 -->\n", "<!-- end -->"
        head, rest = once.split(begin)
        self.assertEqual(head, before.split(begin)[0])
        self.assertEqual(rest.split(end, 1)[1], before.split(begin)[1].split(end, 1)[1])

    def test_a_page_without_a_place_says_which_lines_make_one(self):
        done = self.run_tables(document("other", fp8_document()["rows"]), "--update", self.page())
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("<!-- table other -->", done.stderr)


if __name__ == "__main__":
    unittest.main()
