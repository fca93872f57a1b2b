"""Tags and forks: many actors with one state, each on its own from then on; and the way back to older generations."""
import json
import os
import pathlib
import shutil
import unittest

from stack import StackTest, counts, image


class Forks(StackTest):
    @classmethod
    def prepare(cls, s):
        s.cli("create", "template", "counter", "--image", image("counter"), "--memory", "128Mi",
              "--probe", "/readyz", "--port", "80", "--no-golden")

    def count_to(self, actor, goal):
        self.stack.cli("create", "actor", actor, "--template", "counter")
        for expected in range(1, goal + 1):
            self.assertEqual(counts(self.stack.get(actor)), (expected, expected))

    def check_children(self, names, value):
        """Each goes on from `value` for itself, as another process than the others."""
        s = self.stack
        states = {name: json.loads(s.get(name, "/state").body) for name in names}
        self.assertEqual(len({state["boot_uuid"] for state in states.values()}), 1, "clones of one process")
        for unique in ("random", "fresh_uuid"):
            self.assertEqual(len({state[unique] for state in states.values()}), len(names), states)
        self.assertEqual(len({s.actor(name)["metadata"]["uid"] for name in names}), len(names))
        for turn, name in enumerate(names):
            for step in range(1, 1 + turn % 3):
                self.assertEqual(counts(s.get(name)), (value + step, value + step), name)
        for turn, name in enumerate(names):
            self.assertEqual(counts(s.get(name)), (value + 1 + turn % 3, value + 1 + turn % 3), name)

    def tags(self):
        return [tag["metadata"]["name"] for tag in self.stack.json("get", "tags")["items"]]

    def test_eight_forks_of_a_running_actor_that_runs_on(self):
        s = self.stack
        self.count_to("source", 3)
        made = s.json("fork", "source", "--count", "8", "--prefix", "clone")
        names = [actor["metadata"]["name"] for actor in made["actors"]]
        self.assertEqual(len(set(names)), 8)
        self.assertIn(s.state("source"), ("RESUMING", "RUNNING"), "it went on without being asked")
        self.assertEqual(counts(s.get("source")), (4, 4))
        self.check_children(names, 3)
        tag = made["tag"]["name"]
        self.assertIn(tag, self.tags())
        self.assertIn("TAG_IN_USE", s.cli("delete", "tag", tag, code=5).stderr)
        for name in names:
            s.cli("suspend", name)
        self.assertNotIn(tag, self.tags(), "every child has a snapshot of its own")
        self.assertEqual(counts(s.get("source")), (5, 5))
        for name in names:
            s.cli("delete", "actor", name)

    def test_eight_forks_of_a_tag_outlive_their_source(self):
        s = self.stack
        self.count_to("first", 2)
        s.cli("suspend", "first")
        s.cli("create", "tag", "two", "--actor", "first")
        s.cli("delete", "actor", "first")
        made = s.json("fork", "tag/two", "--count", "8", "--resume")
        names = [actor["metadata"]["name"] for actor in made["actors"]]
        for actor in made["actors"]:
            self.assertEqual(actor["status"]["state"], "ACTOR_STATE_RUNNING", actor)
        self.check_children(names, 2)
        s.cli("create", "actor", "ninth", "--template", "counter", "--tag", "two")
        self.assertIn("TAG_IN_USE", s.cli("delete", "tag", "two", code=5).stderr)
        for name in [*names, "ninth"]:
            s.cli("delete", "actor", name, "--any-state")
        s.cli("delete", "tag", "two")
        self.assertNotIn("two", self.tags())

    def test_rollback_names_what_is_given_up(self):
        s = self.stack
        self.count_to("back", 1)
        s.cli("suspend", "back")
        older = s.actor("back")["status"]["lastSnapshotGeneration"]
        self.assertEqual(counts(s.get("back")), (2, 2))
        s.cli("suspend", "back")
        newer = s.actor("back")["status"]["lastSnapshotGeneration"]
        self.assertIn(f"generation {newer} is given up", s.cli("rollback", "back", older).stdout)
        self.assertEqual(counts(s.get("back")), (2, 2))
        self.assertIn("GENERATION_NOT_FOUND", s.cli("rollback", "back", "999", code=4).stderr)
        lost = [e for e in s.json("events", "back")["items"] if e["type"] == "GenerationLost"]
        self.assertEqual([e["generation"] for e in lost], [newer])

    def test_a_damaged_snapshot_is_named_and_the_one_before_is_gone_back_to(self):
        s = self.stack
        self.count_to("hurt", 1)
        s.cli("suspend", "hurt")
        self.assertEqual(counts(s.get("hurt")), (2, 2))
        s.cli("suspend", "hurt")
        actor = s.actor("hurt")
        # The node's own copy would do, so it goes; then one byte of the durable one is turned.
        shutil.rmtree(f"{s.dir}/node/actors/{actor['metadata']['uid']}/local-checkpoint/"
                      + os.listdir(f"{s.dir}/node/actors/{actor['metadata']['uid']}/local-checkpoint")[0])
        stored = pathlib.Path(actor["status"]["externalSnapshot"]["snapshotUri"].removeprefix("file://"))
        largest = max(stored.glob("*.tsz"), key=lambda path: path.stat().st_size)
        content = bytearray(largest.read_bytes())
        content[len(content) // 2] ^= 1
        largest.write_bytes(content)
        found = s.cli("snapshot", "verify", "--all", f"{s.dir}/store", code=1).stdout.splitlines()
        damaged = [line for line in found if line.startswith("DAMAGED")]
        self.assertEqual(len(damaged), 1, found)
        self.assertIn(largest.name, damaged[0])
        self.assertIn("SNAPSHOT_CORRUPT", s.cli("resume", "hurt", code=1).stderr)
        crash = s.actor("hurt")["status"]["crash"]
        self.assertIn(largest.stem, crash["message"])
        self.assertEqual(crash["lostGeneration"], actor["status"]["lastSnapshotGeneration"])
        s.cli("revert", "hurt")
        self.assertEqual(counts(s.get("hurt")), (2, 2))


if __name__ == "__main__":
    unittest.main(verbosity=2)
