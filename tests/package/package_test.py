"""The Debian package: built, installed on this machine, started as the unit starts it, removed."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import stack
from stack import Stack, counts, image

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy/systemd/torpor.service"
SETTINGS = "/etc/torpor/torpor.yaml"


def run(*command, code=0):
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    if code is not None and result.returncode != code:
        raise AssertionError(f"{command}: exit {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def unit(key):
    return re.search(rf"^{key}=(.*)$", UNIT.read_text(), re.M).group(1)


def installed():
    result = subprocess.run(["dpkg-query", "-W", "-f=${db:Status-Status}", "torpor"], capture_output=True, text=True)
    return result.stdout if result.returncode == 0 else "not-installed"


@unittest.skipIf(os.geteuid() != 0, "installing a package needs root")
class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if installed() != "not-installed":
            raise unittest.SkipTest("a torpor package is installed on this machine; it is left alone")
        cls.out = tempfile.mkdtemp(prefix="torpor-package-")
        cls.deb = run(str(ROOT / "tools/package"), str(pathlib.Path(stack.BINARY).parent), cls.out).strip()

    @classmethod
    def tearDownClass(cls):
        if installed() != "not-installed":
            run("dpkg", "--purge", "torpor")
        shutil.rmtree(cls.out)

    def test_life_of_the_package(self):
        fields = run("dpkg-deb", "--field", self.deb)
        for word in ("runsc", "nftables", "skopeo", "umoci", "libgrpc"):
            self.assertIn(word, fields)
        run("dpkg", "--install", self.deb)
        self.assertEqual(installed(), "installed")
        self.assertEqual(os.path.realpath("/usr/bin/torpor"), "/usr/lib/torpor/torpor")
        for user in ("torpor", "torpor-mover"):
            run("id", user)
        self.check_settings()
        run("bash", "-n", "/usr/share/bash-completion/completions/torpor")
        self.assertEqual(unit("ExecStart"), f"/usr/bin/torpor up --config {SETTINGS}")
        self.check_an_actor()
        # Again over itself, as an upgrade does; the settings that were changed stay.
        with open(SETTINGS, "a") as settings:
            settings.write("stop-grace: 61s\n")
        run("dpkg", "--install", self.deb)
        self.assertIn("stop-grace: 61s", pathlib.Path(SETTINGS).read_text())
        run("dpkg", "--remove", "torpor")
        self.assertFalse(os.path.exists("/usr/bin/torpor"))
        self.assertTrue(os.path.exists(SETTINGS))
        run("dpkg", "--purge", "torpor")
        for path in ("/etc/torpor", "/usr/lib/torpor", "/lib/systemd/system/torpor.service"):
            self.assertFalse(os.path.exists(path), path)

    def check_settings(self):
        """The file is valid as installed, and with every default written out."""
        run("/usr/bin/torpor", "config", "check", SETTINGS)
        lines = []
        for line in pathlib.Path(SETTINGS).read_text().splitlines():
            # "#key: v" and "#  key: v" are settings, "#  # text" and "# text" are words about them.
            if re.match(r"#(  )?[a-z0-9-]+:", line):
                lines.append(line[1:])
        self.assertGreater(len(lines), 60)
        whole = pathlib.Path(self.out, "whole.yaml")
        whole.write_text("\n".join(lines) + "\n")
        run("/usr/bin/torpor", "up", "--print-config", "--config", str(whole))
        # Not where a default means "by itself" and has no value that could be written.
        for role in ("apiserver", "router", "mover"):
            run("/usr/bin/torpor", role, "--print-config", "--config-section", str(whole))

    def check_an_actor(self):
        """Started with the rights that the unit leaves, an actor runs, sleeps and wakes."""
        capabilities = unit("CapabilityBoundingSet").split()
        drop = "-all," + ",".join("+" + c.removeprefix("CAP_").lower() for c in capabilities)
        wrapper = pathlib.Path(self.out, "torpor")
        wrapper.write_text(f"#!/bin/sh\nexec setpriv --bounding-set={drop} --inh-caps=-all --no-new-privs "
                           f'/usr/bin/torpor "$@"\n')
        wrapper.chmod(0o755)
        self.assertEqual(unit("NoNewPrivileges"), "yes")
        binary, stack.BINARY = stack.BINARY, str(wrapper)
        try:
            with Stack("--config", SETTINGS) as s:
                s.cli("create", "template", "counter", "--image", image("counter"), "--memory", "128Mi",
                      "--probe", "/readyz", "--port", "80")
                s.cli("create", "actor", "a", "--template", "counter")
                self.assertEqual(counts(s.get("a")), (1, 1))
                s.cli("pause", "a")
                self.assertEqual(counts(s.get("a")), (2, 2))
                s.cli("suspend", "a")
            self.assertEqual(s.left_behind(), [])
        finally:
            stack.BINARY = binary


if __name__ == "__main__":
    unittest.main(verbosity=2)
