"""`torpor snapshot` on the golden objects, which need no role."""
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "src/snapshot/format/testdata/tsz_v1"
BINARY = os.environ["TORPOR_BINARY"]


def snapshot(*arguments):
    return subprocess.run([BINARY, "snapshot", *map(str, arguments)], capture_output=True, timeout=60)


class SnapshotCommand(unittest.TestCase):
    def test_inspect_and_verify_an_object(self):
        for verb in ("inspect", "verify"):
            for path in (GOLDEN / "data.tsz", f"file://{GOLDEN}/data.tsz"):
                result = snapshot(verb, path)
                self.assertEqual(result.returncode, 0, result.stderr)
                sha256 = (GOLDEN / "data.index_sha256").read_text()
                self.assertIn(sha256[:12].encode(), result.stdout)

    def test_cat_is_the_file(self):
        self.assertEqual(snapshot("cat", GOLDEN / "holes.tsz").stdout, bytes(3 << 20))
        whole = snapshot("cat", GOLDEN / "data.tsz").stdout
        self.assertEqual(len(whole), 600000)
        populated = subprocess.run(["zstd", "-dc", GOLDEN / "data.tsz"], capture_output=True).stdout
        pages = [whole[at:at + 4096] for at in range(0, len(whole), 4096)]
        self.assertEqual(b"".join(page for page in pages if any(page)), populated)

    def test_damage_ends_with_1_and_says_where(self):
        with tempfile.TemporaryDirectory() as directory:
            bad = pathlib.Path(directory, "bad.tsz")
            data = bytearray((GOLDEN / "data.tsz").read_bytes())
            data[1000] ^= 1
            bad.write_bytes(data)
            result = snapshot("verify", bad)
            self.assertEqual(result.returncode, 1)
            self.assertIn(b"bad.tsz: object offset 0: the sha256 of the block", result.stderr)
            bad.write_bytes(data[:-1])
            self.assertEqual(snapshot("inspect", bad).returncode, 1)
            self.assertEqual(snapshot("inspect", directory).returncode, 1)

    def test_a_snapshot_is_its_manifest_and_its_objects(self):
        manifest = (ROOT / "src/snapshot/format/testdata/manifest_v1.json").read_text()
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, "manifest.json").write_text(manifest)
            for path in (directory, directory + "/manifest.json"):
                result = snapshot("verify", path)
                self.assertEqual(result.returncode, 1)
                self.assertIn(b"actor demo/counter-1", result.stdout)
                self.assertIn(b"pages.img.tsz", result.stderr)

    def test_verify_all_names_the_damaged_ones(self):
        manifest = (ROOT / "src/snapshot/format/testdata/manifest_v1.json").read_text()
        with tempfile.TemporaryDirectory() as root:
            self.assertEqual(snapshot("verify", "--all", root).returncode, 1)
            for name in ("a", "b"):
                directory = pathlib.Path(root, "deep", name)
                directory.mkdir(parents=True)
                (directory / "manifest.json").write_text(manifest)
            result = snapshot("verify", "--all", root)
            self.assertEqual(result.returncode, 1)
            lines = result.stdout.decode().splitlines()
            self.assertTrue(lines[0].startswith(f"DAMAGED  {root}/deep/a  actor demo/counter-1 generation "), lines)
            self.assertEqual(lines[-1], "2 snapshots, 2 damaged")

    def test_usage(self):
        self.assertEqual(snapshot("--help").returncode, 0)
        for arguments in ((), ("inspect",), ("eat", "x"), ("cat", "x", "y")):
            self.assertEqual(snapshot(*arguments).returncode, 2)
        self.assertEqual(snapshot("inspect", "s3://bucket/x").returncode, 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
