#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server boots from a selection file and a cache layer alone: the layer is made by one process, moved,
and booted from by another whose own cache is empty. Nothing compiles; no compiler and no SQLite is there.

  boot_example_test.py BUILD_DIR [unittest arguments]
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = sys.argv[1]
OP = "mla_sparse_decode"
SHAPE = "num_tokens=2,num_qo_heads=2,topk=8,page_size=8,num_pages=2"
BOOT = os.path.join(BUILD, "tests/kvr_boot")


class Boot(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp()
        cls.selections = os.path.join(cls.scratch, "selections.json")
        making = cls.environment("making")
        layer = os.path.join(cls.scratch, "layer")
        for arguments in (("tune", OP, "--device", "host", "--variant", "baseline", "--axes", SHAPE, "--selections",
                           cls.selections), ("cache", "export", layer, "--target", "host")):
            subprocess.run([os.path.join(BUILD, "bin/kvr"), *arguments], env=making, check=True, capture_output=True)
        cls.layer = os.path.join(cls.scratch, "layer that moved")
        os.rename(layer, cls.layer)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    @classmethod
    def environment(cls, cache):
        return {"PATH": os.environ["PATH"], "HOME": cls.scratch, "KVR_NO_CUDA": "1",
                "KVR_CACHE_DIR": os.path.join(cls.scratch, cache)}

    def boot(self, *arguments):
        return subprocess.run([BOOT, *arguments], env=self.environment("of the server"), capture_output=True, text=True,
                              check=False)

    def test_it_compiles_nothing_and_loads_no_compiler(self):
        done = self.boot("host", self.selections, self.layer, SHAPE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^0 compiles, [1-9]\d* binaries from the layer, 0 misses$")
        loaded = {os.path.basename(path) for path in re.findall(r"^loaded (.*)$", done.stdout, re.M)}
        self.assertIn("libkvr_host.so", loaded)  # the device itself; Clang lies in it
        for library in loaded:
            self.assertNotRegex(library, r"nvrtc|sqlite|clang|LLVM")

    def test_without_the_layer_it_says_what_is_missing(self):
        empty = os.path.join(self.scratch, "empty layer")
        os.makedirs(empty)
        done = self.boot("host", self.selections, empty, SHAPE)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(OP, done.stderr)

    def test_the_program_holds_neither_sqlite_nor_a_compiler(self):
        symbols = subprocess.run(["nm", "--demangle", BOOT], capture_output=True, text=True, check=True).stdout
        self.assertIn("kvr::Runtime::Open", symbols)
        for part in ("sqlite3_open", "SQLite::", "clang::", "kvr::Tune("):
            self.assertNotIn(part, symbols)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
