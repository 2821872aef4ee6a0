#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kvr command as scripts see it: JSON fields, exit codes, new variants without an edit.

  cli_test.py SOURCE_DIR BIN_DIR [unittest arguments]
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BINARIES = sys.argv[1:3]
OP = "mla_sparse_decode"
SMALL = "num_tokens=2,num_qo_heads=2,topk=8,page_size=8,num_pages=2"
STATUSES = {
    "PASSED", "INCORRECT_SHAPE", "INCORRECT_NUMERICAL", "INCORRECT_DTYPE", "RUNTIME_ERROR", "COMPILE_ERROR", "TIMEOUT",
}
EXTENDING = """schema = 1
op = "mla_sparse_decode"
name = "{name}"
version = "1.0.0"
description = "The baseline with other splits"
extends = {{ variant = "baseline", version = "1" }}

[tunables.MIN_CHUNK]
values = [8]
default = 8
scope = "launch"
description = "fewest slots of a split"
"""


class Kvr(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp()
        cls.environment = dict(os.environ, KVR_CACHE_DIR=os.path.join(cls.scratch, "cache"),
                               KVR_LEDGER_DIR="none")
        for name in list(cls.environment):
            if name.startswith(("KVR_MLA", "KVR_FORCE", "KVR_PLUGIN", "KVR_SELECTIONS")):
                del cls.environment[name]

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    def kvr(self, *arguments, code=0, binaries=BINARIES, environment=None):
        done = subprocess.run([os.path.join(binaries, "kvr"), *arguments], env=environment or self.environment,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def json(self, *arguments, **options):
        return json.loads(self.kvr(*arguments, "--json", **options).stdout)

    def bundle(self, root, name):
        directory = os.path.join(root, name)
        os.makedirs(directory)
        with open(os.path.join(directory, "variant.toml"), "w", encoding="utf-8") as file:
            file.write(EXTENDING.format(name=name))

    def broken(self, name, table):
        """A root with one bundle, the extended baseline and `table` besides."""
        root = os.path.join(self.scratch, name)
        self.bundle(root, name)
        with open(os.path.join(root, name, "variant.toml"), "a", encoding="utf-8") as file:
            file.write(table)
        return root

    def test_a_plan_that_divides_by_zero_is_a_failure_and_an_unmet_constraint_is_not(self):
        faulty = self.broken("divides", "\n[let]\nnsplit = \"min(ceildiv(TARGET_CTAS, unsplit_ctas), NSPLIT_MAX, "
                             "floordiv(topk, MIN_CHUNK - 8))\"\n")
        use = ("--plugins", faulty, "--device", "host", "--variant", "divides", "--axes", SMALL)
        report = self.json("verify", OP, *use, code=1)
        self.assertEqual([result["status"] for result in report["results"]], ["RUNTIME_ERROR"])
        self.assertIn("division by zero", report["results"][0]["reason"])
        self.assertEqual(report["skipped"], [])
        done = self.kvr("tune", OP, *use, code=1)
        self.assertIn("division by zero", done.stdout)
        self.assertIn("no config of 'divides' passed", done.stdout)
        self.assertIn("0 configs pruned", done.stdout)

        narrow = self.broken("narrow", "")
        manifest = os.path.join(narrow, "narrow/variant.toml")
        with open(manifest, encoding="utf-8") as file:
            text = file.read()
        with open(manifest, "w", encoding="utf-8") as file:
            file.write(text.replace("extends =", "constraints = [\"topk > 4000\"]\nextends ="))
        report = self.json("verify", OP, "--plugins", narrow, "--device", "host", "--axes", SMALL)
        skipped = [skip["reason"] for skip in report["skipped"] if skip["variant"] == "narrow"]
        self.assertEqual(len(skipped), 1)
        self.assertIn("topk > 4000; choose", skipped[0])

    def test_what_plugins_names_must_not_be_refused(self):
        root = self.broken("refused", "\n[lets]\nx = 1\n")
        self.json("list", "--plugins", root, code=1)
        self.json("list", "--plugins", "/no/such/root", code=1)
        done = self.kvr("list", "mine", "--plugins", root, code=2)
        self.assertIn("lets", done.stderr)
        self.kvr("verify", OP, "--plugins", root, "--device", "host", "--variant", "w8", "--axes", SMALL, code=1)
        searched = dict(self.environment, KVR_PLUGIN_PATH=root)
        self.assertEqual(len(self.json("list", environment=searched)["rejected"]), 1)

    def test_a_manifest_that_is_a_link_out_of_its_root_is_refused_there(self):
        for target in ("/dev/zero", "variant.toml"):  # the latter to itself
            root = tempfile.mkdtemp(dir=self.scratch)
            os.mkdir(os.path.join(root, "linked"))
            os.symlink(target, os.path.join(root, "linked/variant.toml"))
            report = self.json("list", "--plugins", root, code=1)
            self.assertEqual(len(report["rejected"]), 1)

    def test_tune_says_how_each_variant_did_and_where_the_selections_are_once(self):
        done = self.kvr("tune", OP, "--device", "host", "--axes", SMALL)
        self.assertIn("best config", done.stdout)
        self.assertEqual(done.stdout.count("not stored"), 1)
        self.assertIn("--variant batch_key", done.stdout)  # which brings a key policy, and so was skipped
        last = [line for line in done.stderr.splitlines() if line.startswith("verify ")][-1]
        count, total = last.split()[1].split("/")
        self.assertEqual(count, total)

    def test_list_has_the_fields_scripts_read(self):
        ops = {op["name"]: op["variants"] for op in self.json("list")["ops"]}
        names = [variant["name"] for variant in ops[OP]]
        self.assertEqual(names[0], "baseline")
        self.assertLessEqual({"baseline", "batch_key", "w8", "s3"}, set(names))
        for variant in ops[OP]:
            self.assertLessEqual({"name", "semantics", "plugin", "version", "state"}, set(variant))
        cluster = {variant["name"]: variant for variant in ops["mla_sparse_decode_fp8_v32"]}["cluster"]
        self.assertEqual(cluster["extends"], "mla_sparse_decode_fp8/cluster")
        bundles = {os.path.basename(file): file.split(":")[1] for file in cluster["files"]}
        self.assertEqual(bundles["row.cuh"], "mla_sparse_decode_fp8_v32/cluster/row.cuh")
        self.assertEqual(bundles["decode.cu"], "mla_sparse_decode_fp8/cluster/decode.cu")

    def test_compile_hits_the_cache_the_second_time(self):
        fresh = dict(self.environment, KVR_CACHE_DIR=os.path.join(self.scratch, "fresh"))
        for cache in ("miss", "hit"):
            binaries = self.json("compile", OP, "--variant", "baseline", "--variant", "w8", "--target", "host",
                                 environment=fresh)["binaries"]
            self.assertEqual({binary["cache"] for binary in binaries}, {cache})
        for binary in binaries:
            self.assertLessEqual({"variant", "config", "target", "status", "registers", "smem_static", "smem_dynamic",
                                  "spill_bytes", "binary_bytes", "cache", "ms"}, set(binary))
            self.assertEqual(binary["status"], "PASSED")

    def test_compile_says_null_of_shared_memory_that_it_does_not_know(self):
        def dynamic(axes):
            report = self.json("compile", OP, "--variant", "baseline", "--target", "host", "--axes", axes)
            return report["binaries"][0]["smem_dynamic"]

        self.assertGreater(dynamic(SMALL), 0)
        self.assertIsNone(dynamic("num_tokens=70000"))  # more than a grid has

    def test_verify_passes_on_several_shapes(self):
        report = self.json("verify", OP, "--device", "host", "--axes", SMALL, "--axes", SMALL.replace("topk=8", "topk=1"))
        self.assertGreaterEqual(len(report["results"]), 6)
        for result in report["results"]:
            self.assertLessEqual({"variant", "config", "axes", "device", "status", "max_abs", "max_rel"}, set(result))
            self.assertIn(result["status"], STATUSES)
            self.assertEqual(result["status"], "PASSED", result)
        self.assertEqual({result["axes"]["topk"] for result in report["results"]}, {1, 8})
        self.assertIn("skipped", report)

    def test_an_empty_batch_passes(self):
        report = self.json("verify", OP, "--device", "host", "--axes", SMALL.replace("num_tokens=2", "num_tokens=0"))
        self.assertEqual({result["status"] for result in report["results"]}, {"PASSED"})

    def test_tune_selects_and_run_launches_the_selection(self):
        selections = os.path.join(self.scratch, "selections.json")
        report = self.json("tune", OP, "--device", "host", "--axes", SMALL, "--selections", selections)
        self.assertEqual(len(report["selections"]), 1)
        selection = report["selections"][0]
        self.assertLessEqual({"key", "variant", "config", "median_us", "tried"}, set(selection))
        self.assertGreater(selection["median_us"], 0)
        for pruned in report["pruned"]:
            self.assertTrue(pruned["variant"] and pruned["config"] and pruned["reason"])
        run = self.json("run", OP, "--device", "host", "--axes", SMALL, "--selections", selections)["results"][0]
        self.assertEqual((run["variant"], run["config"]), (selection["variant"], selection["config"]))
        self.assertEqual((run["why"], run["status"]), ("selected", "PASSED"))

    def test_a_forced_variant_is_the_one_that_runs(self):
        self.environment["KVR_FORCE_MLA_SPARSE_DECODE"] = "w8"
        try:
            run = self.json("run", OP, "--device", "host", "--axes", SMALL)["results"][0]
        finally:
            del self.environment["KVR_FORCE_MLA_SPARSE_DECODE"]
        self.assertEqual((run["variant"], run["status"]), ("w8", "PASSED"))
        self.assertIn("KVR_FORCE", run["why"])

    def test_explain_gives_the_campaigns_grid(self):
        report = self.json("explain", OP, "--profile", "rtx-pro-6000-blackwell", "--axes",
                           "num_tokens=96,num_qo_heads=32,topk=512,page_size=64", "--set", "BLOCK_H=16", "--set",
                           "TARGET_CTAS=256")
        self.assertEqual(report["ctas"], 384)
        self.assertLessEqual({"device", "kernels", "ctas", "ctas_per_sm", "waves", "tail_ctas", "tail_utilisation",
                              "occupancy", "limiter", "bytes", "floor_us"}, set(report))
        for kernel in report["kernels"]:
            self.assertLessEqual({"name", "grid", "block", "smem_bytes"}, set(kernel))

    def test_a_bundle_outside_the_tree_is_listed_and_tuned(self):
        root = os.path.join(self.scratch, "outside")
        self.bundle(root, "mine")
        names = [variant["name"] for variant in self.json("list", OP, "--plugins", root)["ops"][0]["variants"]]
        self.assertIn("mine", names)
        report = self.json("tune", OP, "--plugins", root, "--device", "host", "--variant", "mine", "--axes", SMALL)
        self.assertIn("mine", {trial["variant"] for trial in report["trials"]})
        self.assertEqual({trial["status"] for trial in report["trials"]}, {"PASSED"})

    def test_a_directory_added_to_the_built_in_ones_is_listed_and_tuned(self):
        prefix = os.path.join(self.scratch, "prefix")
        os.makedirs(os.path.join(prefix, "bin"))
        for name in ("kvr", "kvr-worker"):
            shutil.copy(os.path.join(BINARIES, name), os.path.join(prefix, "bin", name))
        lib = os.path.join(os.path.dirname(BINARIES), "lib")
        plugins = os.path.join(prefix, "lib/kvr/plugins")
        shutil.copytree(os.path.join(lib, "kvr/plugins"), plugins)
        os.symlink(os.path.join(lib, "libkvr_host.so"), os.path.join(prefix, "lib/libkvr_host.so"))
        os.makedirs(os.path.join(prefix, "share/kvr"))
        for name, source in (("sdk", "sdk"), ("profiles", "devices/profiles")):
            os.symlink(os.path.join(SOURCE, source), os.path.join(prefix, "share/kvr", name))
        self.bundle(plugins, "added")
        binaries = os.path.join(prefix, "bin")
        names = [variant["name"] for variant in self.json("list", OP, binaries=binaries)["ops"][0]["variants"]]
        self.assertIn("added", names)
        report = self.json("tune", OP, "--device", "host", "--variant", "added", "--axes", SMALL, binaries=binaries)
        self.assertIn("added", {trial["variant"] for trial in report["trials"]})

    def test_a_refused_bundle_is_named_with_the_fix(self):
        root = os.path.join(self.scratch, "broken")
        self.bundle(root, "broken")
        with open(os.path.join(root, "broken/variant.toml"), "a", encoding="utf-8") as file:
            file.write("\n[lets]\nx = 1\n")
        rejected = self.json("list", "--plugins", root, code=1)["rejected"]
        self.assertEqual(len(rejected), 1)
        self.assertIn("lets", rejected[0]["what"])
        self.assertTrue(rejected[0]["fix"])
        done = self.kvr("verify", OP, "--plugins", root, "--device", "host", "--variant", "baseline", "--axes", SMALL,
                        code=1)
        self.assertIn("lets", done.stderr)

    def test_wrong_input_is_one_line_of_what_and_one_of_the_fix(self):
        for arguments, said in (
            (("verify", "mla_sparse_decod"), "mla_sparse_decode"),
            (("verify", OP, "--axes", "topkk=3"), "topk"),
            (("verify", OP, "--axes", "topk=-3"), "topk"),
            (("compile", OP, "--target", "sm_90"), "sm_90a"),
            (("compile", OP, "--set", "BLOCK_H=17"), "16"),
            (("compile", OP, "--variant", "w9"), "w8"),
            (("explain", OP, "--profile", "h201"), "h200"),
            (("run", OP, "--selections", "/no/such/file"), "/no/such/file"),
            (("tune", OP, "--selections", "/no/such/directory/file"), "/no/such/directory"),
            (("tune", OP, "--set", "BLOCK_H=16", "--selections", "file"), "--set"),
            (("explain", OP, "--profile", "h200", "--device", "host"), "--profile"),
            (("verify", OP, "--timeout", "-1"), "--timeout"),
            (("verifi", OP), "verifi"),
            (("cache", "lss"), "'ls'"),
            (("verify", OP, "--axes", "topk=-1"), "negative"),
        ):
            done = self.kvr(*arguments, code=2)
            self.assertEqual(done.stdout, "", arguments)
            self.assertIn(said, done.stderr, arguments)
            self.assertLessEqual(len(done.stderr.strip().splitlines()), 2, done.stderr)
            error = self.json(*arguments, code=2)["error"]
            self.assertTrue(error["code"] and error["what"] and error["fix"], error)

    def test_a_constraint_that_is_not_met_names_operation_and_variant(self):
        for op, *arguments in (("moe_decode", "--variant", "oea", "--set", "K0=8"),
                               (OP, "--variant", "wide", "--axes", "num_qo_heads=16")):
            refused = self.kvr("explain", op, "--profile", "h200", *arguments, code=1)
            self.assertIn(f"{op}/{arguments[1]}: constraint not met", refused.stderr)

    def test_a_write_that_fails_is_a_failure(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([os.path.join(BINARIES, "kvr"), "list"], stdout=full, stderr=subprocess.PIPE,
                                  env=self.environment, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("standard output", done.stderr)

    def test_a_selection_that_no_longer_holds_is_named(self):
        root = os.path.join(self.scratch, "gone")
        self.bundle(root, "gone")
        selections = os.path.join(self.scratch, "gone.json")
        self.json("tune", OP, "--plugins", root, "--device", "host", "--variant", "gone", "--axes", SMALL,
                  "--selections", selections)
        with open(selections, encoding="utf-8") as file:
            selected = json.load(file)["ops"][OP]["selections"][0]["variant"]
        run = self.json("run", OP, "--device", "host", "--axes", SMALL, "--selections", selections)
        self.assertEqual([drop["variant"] for drop in run["dropped"]], ["gone"] if selected == "gone" else [])

    def test_what_a_compiler_quotes_lines_up_and_steers_no_terminal(self):
        root = os.path.join(self.scratch, "loud")
        self.bundle(root, "loud")
        with open(os.path.join(root, "loud", "variant.toml"), "r+", encoding="utf-8") as file:
            manifest = file.read().replace("\n[tunables", 'sources = ["merge.cu"]\n\n[tunables', 1)
            file.seek(0)
            file.write(manifest)
        with open(os.path.join(root, "loud", "merge.cu"), "w", encoding="utf-8") as file:
            file.write('#error "\x1b[2J"\n__global__ void mla_merge();\n')
        done = self.kvr("tune", OP, "--plugins", root, "--device", "host", "--variant", "loud", "--axes", SMALL, code=1)
        self.assertIn("#error", done.stderr)
        self.assertNotIn("\x1b", done.stdout + done.stderr)
        self.assertIn("\n  __global__ void mla_merge();\n                  ^", done.stdout)

    def test_every_subcommand_has_an_example(self):
        for name in ("doctor", "list", "compile", "verify", "tune", "run", "explain", "cache"):
            text = self.kvr(name, "--help").stdout
            self.assertIn("Example:", text)
            self.assertIn("Exit codes:", text)

    def test_cache_ls_lists_what_was_compiled(self):
        self.kvr("compile", OP, "--target", "host", "--variant", "w8")
        report = self.json("cache", "ls")
        self.assertTrue(report["entries"])
        self.assertTrue(all(entry["valid"] for entry in report["entries"]))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
