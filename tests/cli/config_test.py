#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvr config's table has every variable that the sources read, docs/options.md is that table, and
the values in effect are told with their origin.

  config_test.py SOURCE_DIR BIN_DIR [unittest arguments]
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE, BINARIES = sys.argv[1:3]
HOUSES = ("core", "devices", "jit", "plugins", "registry", "tuner", "api", "cli")
# A name of KVR's in quotes is a variable that is read; others are read by name through these.
NAMES = re.compile(r'"(KVR_[A-Z0-9_]*[A-Z0-9])"|(?:getenv|Environment|variable|envname)\("([A-Z0-9_]+)"\)')


def read_by_the_sources():
    names = {}
    for house in HOUSES:
        for directory, _, files in os.walk(os.path.join(SOURCE, house)):
            for file in files:
                path = os.path.join(directory, file)
                if not path.endswith((".cc", ".h")) or path.endswith("cli/config.cc"):
                    continue
                with open(path, encoding="utf-8") as text:
                    for match in NAMES.finditer(text.read()):
                        names.setdefault(match.group(1) or match.group(2), os.path.relpath(path, SOURCE))
    return names


class Config(unittest.TestCase):
    def kvr(self, *arguments, code=0, **environment):
        done = subprocess.run([os.path.join(BINARIES, "kvr"), *arguments], env=environment, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def settings(self, *arguments, **environment):
        return {setting["name"]: setting for setting in
                json.loads(self.kvr("config", "--json", *arguments, **environment))["settings"]}

    def test_the_table_has_every_variable_that_is_read_and_no_other(self):
        listed = {name for name in self.settings() if not name.startswith("--") and "<" not in name}
        read = read_by_the_sources()
        self.assertEqual({name: read[name] for name in set(read) - listed}, {}, "read, but not in cli/config.cc")
        self.assertEqual(listed - set(read), set(), "in cli/config.cc, but read nowhere")

    def test_the_table_has_every_global_option(self):
        options = set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", self.kvr("--help"), re.M))
        self.assertEqual(options, {name for name in self.settings() if name.startswith("--")})

    def test_the_docs_are_the_table(self):
        with open(os.path.join(SOURCE, "docs/options.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn(self.kvr("config", "--markdown"), text,
                      "replace the tables of docs/options.md by what `kvr config --markdown` prints")

    def test_the_value_in_effect_is_told_with_its_origin(self):
        for environment, value, origin in (
            ({"HOME": "/h"}, "/h/.cache/kvr", "HOME"),
            ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/kvr", "XDG_CACHE_HOME"),
            ({"HOME": "/h", "KVR_CACHE_DIR": "/k"}, "/k", "environment"),
        ):
            setting = self.settings(**environment)["KVR_CACHE_DIR"]
            self.assertEqual((setting["value"], setting["from"]), (value, origin))
        self.assertEqual(self.settings()["KVR_WORKER"]["value"], os.path.join(BINARIES, "kvr-worker"))
        missing = self.settings(KVR_SDK_DIR="/nowhere")["KVR_SDK_DIR"]
        self.assertIn("/nowhere", missing["value"])
        self.assertEqual(missing["from"], "environment")

    def test_overrides_are_listed_by_name(self):
        settings = self.settings(KVR_FORCE_MLA_SPARSE_DECODE="w8", KVR_MLA_SPARSE_DECODE_BLOCK_H="32")
        self.assertEqual(settings["KVR_FORCE_MLA_SPARSE_DECODE"]["value"], "w8")
        self.assertEqual(settings["KVR_MLA_SPARSE_DECODE_BLOCK_H"]["value"], "32")
        self.assertIn("KVR_FORCE_MLA_SPARSE_DECODE", self.kvr("config", code=2, KVR_FORCE_MLA_SPARSE_DECODE="w9"))

    def test_options_given_are_in_effect(self):
        with tempfile.TemporaryDirectory() as directory:
            setting = self.settings("--plugins", directory)["--plugins"]
            self.assertEqual((setting["value"], setting["from"]), (directory, "command line"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
