#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A directory added under variants/ is built and listed without any edit, one removed is gone: in a copy of
what the build takes of the tree, with nothing there but variants/null.

  added_directory_test.py SOURCE_DIR BIN_DIR CMAKE [unittest arguments]
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BINARIES, CMAKE = sys.argv[1:4]
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(kvr VERSION 0.1.0 LANGUAGES C CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
list(APPEND CMAKE_MODULE_PATH ${CMAKE_SOURCE_DIR}/cmake)
find_package(Threads REQUIRED)
include(kvr_targets)
add_subdirectory(sdk)
add_subdirectory(variants)
"""


class AddedDirectory(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        for house in ("cmake", "sdk", "variants"):
            # Of the operations `null` alone: the smallest is enough, and builds fastest.
            shutil.copytree(os.path.join(SOURCE, house), self.path(house),
                            ignore=shutil.ignore_patterns("*_decode*"))
        with open(self.path("CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(PROJECT)
        subprocess.run([CMAKE, "-G", "Ninja", "-S", self.root, "-B", self.path("build")], check=True,
                       stdout=subprocess.DEVNULL)
        os.makedirs(self.path("build/bin"))
        shutil.copy(os.path.join(BINARIES, "kvr"), self.path("build/bin/kvr"))

    def tearDown(self):
        shutil.rmtree(self.root)

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def clone(self, source, target, name, files):
        """Copies a directory of variants/ and gives it another name, in the files that state it."""
        shutil.copytree(self.path("variants", source), self.path("variants", target))
        for file in files:
            path = self.path("variants", target, file)
            with open(path, encoding="utf-8") as stream:
                text = stream.read()
            text = text.replace(f'"{os.path.basename(source)}"', f'"{name}"').replace("baseline = true", "")
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)

    def variants(self):
        """Builds, and lists what is there: {op: {variant: plugin}}."""
        subprocess.run([CMAKE, "--build", self.path("build")], check=True, stdout=subprocess.DEVNULL)
        environment = {"PATH": os.environ["PATH"], "HOME": self.root}
        listed = subprocess.run([self.path("build/bin/kvr"), "list", "--json"], env=environment, check=True,
                                capture_output=True, text=True)
        report = json.loads(listed.stdout)
        self.assertEqual(report["rejected"], [])
        return {op["name"]: {v["name"]: v["plugin"] for v in op["variants"]} for op in report["ops"]}

    def test_what_is_added_is_there_and_what_is_removed_is_gone(self):
        shipped = self.variants()
        self.assertEqual(set(shipped), {"null"})

        self.clone("null/baseline", "null/added", "added", ["variant.toml"])
        self.clone("null/planned", "null/coded", "coded", ["variant.toml", "plan.c"])
        # A compiled variant links what its operation has beside op.c.
        with open(self.path("variants/null/shared.c"), "w", encoding="utf-8") as file:
            file.write("int shared(void);\nint shared(void) { return 1; }\n")
        with open(self.path("variants/null/coded/plan.c"), "a", encoding="utf-8") as file:
            file.write("int shared(void);\nint uses_shared(void);\nint uses_shared(void) { return shared(); }\n")
        with_variants = self.variants()
        self.assertEqual(set(with_variants["null"]) - set(shipped["null"]), {"added", "coded"})
        self.assertEqual(with_variants["null"]["added"], "null")
        self.assertEqual(with_variants["null"]["coded"], "null.coded")

        self.clone("null", "other", "other", ["definition.json", "op.c"])
        for variant in ("baseline", "planned", "added", "coded"):
            shutil.rmtree(self.path("variants/other", variant))
        self.clone("null/baseline", "other/first", "other", [])
        manifest = self.path("variants/other/first/variant.toml")
        with open(manifest, encoding="utf-8") as file:
            text = file.read().replace('op = "null"', 'op = "other"')
        with open(manifest, "w", encoding="utf-8") as file:
            file.write(text)
        self.assertEqual(self.variants()["other"], {"baseline": "other"})

        for removed in ("other", "null/added", "null/coded"):
            shutil.rmtree(self.path("variants", removed))
        os.remove(self.path("variants/null/shared.c"))
        self.assertEqual(self.variants(), shipped)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
