"""The main promise: an actor sleeps, wakes by a request and goes on where it was."""
import signal
import unittest

from stack import StackTest, counts, image, wait_for


class Life(StackTest):
    @classmethod
    def prepare(cls, s):
        s.cli("create", "template", "counter", "--image", image("counter"), "--memory", "128Mi",
                      "--probe", "/readyz", "--port", "80")

    def test_counter_goes_on_over_25_pauses_and_suspends(self):
        s = self.stack
        s.cli("create", "actor", "long", "--template", "counter")
        uid = s.actor("long")["metadata"]["uid"]
        memory, file = counts(s.get("long"))
        for turn in range(25):
            s.cli("pause" if turn % 2 == 0 else "suspend", "long")
            self.assertIn(s.state("long"), ("PAUSED", "SUSPENDED"))
            self.assertEqual(counts(s.get("long")), (memory + 1, file + 1), f"turn {turn}")
            memory, file = memory + 1, file + 1
        self.assertEqual(s.actor("long")["metadata"]["uid"], uid)

    def test_counter_goes_on_after_a_restart_of_every_role(self):
        s = self.stack
        s.cli("create", "actor", "robust", "--template", "counter")
        memory, file = counts(s.get("robust"))
        for role in ("apiserver", "router", "node", "mover"):
            s.kill(role)
            wait_for(lambda: s.answers("robust"), f"answer after the restart of {role}")
            memory, file = memory + 1, file + 1
            self.assertEqual(counts(s.get("robust")), (memory, file), role)
            s.cli("suspend", "robust")
            memory, file = memory + 1, file + 1
            self.assertEqual(counts(s.get("robust")), (memory, file), role)
        # A worker takes its running sandboxes with it: the last durable state comes back by revert.
        s.cli("suspend", "robust")
        memory, file = memory + 1, file + 1
        self.assertEqual(counts(s.get("robust")), (memory, file))
        s.kill("worker")
        wait_for(lambda: s.state("robust") == "CRASHED", "crash")
        answer = s.get("robust")
        self.assertEqual(answer.status, 503)
        self.assertIn("revert", answer.body)
        s.cli("revert", "robust")
        wait_for(lambda: s.answers("robust"), "wake after revert")
        self.assertEqual(counts(s.get("robust")), (memory, file))

    def test_whole_stop_suspends_and_start_goes_on(self):
        s = self.stack
        s.cli("create", "actor", "kept", "--template", "counter")
        memory, file = counts(s.get("kept"))
        s.stop()
        self.assertEqual(s.left_behind(), [])
        store = f"{s.dir}/store"
        stored = s.cli("snapshot", "verify", "--all", store).stdout
        self.assertIn("actor default/kept generation", stored)
        self.assertNotIn("DAMAGED", stored)
        s.start()
        self.assertLess(s.start_seconds, 15)
        self.assertEqual(s.state("kept"), "SUSPENDED")
        self.assertEqual(counts(s.get("kept")), (memory + 1, file + 1))

    def test_killed_supervisor_leaves_nothing_for_the_next(self):
        s = self.stack
        s.cli("create", "actor", "survivor", "--template", "counter")
        memory, file = counts(s.get("survivor"))
        s.cli("suspend", "survivor")
        old = s.roles()
        s.stop(signal.SIGKILL)
        s.start()
        self.assertFalse(set(old.values()) & set(s.roles().values()))
        self.assertEqual(counts(s.get("survivor")), (memory + 1, file + 1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
