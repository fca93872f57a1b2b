"""What an actor must not keep of an earlier life, its own or that of the golden snapshot: randomness, time, identity."""
import json
import tempfile
import time
import unittest

from stack import StackTest, image, wait_for

TEMPLATE = """
kind: ActorTemplate
metadata: {{name: {name}}}
containers:
- name: main
  image: {image}
  args: {args}
  wakeupProbe: {{httpGet: {{path: /readyz, port: 80}}}}
  volumeMounts: [{{name: info, mountPath: /run/actor}}]
volumes:
- name: info
  systemInfo:
    dataSources:
    - actorMetadata: {{items: [{{field: ACTOR_METADATA_FIELD_NAME, path: name}}]}}
snapshotConfig: {{}}
sandboxConfig: {{sandboxClass: SANDBOX_CLASS_GVISOR, configName: gvisor}}
resources: {{limits: [{{name: memory, quantity: 64Mi}}]}}
"""
READY_SECONDS = 2
ARGUMENTS = ["--system-info-dir", "/run/actor", "--ready-delay-ms", str(READY_SECONDS * 1000)]


class Clones(StackTest):
    @classmethod
    def prepare(cls, s):
        begin = time.monotonic()
        cls.create("golden", ARGUMENTS)
        wait_for(lambda: cls.golden("golden").get("goldenTag"), "golden snapshot")
        cls.golden_seconds = time.monotonic() - begin

    @classmethod
    def create(cls, template, arguments):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(TEMPLATE.format(name=template, image=image("counter"), args=json.dumps(arguments)))
            file.flush()
            cls.stack.cli("create", "-f", file.name)

    @classmethod
    def golden(cls, template):
        return cls.stack.json("get", "template", template).get("status", {}).get("goldenSnapshotStatus", {})

    def first_answers(self, *names):
        """What each of these new actors says of itself when it is asked for the first time."""
        for name in names:
            self.stack.cli("create", "actor", name, "--template", "golden")
        states = {name: json.loads(self.stack.get(name, "/state").body) for name in names}
        self.assertEqual(len({state["boot_uuid"] for state in states.values()}), 1, "clones of one process")
        return states

    def test_H1_clones_draw_different_random_numbers_from_the_first_on(self):
        states = self.first_answers(*[f"random-{i}" for i in range(8)])
        for source in ("random", "fresh_uuid"):
            self.assertEqual(len({state[source] for state in states.values()}), len(states), states)

    def test_H2_the_clock_is_right_at_the_first_request_after_a_sleep(self):
        s = self.stack
        self.first_answers("late")
        for verb in ("pause", "suspend"):
            s.cli(verb, "late")
            time.sleep(2)  # by so much it would be wrong
            before = time.time_ns()
            state = json.loads(s.get("late", "/state").body)
            self.assertTrue(before - 1e8 < state["wall_ns"] < time.time_ns() + 1e8, (verb, before, state))

    def test_H4_clones_know_who_they_are(self):
        for name, state in self.first_answers(*[f"self-{i}" for i in range(4)]).items():
            self.assertEqual((state["actor_name"], state["generation"]), (name, "1"))

    def test_H7_the_golden_snapshot_is_taken_when_the_program_is_ready(self):
        self.assertGreaterEqual(self.golden_seconds, READY_SECONDS)
        self.stack.cli("create", "actor", "ready", "--template", "golden")
        self.stack.cli("resume", "ready")
        self.assertEqual(self.stack.get("ready", "/readyz").status, 200)
        explained = self.stack.json("why", "ready")["reports"][0]
        self.assertNotIn("boot", [phase["name"] for phase in explained["phases"]])

    def test_H7_a_program_that_fails_ends_the_golden_build_with_its_last_words(self):
        self.create("failing", ["--no-such-flag"])
        wait_for(lambda: self.golden("failing").get("errorMessage"), "end of the golden build")
        status = self.golden("failing")
        self.assertNotIn("goldenTag", status)
        self.assertRegex(status["errorMessage"], r"(?s)^GoldenActorCrashed: WORKLOAD_EXITED: .*no-such-flag")


if __name__ == "__main__":
    unittest.main(verbosity=2)
