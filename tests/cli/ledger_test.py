#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvr ledger, why and selections as scripts see them, on a ledger of records that were imported: no
device and no compiler.

  ledger_test.py SOURCE_DIR BIN_DIR [unittest arguments]
"""
import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

SOURCE, BINARIES = sys.argv[1:3]
OP = "mla_sparse_decode"
CAMPAIGN = os.path.join(SOURCE, "tests/tuner/ledger/campaign.jsonl")
MODEL = "nvidia-h200"
AT = "num_tokens=64,topk=512"


class Ledger(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.mkdtemp()
        self.ledger = os.path.join(self.scratch, "ledger")
        self.environment = {"HOME": self.scratch, "PATH": os.environ["PATH"], "KVR_NO_CUDA": "1"}
        variants = {v["name"]: v for op in self.json("list", OP)["ops"] for v in op["variants"]}
        self.fingerprints = {name: variant["fingerprint"] for name, variant in variants.items()}
        self.versions = {name: variant["version"] for name, variant in variants.items()}
        self.axes = None

    def tearDown(self):
        shutil.rmtree(self.scratch)

    def kvr(self, *arguments, code=0, **environment):
        """Standard output; of a failure without --json, standard error."""
        done = subprocess.run([os.path.join(BINARIES, "kvr"), *arguments], env=dict(self.environment, **environment),
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 or "--json" in arguments else done.stderr

    def json(self, *arguments, **options):
        return json.loads(self.kvr(*arguments, "--json", **options))

    def path(self, name, content=None):
        path = os.path.join(self.scratch, name)
        if content is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
        return path

    def defaults(self, variant):
        """Config text of a variant's defaults, and every axis at AT, as `kvr explain` has them."""
        explained = self.json("explain", OP, "--profile", "h200", "--axes", AT, "--variant", variant)
        self.axes = ",".join(f"{name}={value}" for name, value in sorted(explained["axes"].items()))
        return explained["config"]

    def records(self, uuid="GPU-1", verdict="WIN", kind="ship", model=MODEL, w8_us=18.0):
        """A GPU's ledger: w8 against the baseline at AT, as JSON lines."""
        baseline, w8 = self.defaults("baseline"), self.defaults("w8")
        text = lambda config: ",".join(f"{name}={value}" for name, value in sorted(config.items()))
        environment = {"table": "environments", "uid": uuid, "device_kind": "cuda", "device_name": "NVIDIA H200",
                       "device_model": model, "device_uuid": uuid, "target": "sm_90a", "driver": "580",
                       "compiler": "nvrtc", "kvr_version": "0.1.0", "host": "node7"}
        common = {"environment": uuid, "op": OP, "axes": self.axes, "mode": "graph cold", "session": "s",
                  "time": "2026-11-30T12:00:00.000Z", "reason": ""}
        lines = [environment]
        for variant, config, us in (("baseline", baseline, 20.0), ("w8", w8, w8_us)):
            lines.append(dict(common, table="trials", uid=f"{uuid}-{variant}", variant=variant,
                              version=self.versions[variant], fingerprint=self.fingerprints[variant],
                              config=text(config), binary="", stage="ab", outcome="", status="PASSED", median_us=us,
                              spread=0.01, samples=[us + i % 5 for i in range(200)], clock_mhz=1980, throttle_bits=0))
        lines.append(dict(common, table="verdicts", uid=f"{uuid}-verdict", kind=kind, incumbent="baseline",
                          incumbent_fingerprint=self.fingerprints["baseline"], incumbent_config=text(baseline),
                          challenger="w8", challenger_fingerprint=self.fingerprints["w8"],
                          challenger_config=text(w8), verdict=verdict, difference=-0.105, low=-0.12, high=-0.09,
                          band=0, rounds=320, sessions=16))
        return "".join(json.dumps(line) + "\n" for line in lines)

    def filled(self, name, **options):
        directory = os.path.join(self.scratch, name)
        self.kvr("ledger", "import", self.path(name + ".jsonl", self.records(**options)), "--ledger", directory)
        return directory

    def test_an_absent_ledger_is_no_fault_of_ls_and_is_not_made(self):
        self.assertIn("there is no ledger", self.kvr("ledger", "ls"))
        self.assertEqual(self.json("ledger", "ls", "--ledger", self.ledger)["records"], [])
        self.assertIn("there is no ledger", self.kvr("ledger", "show", "ab", code=2))
        self.assertEqual(os.listdir(self.scratch), [])

    def test_the_directory_comes_from_the_option_then_the_environment(self):
        for environment, directory in (({}, ".local/state/kvr"), ({"XDG_STATE_HOME": self.path("x")}, "x/kvr"),
                                       ({"KVR_LEDGER_DIR": self.path("k")}, "k")):
            self.kvr("ledger", "import", CAMPAIGN, **environment)
            self.assertTrue(os.path.exists(os.path.join(self.scratch, directory, "ledger.db")), directory)
        for command in (("ls",), ("import", CAMPAIGN)):
            self.assertIn(f"{command[0]} needs a ledger: --ledger none names none",
                          self.kvr("ledger", *command, "--ledger", "none", code=2))

    def test_nothing_that_steers_a_terminal_is_printed(self):
        with open(CAMPAIGN, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        for line in lines:
            if "challenger" in line:
                line["challenger"] += "\u001b[2J\u0007\u009b31m"
        self.kvr("ledger", "import", self.path("steers.jsonl", "".join(json.dumps(line) + "\n" for line in lines)), "--ledger", self.ledger)
        shown = self.kvr("ledger", "ls", "--ledger", self.ledger)
        self.assertIn("[2J", shown)
        self.assertFalse([c for c in shown if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)], shown)

    def test_import_counts_and_takes_all_or_nothing(self):
        first = self.json("ledger", "import", CAMPAIGN, "--ledger", self.ledger)
        self.assertEqual((first["added"], first["known"]), (13, 0))
        again = self.json("ledger", "import", CAMPAIGN, "--ledger", self.ledger)
        self.assertEqual((again["added"], again["known"]), (0, 13))
        bad = self.path("bad", self.records() + "{}\n")
        self.assertIn("line 5 of the import has no 'table'",
                      self.kvr("ledger", "import", bad, "--ledger", self.ledger, code=2))
        self.assertEqual(len(self.json("ledger", "ls", "--limit", "0", "--ledger", self.ledger)["records"]), 12)

    def test_a_refused_import_leaves_nothing(self):
        bad = self.path("bad", self.records() + "{}\n")
        self.assertIn("line 5", self.kvr("ledger", "import", bad, "--ledger", self.ledger, code=2))
        self.assertFalse(os.path.exists(self.ledger))
        fleet = self.path("fleet.json")
        self.kvr("selections", "export", fleet, "--from-ledgers", self.filled("a"))
        before = sorted(os.listdir(self.scratch))
        self.kvr("selections", "import", fleet, "--selections", self.path("no.json"), "--profile", "l40s", code=1)
        self.assertEqual(sorted(os.listdir(self.scratch)), before)

    def test_what_is_exported_comes_back(self):
        directory = self.filled("a")
        file = self.path("out.jsonl")
        self.assertIn("4 records", self.kvr("ledger", "export", file, "--ledger", directory))
        self.assertEqual(self.json("ledger", "export", file, "--ledger", directory)["exported"], 4)
        with open(file, encoding="utf-8") as lines:
            text = lines.read()
        self.assertEqual(text, self.kvr("ledger", "export", "--ledger", directory))
        self.kvr("ledger", "import", file, "--ledger", self.ledger)
        self.assertEqual(text, self.kvr("ledger", "export", "--ledger", self.ledger))
        self.assertEqual([name for name in os.listdir(self.scratch) if name.endswith(".tmp")], [])

    def on_terminal(self, *arguments):
        """The lines on a terminal of 80 columns."""
        main, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        listing = subprocess.Popen([os.path.join(BINARIES, "kvr"), *arguments], stdout=terminal, env=self.environment)
        os.close(terminal)
        text = b""
        try:
            while part := os.read(main, 4096):
                text += part
        except OSError:  # what a terminal without a writer gives
            pass
        os.close(main)
        self.assertEqual(listing.wait(), 0)
        return text.decode().splitlines()

    def test_ls_fits_a_terminal(self):
        directory = self.filled("a", verdict="EQUIVALENT")
        lines = self.on_terminal("ledger", "ls", "--ledger", directory)
        self.assertLessEqual(max(len(line) for line in lines[:-1]), 80, lines)
        self.assertEqual(lines[0], f"{OP}, 2026-11-30 (UTC), at num_tokens=64")  # said once
        self.assertTrue(lines[3].endswith("ship EQUIVALENT -10.0 %"), lines[3])  # never cut
        self.kvr("ledger", "import", CAMPAIGN, "--ledger", directory)
        lines = self.on_terminal("ledger", "ls", "--ledger", directory)
        self.assertGreater(len(lines), 12)
        self.assertLessEqual(max(len(line) for line in lines[:-1]), 80, lines)
        self.assertIn("at: num_tokens", lines[0])
        self.assertTrue(any(line.endswith("96  table: INCONCLUSIVE") for line in lines), lines)

    def test_why_fits_a_terminal_and_compares_within_a_session(self):
        race = self.records().replace('"stage": "ab"', '"stage": "final"')
        other = self.records(uuid="GPU-1b").replace('"GPU-1b"', '"GPU-1"').replace('"session": "s"', '"session": "t"')
        shipped = other.replace("num_tokens=64", "num_tokens=16").replace(": 18.0,", ": 639.0,").splitlines()[2:]
        self.kvr("ledger", "import", self.path("both", race + "\n".join(shipped) + "\n"), "--ledger", self.ledger)
        file = self.path("file.json")
        self.kvr("selections", "export", file, "--from-ledgers", self.ledger)
        asked = ("why", OP, "--axes", AT, "--selections", file, "--ledger", self.ledger)
        lines = self.on_terminal(*asked)
        text = "\n".join(lines)
        self.assertLessEqual(max(map(len, lines)), 80, text)
        self.assertIn("last measured: 18.00 us at num_tokens=64, graph cold", text)
        self.assertIn("baseline: 20.00 us (+11.1 %)", text)
        self.assertNotIn("head_dim_ckv", text)
        why = self.json(*asked)
        self.assertEqual([other["median_us"] for other in why["runners_up"]], [20.0])
        self.assertIn("num_tokens=64", why["measured"]["axes"])

    def test_why_wants_a_device_model_that_it_can_answer_for(self):
        a = self.filled("a")
        self.assertIn("nvidia-h200", self.kvr("why", OP, "--model", "h200", "--ledger", a, code=2))
        broken = self.records(uuid="null-1", model="null", verdict="INVALID").replace("PASSED", "RUNTIME_ERROR")
        self.kvr("ledger", "import", self.path("broken", broken), "--ledger", a)
        self.assertEqual(self.json("why", OP, "--axes", AT, "--ledger", a)["device_model"], MODEL)
        file = self.path("file.json")
        self.kvr("selections", "export", file, "--from-ledgers", a)  # one device model
        self.assertIn(f"the selection file is for {MODEL}",
                      self.kvr("why", OP, "--model", "null", "--selections", file, "--ledger", a, code=2))
        other = self.records(uuid="GPU-3", model="nvidia-l40s")
        self.kvr("ledger", "import", self.path("other", other), "--ledger", a)
        self.assertIn("several device models: nvidia-h200, nvidia-l40s", self.kvr("why", OP, "--ledger", a, code=1))

    def test_ls_filters_and_show_has_everything(self):
        directory = self.filled("a")
        self.kvr("ledger", "import", CAMPAIGN, "--ledger", directory)
        kinds = lambda *options: [record["table"] for record in
                                  self.json("ledger", "ls", *options, "--ledger", directory)["records"]]
        self.assertEqual(kinds("--kind", "trial"), ["trials"] * 2)
        self.assertEqual(kinds("--variant", "w8", "--limit", "2"), ["verdicts", "trials", "summaries", "summaries"])
        self.assertEqual(kinds("--op", "null"), [])  # is here, and was never measured
        for where in (directory, self.ledger):
            self.assertIn("no operation 'foo'", self.kvr("ledger", "ls", "--op", "foo", "--ledger", where, code=2))
        self.assertIn("did you mean 'trial'", self.kvr("ledger", "ls", "--kind", "trail", code=2))
        text = self.kvr("ledger", "show", "GPU-1-w8", "--ledger", directory)
        for part in ("median_us", "200, median 20 us", "▁", "NVIDIA H200", "nvrtc", "580"):
            self.assertIn(part, text)
        self.assertIn("3 records", self.kvr("ledger", "show", "GPU-1", "--ledger", directory, code=2))
        self.assertEqual(self.json("ledger", "show", "GPU-1-v", "--ledger", directory)["environment"]["host"], "node7")

    def test_ls_lists_publications_by_trigger_and_outcome_failures_too(self):
        directory = self.filled("a")
        common = {"table": "publications", "environment": "GPU-1", "fingerprint": "", "binary": "",
                  "before": "a" * 64, "op": "", "axes": "", "variant": "", "config": ""}
        swaps = [dict(common, uid="swap-1", time="2026-11-30T13:00:00.000Z", trigger="selection-file",
                      after="b" * 64, outcome="published", reason="verified at 3 shapes\nasked for by pid 7 uid 0"),
                 dict(common, uid="swap-2", time="2026-11-30T13:01:00.000Z", trigger="bundle", op=OP,
                      axes="topk=512", variant="w8", config="WARPS=8", after="", outcome="failed",
                      reason="verify: w8: INCORRECT_NUMERICAL\nasked for by pid 7 uid 0")]
        where = self.records().splitlines()[0]
        self.kvr("ledger", "import", self.path("swaps", "\n".join([where, *map(json.dumps, swaps)]) + "\n"),
                 "--ledger", directory)
        lines = self.kvr("ledger", "ls", "--kind", "publication", "--ledger", directory).splitlines()
        failed, published = [line for line in lines if "publication " in line]  # newest first
        self.assertIn("w8", failed)
        self.assertTrue(failed.endswith("bundle: failed at verify"), lines)
        self.assertIn("aaaaaaaaaaaa -> bbbbbbbbbbbb", published)
        self.assertTrue(published.endswith("selection-file: published"), lines)
        shown = self.kvr("ledger", "show", "swap-2", "--ledger", directory)
        self.assertIn("asked for by pid 7 uid 0", shown)

    def test_a_ledger_of_a_newer_schema_is_refused_and_untouched(self):
        directory = self.filled("a")
        file = os.path.join(directory, "ledger.db")
        with open(file, "r+b") as raw:
            raw.seek(60)
            raw.write(bytes([0, 0, 0, 99]))
        with open(file, "rb") as raw:
            before = raw.read()
        for command in (("ledger", "ls"), ("ledger", "import", CAMPAIGN), ("why", OP)):
            said = self.kvr(*command, "--ledger", directory, code=1)
            self.assertIn("has schema 99", said)
            self.assertEqual(len(said.splitlines()), 2)  # what, and what to do
        with open(file, "rb") as raw:
            self.assertEqual(raw.read(), before)
        self.assertEqual(os.listdir(directory), ["ledger.db"])

    def test_why_tells_a_table_of_others_as_negative_results(self):
        self.kvr("ledger", "import", CAMPAIGN, "--ledger", self.ledger)
        told = {}
        for tokens in (1, 8, 48, 64, 80, 96):
            why = self.json("why", OP, "--axes", f"num_tokens={tokens}", "--ledger", self.ledger)
            self.assertEqual((why["by"], why["variant"]), ("baseline", "baseline"))
            for summary in why["summaries"]:
                self.assertIn("RTX PRO 6000", summary["device"])
                if summary["verdict"] != "INCONCLUSIVE":
                    told[summary["of"].split()[0], tokens] = summary["verdict"]
        self.assertEqual(told, {("w8", 1): "LOSS", ("w8", 8): "LOSS", ("s3", 64): "LOSS", ("baseline", 64): "WIN"})
        self.assertIn("without samples: selects nothing",
                      self.kvr("why", OP, "--axes", "num_tokens=64", "--ledger", self.ledger))

    def test_selections_go_from_ledgers_to_a_fleet_and_back(self):
        a, b = self.filled("a"), self.filled("b", uuid="GPU-2")
        self.kvr("ledger", "import", CAMPAIGN, "--ledger", a)  # of another device: has no say
        fleet, other = self.path("fleet.json"), self.path("other.json")
        export = lambda file, *ledgers: self.json("selections", "export", file, *(
            part for ledger in ledgers for part in ("--from-ledgers", ledger)))
        made = export(fleet, a, b)
        self.assertEqual(made["gpus"], ["GPU-1", "GPU-2"])
        self.assertIn("w8", made["keys"][0]["selected"])
        export(other, b, a)
        with open(fleet, encoding="utf-8") as one, open(other, encoding="utf-8") as two:
            self.assertEqual(one.read(), two.read())
        self.assertEqual(self.kvr("selections", "digest", fleet).strip(), made["digest"])
        self.assertIn("select the same", self.kvr("selections", "diff", fleet, other))

        local = self.path("local.json")
        taken = self.json("selections", "import", fleet, "--selections", local, "--profile", "h200")
        self.assertEqual((taken["added"], taken["digest"]), (1, made["digest"]))
        again = self.json("selections", "import", fleet, "--selections", local, "--profile", "h200")
        self.assertEqual(again["unchanged"], 1)
        refused = self.kvr("selections", "import", fleet, "--selections", self.path("no.json"), "--profile", "l40s",
                           code=1)
        self.assertIn("tuned on nvidia-h200", refused)
        self.assertFalse(os.path.exists(self.path("no.json")))

        why = self.json("why", OP, "--axes", AT, "--selections", local, "--ledger", a)
        self.assertEqual((why["by"], why["variant"], why["evidence"]["kind"]), ("selection", "w8", "ship"))
        self.assertEqual(why["verdicts"][0]["verdict"], "WIN")
        text = self.kvr("why", OP, "--axes", AT, "--selections", local, "--ledger", self.ledger)
        self.assertIn("ship WIN against baseline", text)
        self.assertIn("there is no ledger to ask", text)
        forced = self.json("why", OP, "--axes", AT, "--selections", local, KVR_FORCE_MLA_SPARSE_DECODE="s3")
        self.assertEqual((forced["by"], forced["variant"]), ("override", "s3"))

    def test_what_is_not_shipped_stays_here(self):
        a, b = self.filled("a"), self.filled("b", uuid="GPU-2", verdict="EQUIVALENT")
        both = ("--from-ledgers", a, "--from-ledgers", b)
        self.assertIn("nothing has ship verdicts on every GPU",
                      self.kvr("selections", "export", self.path("f.json"), *both, code=1))
        self.assertFalse(os.path.exists(self.path("f.json")))
        file = self.path("unshipped.json")
        self.kvr("selections", "export", file, *both, "--unshipped")
        said = self.kvr("selections", "export", "--selections", file, "--ledger", self.ledger, code=1)
        self.assertIn("no ship verdict", said)
        self.assertIn("--unshipped", said)
        undecided = self.filled("d", verdict="INCONCLUSIVE")  # its interval excludes a regression, but there is no win
        said = " ".join(self.kvr("selections", "export", "--selections", file, "--ledger", undecided, code=1).split())
        self.assertIn(f"--ship --axes num_tokens=64 --ledger {undecided}`", said)
        for more in (("--selections", file), ("--ledger", a)):
            self.assertIn(f"takes the place of {more[0]}",
                          self.kvr("selections", "export", "--from-ledgers", a, *more, code=2))
        self.kvr("selections", "export", "--from-ledgers", a, KVR_SELECTIONS=file)
        self.assertIn("go with --from-ledgers",
                      self.kvr("selections", "export", "--selections", file, "--op", OP, code=2))
        self.kvr("selections", "export", "--selections", file, "--ledger", a)  # its verdict ships it
        other = self.filled("c", uuid="GPU-3", model="nvidia-l40s")
        self.assertIn("several device models",
                      self.kvr("selections", "export", "--from-ledgers", a, "--from-ledgers", other, code=1))

    def test_diff_names_key_and_field(self):
        a = self.path("a.json")
        self.kvr("selections", "export", a, "--from-ledgers", self.filled("a"))
        with open(a, encoding="utf-8") as file:
            content = json.load(file)
        self.assertIn("does not match", self.kvr("selections", "digest", self.path(
            "b.json", json.dumps(dict(content, device_model="x"))), code=2))
        copy, b = self.path("copy.json"), self.path("b.json")
        shutil.copy(a, copy)
        self.assertEqual(self.json("selections", "diff", a, copy)["equal"], True)
        slower = self.filled("b", uuid="GPU-2", verdict="EQUIVALENT", w8_us=25.0)
        self.kvr("selections", "export", b, "--unshipped", "--from-ledgers", slower)
        differences = self.json("selections", "diff", a, b, code=1)["differences"]
        self.assertEqual([(d["op"], d["key"], d["field"], d["a"], d["b"]) for d in differences[:1]],
                         [(OP, content["ops"][OP]["selections"][0]["key"], "variant", "w8", "baseline")])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
