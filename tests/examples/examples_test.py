#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What contributors are told to do works: every command of docs/add-a-variant.md and of examples/plugins,
outside the tree, against an install.

  examples_test.py BUILD_DIR CMAKE [unittest arguments]
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, CMAKE = sys.argv[1:3]


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = os.path.join(tempfile.mkdtemp(), "with a space")
        cls.kvr = os.path.join(os.path.dirname(cls.scratch), "kvr")  # pkg-config and $() know no spaces
        for component in ("kvr", "host"):
            subprocess.run([CMAKE, "--install", BUILD, "--prefix", cls.kvr, "--component", component], check=True,
                           stdout=subprocess.DEVNULL)
        cls.documents = os.path.join(cls.kvr, "share/doc/kvr")
        cls.environment = {name: value for name, value in os.environ.items() if not name.startswith("KVR_")}
        cls.environment.update(KVR=cls.kvr, KVR_NO_CUDA="1", KVR_CACHE_DIR=os.path.join(cls.scratch, "cache"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(os.path.dirname(cls.scratch))

    def follow(self, document, directory):
        """Runs the document's shell blocks, as one script, in `directory`."""
        with open(os.path.join(self.documents, document), encoding="utf-8") as file:
            text = file.read()
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            source = os.path.join(self.documents, os.path.dirname(document), link)
            self.assertTrue(os.path.exists(source), f"{document}: a link leads nowhere: {link}")
        blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
        self.assertTrue(blocks, document)
        done = subprocess.run(["bash", "-euxo", "pipefail", "-c", "\n".join(blocks)], cwd=directory,
                              env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, f"{document}:\n{done.stdout}")
        return done.stdout

    def example(self, name):
        """Follows the example's README in a copy of all examples; the libraries it made."""
        directory = os.path.join(self.scratch, name)
        shutil.copytree(os.path.join(self.documents, "examples/plugins"), directory)
        output = self.follow(f"examples/plugins/{name}/README.md", os.path.join(directory, name))
        libraries = glob.glob(os.path.join(directory, name, "**/*.so"), recursive=True)
        self.assertTrue(libraries)
        for library in libraries:
            self.check_library(library)
        return output, libraries

    def check_library(self, library):
        symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
        self.assertLessEqual({line.split()[-1] for line in symbols.stdout.splitlines()}, {"kvr_plugin_v1"}, library)
        dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
        self.assertNotRegex(dynamic, "RPATH|RUNPATH", library)
        with open(library, "rb") as file:
            self.assertNotIn(os.path.dirname(self.scratch).encode(), file.read(), library)

    def test_add_a_variant(self):
        directory = os.path.join(self.scratch, "add a variant")
        os.makedirs(directory)
        output = self.follow("docs/add-a-variant.md", directory)
        for variant in ("mine", "narrow", "my_planned", "quick"):
            self.assertIn(variant, output)
        self.assertNotIn("GLOB mismatch", output)  # nothing changed between configuring and building

    def test_a_plugin_in_c(self):
        _, libraries = self.example("c")
        self.assertEqual(len(libraries), 2)  # by CMake, and by one command

    def test_a_plugin_in_cpp(self):
        self.example("cpp")

    def test_a_cubin_of_another_compiler(self):
        output, _ = self.example("cubin")
        self.assertIn("triton", output)
        self.assertNotIn("refused:", output)

    def test_work_that_another_library_enqueues(self):
        output, _ = self.example("external")
        self.assertIn("cublas", output)

    def test_an_edited_kernel_is_embedded_anew(self):
        directory = os.path.join(self.scratch, "edited")
        shutil.copytree(os.path.join(self.documents, "examples/plugins/cubin"), directory)
        build = [CMAKE, "--build", "build"]
        subprocess.run([CMAKE, "-S", ".", "-B", "build", "-DCMAKE_PREFIX_PATH=" + self.kvr], cwd=directory, check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run(build, cwd=directory, check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(directory, "triton/variant.toml"), "a", encoding="utf-8") as file:
            file.write("# edited\n")
        with open(os.path.join(directory, "triton/added.cuh"), "w", encoding="utf-8") as file:
            file.write("// added\n")
        subprocess.run(build, cwd=directory, check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(directory, "build/scale_rows_triton.so"), "rb") as file:
            library = file.read()
        self.assertIn(b"# edited", library)
        self.assertIn(b"// added", library)

    def test_a_debug_build_holds_no_path_of_this_machine(self):
        build = os.path.join(self.scratch, "debug build")
        subprocess.run([CMAKE, "-S", os.path.join(self.documents, "examples/plugins/c"), "-B", build,
                        "-DCMAKE_PREFIX_PATH=" + self.kvr, "-DCMAKE_BUILD_TYPE=Debug"], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run([CMAKE, "--build", build], check=True, stdout=subprocess.DEVNULL)
        self.check_library(os.path.join(build, "scale_rows.so"))

    def test_what_cannot_be_wrapped_is_refused_when_it_is_configured(self):
        directory = os.path.join(self.scratch, "refused")
        for bundle in ("one/same", "two/same"):
            os.makedirs(os.path.join(directory, bundle))
            with open(os.path.join(directory, bundle, "variant.toml"), "w", encoding="utf-8"):
                pass
        for arguments, said in (
            ("BUNDLES nowhere", "no variant.toml in"),
            ("VERSION 1.0.0", "nothing to wrap"),
            ("BUNDLES one/same VERSION 1", "MAJOR.MINOR.PATCH"),
            ("BUNDLES one/same DEFINITIONS one/op.json", "no file named definition.json"),
            ("BUNDLES one/same one/same", "one name"),
            ("BUNDLE one/same", "unknown arguments: BUNDLE"),
        ):
            with open(os.path.join(directory, "CMakeLists.txt"), "w", encoding="utf-8") as file:
                file.write("cmake_minimum_required(VERSION 3.18)\nproject(refused VERSION 1.0.0 LANGUAGES NONE)\n"
                           f"find_package(KVR REQUIRED)\nkvr_add_plugin(refused {arguments})\n")
            done = subprocess.run([CMAKE, "-S", directory, "-B", os.path.join(directory, "build"),
                                   "-DCMAKE_PREFIX_PATH=" + self.kvr], capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0, arguments)
            self.assertIn(said, " ".join(done.stderr.split()), arguments)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
