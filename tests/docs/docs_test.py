"""docs/ against the program: every setting, reason and command that is written there is there, and the
other way round."""
import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ["TORPOR_BINARY"]
DOCS = {page.name: page.read_text() for page in (ROOT / "docs").glob("*.md")}
sys.path.insert(0, str(ROOT / "tools"))
import reference


def torpor(*arguments):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=60,
                          env={"PATH": os.environ["PATH"]})


class Docs(unittest.TestCase):
    def test_configure_is_what_the_roles_say(self):
        printed = reference.markdown(BINARY)
        written = DOCS["configure.md"].split(reference.MARK)[1]
        self.assertEqual(written, printed, "run: tools/reference.py write TORPOR")

    def test_every_setting_is_read(self):
        for role in reference.ROLES:
            names = {line.split()[0][2:] for line in torpor(role, "--help").stdout.splitlines()
                     if line.startswith("  --")}
            known = {name for name, _, _, _ in reference.settings(BINARY, role)}
            self.assertEqual(names - known, {"config", "print-config"}, role)

    def test_every_reason_has_meaning_and_remedy(self):
        header = (ROOT / "src/model/reasons.h").read_text()
        reasons = set(re.findall(r'^  X\(k\w+, "([A-Z_]+)"', header, re.M))
        self.assertGreater(len(reasons), 70)
        rows = re.findall(r"^\| `([A-Z_]+)` \| (.+) \| (.+) \|$", DOCS["errors.md"].split("## Answers of")[0], re.M)
        self.assertEqual(sorted(name for name, _, _ in rows), sorted(reasons))
        for name, meaning, remedy in rows:
            self.assertTrue(meaning.strip() and remedy.strip(), name)

    def test_every_reason_of_the_router(self):
        sources = (ROOT / "src/router").rglob("*.cc")
        texts = [s.read_text() for s in sources if not s.name.endswith("_test.cc")]
        used = {name for text in texts for name in re.findall(r'reason = "([A-Z_]+)"', text)}
        used |= {name for text in texts for name in re.findall(r'return \{\d{3}, "([A-Z_]+)"', text)}
        self.assertIn("STILL_WAKING", used)
        for name in used:
            self.assertIn(f"`{name}`", DOCS["errors.md"], name)

    def test_every_metric_is_described(self):
        made = re.compile(r'(?:Counter|Gauge|Histogram|Function)\(\s*"((?:torpor|process)_[a-z_]+)"')
        names = {name for source in (ROOT / "src").rglob("*.cc") if not source.name.endswith("_test.cc")
                 for name in made.findall(source.read_text())}
        self.assertIn("torpor_worker_workloads", names)
        for name in names:
            self.assertIn(f"`{name}", DOCS["metrics.md"], name)

    def test_l2_every_command_of_the_pages_exists(self):
        seen = {}
        for page, text in {**DOCS, "README.md": (ROOT / "README.md").read_text()}.items():
            verbs = re.findall(r"`torpor ([a-z-]+)", text)
            for block in re.findall(r"```.*?```", text, re.S):
                verbs += re.findall(r"^torpor ([a-z-]+)", block, re.M)
            for verb in verbs:
                seen.setdefault(verb, page)
        self.assertTrue({"up", "why", "doctor", "events"} <= set(seen), seen)
        for verb, page in seen.items():
            if verb != "config":  # has no flags and no --help of its own
                result = torpor(verb, "--help")
                self.assertEqual(result.returncode, 0, f"{page}: torpor {verb}: {result.stderr}")

    def test_l2_every_verb_is_described(self):
        words = re.search(r"    ''\) words='(.*)' ;;", torpor("completion", "bash").stdout).group(1).split()
        operate = DOCS["operate.md"]
        for verb in words:
            if verb in ("apiserver", "router", "worker", "mover", "help", "version", "bench", "config"):
                continue
            self.assertIn(f"torpor {verb}", operate, f"docs/operate.md does not say what torpor {verb} does")

    def test_links(self):
        for page, text in DOCS.items():
            for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
                if "://" not in target:
                    self.assertTrue((ROOT / "docs" / target).exists(), f"{page}: {target}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
