#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvr cache: verify, prune, clear, and a layer made on one machine that serves another.

  cache_test.py SOURCE_DIR BIN_DIR [unittest arguments]
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

BINARIES = sys.argv[2]
OP = "mla_sparse_decode"


class Cache(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.filled = tempfile.mkdtemp()
        cls.base = {name: value for name, value in os.environ.items() if not name.startswith("KVR_CACHE")}
        targets = json.loads(cls.run_kvr("doctor", "--json", cache=cls.filled).stdout)["targets"]
        # A GPU's where there is NVRTC: then one machine has it and the other has not.
        cls.target = next((target for target in ("sm_90a", "host") if target in targets), None)
        if cls.target is None:
            raise unittest.SkipTest("nothing compiles here")
        done = cls.run_kvr("compile", OP, "--target", cls.target, "--json", cache=cls.filled)
        cls.binaries = len({(b["variant"], str(b["config"])) for b in json.loads(done.stdout)["binaries"]})

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.filled)

    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="kvr käche ")
        self.cache = os.path.join(self.scratch, "cache")
        shutil.copytree(self.filled, self.cache)

    def tearDown(self):
        shutil.rmtree(self.scratch)

    @classmethod
    def run_kvr(cls, *arguments, cache, **variables):
        environment = dict(cls.base, KVR_CACHE_DIR=cache, **variables)
        return subprocess.run([os.path.join(BINARIES, "kvr"), *arguments], env=environment, capture_output=True,
                              text=True, check=False)

    def kvr(self, *arguments, code=0, cache=None, **variables):
        done = self.run_kvr(*arguments, cache=cache or self.cache, **variables)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def json(self, *arguments, **options):
        return json.loads(self.kvr(*arguments, "--json", **options).stdout)

    def entries(self, cache=None):
        return self.json("cache", "ls", cache=cache)["entries"]

    def path(self, entry):
        return os.path.join(entry["layer"], "v2", entry["key"][:2], entry["key"])

    def compile(self, **options):
        return self.json("compile", OP, "--target", self.target, **options)["binaries"]

    def test_ls_tells_target_op_and_layer(self):
        entries = self.entries()
        self.assertTrue(entries)
        self.assertEqual({entry["layer"] for entry in entries}, {self.cache})
        self.assertEqual(self.json("cache", "ls", "--target", self.target)["entries"], entries)
        self.assertEqual(self.json("cache", "ls", "--target", "sm_80")["entries"], [])
        self.assertEqual(self.json("cache", "ls", "--op", OP)["entries"], entries)
        self.assertEqual(self.json("cache", "ls", "--op", "other")["entries"], [])

    def test_verify_names_what_is_damaged_and_exits_1(self):
        self.assertEqual(self.json("cache", "verify")["damaged"], [])
        path = self.path(self.entries()[0])
        with open(path, "r+b") as file:
            file.seek(100)
            byte = file.read(1)
            file.seek(100)
            file.write(bytes([byte[0] ^ 1]))
        report = self.json("cache", "verify", code=1)
        self.assertEqual([fault["path"] for fault in report["damaged"]], [path])
        self.assertIn(path, self.kvr("cache", "verify", code=1).stdout)
        # The next use heals it, and says so once.
        done = self.kvr("compile", OP, "--target", self.target)
        self.assertEqual(done.stderr.count("quarantine"), 1, done.stderr)
        self.assertEqual(self.json("cache", "verify")["quarantined"], 1)

    def test_prune_removes_what_it_says(self):
        count = len(self.entries())
        self.assertEqual(self.json("cache", "prune")["removed"], [])
        self.assertEqual(self.json("cache", "prune", "--older-than", "1d")["removed"], [])
        self.assertEqual(self.json("cache", "prune", "--target", "sm_80")["removed"], [])
        old = self.path(self.entries()[0])
        os.utime(old, (1, 1))
        self.assertEqual(self.json("cache", "prune", "--older-than", "30d")["removed"], [os.path.basename(old)])
        self.assertEqual(len(self.entries()), count - 1)
        self.assertEqual(len(self.json("cache", "prune", "--target", self.target)["removed"]), count - 1)
        self.kvr("cache", "prune", "--older-than", "3", code=2)
        self.kvr("cache", "prune", "--max-size", "lots", code=2)

    def test_prune_by_size_keeps_the_latest_used(self):
        entries = self.entries()
        kept = entries[0]
        for entry in entries[1:]:
            os.utime(self.path(entry), (1000, 1000))
        self.json("cache", "prune", "--max-size", str(kept["file_bytes"]))
        self.assertEqual([entry["key"] for entry in self.entries()], [kept["key"]])

    def test_clear_asks_and_tells(self):
        count = len(self.entries())
        error = self.json("cache", "clear", code=2)["error"]
        self.assertIn(str(count), error["what"])
        self.assertIn("--yes", error["fix"])
        self.assertEqual(len(self.entries()), count)
        self.assertEqual(len(self.json("cache", "clear", "--yes")["removed"]), count)
        self.assertEqual(self.entries(), [])

    def test_a_layer_serves_where_the_toolkit_is_the_same(self):
        layer = os.path.join(self.scratch, "layer")
        report = self.json("cache", "export", layer, "--target", self.target, "--op", OP)
        self.assertGreater(report["copied"], 0)
        moved = os.path.join(self.scratch, "shipped")
        os.rename(layer, moved)
        server = os.path.join(self.scratch, "server")
        binaries = self.compile(cache=server, KVR_CACHE_LAYERS=moved)
        self.assertEqual({binary["cache"] for binary in binaries}, {"hit"})
        self.assertEqual(self.entries(server), [])
        layers = [c for c in self.json("doctor", cache=server, KVR_CACHE_LAYERS=moved)["components"]
                  if c["name"] == "cache layer"]
        self.assertIn(self.target, layers[0]["found"])

    def test_a_layer_serves_where_there_is_no_compiler(self):
        if self.target == "host":
            self.skipTest("the host device brings its compiler")
        layer = os.path.join(self.scratch, "layer")
        self.json("cache", "export", layer)
        server = os.path.join(self.scratch, "server")
        self.kvr("compile", OP, "--target", self.target, cache=server, KVR_NO_CUDA="1", code=1)
        binaries = self.compile(cache=server, KVR_NO_CUDA="1", KVR_CACHE_LAYERS=layer)
        self.assertEqual({(binary["cache"], binary["status"]) for binary in binaries}, {("hit", "PASSED")})
        self.assertEqual(len(binaries), self.binaries)
        self.assertEqual(self.entries(server), [])

    def test_export_refuses_a_directory_of_other_things(self):
        directory = os.path.join(self.scratch, "home")
        os.mkdir(directory)
        with open(os.path.join(directory, "notes"), "w", encoding="utf-8"):
            pass
        self.assertIn("notes", self.json("cache", "export", directory, code=2)["error"]["what"])

    def test_import_merges_the_good_and_names_the_bad(self):
        layer = os.path.join(self.scratch, "layer")
        self.json("cache", "export", layer)
        entries = self.entries(layer)
        bad = self.path(entries[0])
        os.truncate(bad, 50)
        mine = os.path.join(self.scratch, "mine")
        report = self.json("cache", "import", layer, cache=mine, code=1)
        self.assertEqual([fault["path"] for fault in report["refused"]], [bad])
        self.assertEqual(report["copied"], len(entries) - 1)
        self.assertEqual(self.json("cache", "verify", cache=mine)["checked"], len(entries) - 1)
        self.json("cache", "import", os.path.join(self.scratch, "nowhere"), cache=mine, code=2)

    def test_a_missing_entry_of_a_layer_is_noticed(self):
        layer = os.path.join(self.scratch, "layer")
        self.json("cache", "export", layer)
        gone = self.path(self.entries(layer)[0])
        os.remove(gone)
        report = self.json("cache", "verify", code=1, KVR_CACHE_LAYERS=layer)
        self.assertEqual([fault["path"] for fault in report["damaged"]], [gone])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
