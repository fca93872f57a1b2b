"""What a user types: verbs, errors with reasons and exit codes, logs, events, explanations."""
import json
import unittest

from stack import StackTest, counts, image, wait_for

NOTEBOOK = """
kind: ActorTemplate
metadata: {atespace: default, name: notebook}
containers:
- name: main
  image: IMAGE
  wakeupProbe: {httpGet: {path: /readyz, port: 80}}
snapshotConfig: {}
sandboxConfig: {sandboxClass: SANDBOX_CLASS_GVISOR, configName: gvisor}
resources: {limits: [{name: memory, quantity: 256Mi}, {name: cpu, quantity: "1"}]}
httpPort: 80
---
kind: Actor
metadata: {atespace: default, name: book}
actorTemplate: {atespace: default, name: notebook}
"""


# Cells of the notebook: keep every open connection, also the one that asks; see how long they seem to live.
HOLD = """
import os, socket, time
held = []
for fd in map(int, os.listdir("/proc/self/fd")):
    try:
        s = socket.socket(fileno=os.dup(fd))
        s.getpeername()
        held.append(s)
    except OSError:
        pass
len(held)
"""
USE = """
def seconds_until_reset(s):
    begin = time.monotonic()
    while time.monotonic() - begin < 30:
        try:
            s.send(b"x")
        except OSError:
            break
        time.sleep(0.01)
    return time.monotonic() - begin
max(map(seconds_until_reset, held))
"""


class Verbs(StackTest):
    @classmethod
    def prepare(cls, s):
        s.cli("create", "template", "counter", "--image", image("counter"), "--memory", "128Mi",
                      "--probe", "/readyz", "--port", "80")

    def run_cell(self, actor, code):
        # The first wake unpacks a whole Debian; the router says so and keeps waking.
        wait_for(lambda: self.stack.answers(actor), f"wake of {actor}", timeout=180)
        answer = self.stack.get(actor, "/run", method="POST", body=code)
        self.assertEqual(answer.status, 200, answer)
        out = json.loads(answer.body)
        self.assertIsNone(out["error"], out)
        return out

    def test_a_python_notebook_keeps_its_variables(self):
        s = self.stack
        s.cli("create", "-f", "-", text=NOTEBOOK.replace("IMAGE", image("notebook")))
        self.run_cell("book", "x = 41")
        s.cli("suspend", "book")
        self.assertIn("42", self.run_cell("book", "x += 1\nprint(x)")["stdout"])

    def test_H5_connections_of_the_earlier_life_are_reset_and_new_ones_work(self):
        s = self.stack
        s.cli("create", "template", "holder", "--image", image("notebook"), "--memory", "256Mi",
              "--probe", "/readyz", "--port", "80", "--no-golden")
        s.cli("create", "actor", "holder", "--template", "holder")
        self.assertGreater(int(self.run_cell("holder", HOLD)["result"]), 0)
        s.cli("pause", "holder")
        self.assertLess(float(self.run_cell("holder", USE)["result"]), 1)

    def test_golden_snapshot_serves_new_actors(self):
        s = self.stack
        wait_for(lambda: s.json("get", "template", "counter").get("status", {})
                 .get("goldenSnapshotStatus", {}).get("goldenTag"), "golden tag")
        s.cli("create", "actor", "born", "--template", "counter")
        s.cli("resume", "born")
        explained = s.json("why", "born")
        self.assertNotIn("boot", json.dumps(explained.get("reports", explained)).split('"phases"')[-1].split('"name"')[0])
        # The golden actor was never asked anything but its probe.
        self.assertEqual(counts(s.get("born")), (1, 1))

    def test_run_in_one_command(self):
        s = self.stack
        out = s.cli("run", "quick", "--image", image("counter"), "--memory", "128Mi").stdout
        self.assertIn("quick.default.actors.localhost", out)
        self.assertEqual(s.get("quick").status, 200)

    def test_errors_say_what_to_do(self):
        s = self.stack
        cases = [
            (["get", "actor", "nobody"], 4, "ACTOR_NOT_FOUND"),
            (["resume", "nobody"], 4, "ACTOR_NOT_FOUND"),
            (["create", "actor", "../etc", "--template", "counter"], 1, "FIELD_INVALID"),
            (["create", "actor", "UPPER", "--template", "counter"], 1, "FIELD_INVALID"),
            (["create", "actor", "x", "--template", "nothing"], 5, "TEMPLATE_NOT_FOUND"),
            (["create", "template", "t", "--image", "counter:latest"], 1, "FIELD_INVALID"),
            (["delete", "atespace", "ate-golden"], 7, "RESERVED_ATESPACE"),
            (["frobnicate"], 2, "frobnicate"),
            (["get", "actor", "--nope"], 2, "--nope"),
        ]
        for arguments, code, text in cases:
            result = s.cli(*arguments, code=None)
            self.assertEqual(result.returncode, code, (arguments, result.stdout, result.stderr))
            self.assertIn(text, result.stderr, arguments)

    def test_verbs_by_state(self):
        s = self.stack
        s.cli("create", "actor", "verbs", "--template", "counter")
        self.assertEqual(s.state("verbs"), "SUSPENDED")
        self.assertIn("WRONG_STATE", s.cli("pause", "verbs", code=5).stderr)
        s.cli("resume", "verbs")
        s.cli("resume", "verbs")
        first = counts(s.get("verbs"))
        s.cli("suspend", "verbs")
        s.cli("resume", "verbs")
        self.assertEqual(counts(s.get("verbs")), (first[0] + 1, first[1] + 1))
        s.cli("pause", "verbs")
        s.cli("revert", "verbs")
        self.assertEqual(s.state("verbs"), "SUSPENDED")
        self.assertEqual(counts(s.get("verbs")), (first[0] + 1, first[1] + 1))
        self.assertIn("WRONG_STATE", s.cli("delete", "actor", "verbs", code=5).stderr)
        s.cli("delete", "actor", "verbs", "--any-state")
        s.cli("get", "actor", "verbs", code=4)
        self.assertEqual(s.get("verbs").status, 404)

    def test_logs_events_and_why(self):
        s = self.stack
        s.cli("create", "actor", "told", "--template", "counter")
        s.get("told")
        s.cli("pause", "told")
        s.get("told")
        wait_for(lambda: s.cli("logs", "told").stdout.strip(), "log lines", timeout=30)
        events = s.cli("events", "told").stdout
        self.assertIn("PAUSED", events)
        why = s.cli("why", "told").stdout
        self.assertIn("restore", why)

    def test_json_api_demands_the_token(self):
        s = self.stack
        self.assertEqual(s.rpc("ateapi.Control/ListActors", {}).status, 200)
        self.assertEqual(s.rpc("ateapi.Control/ListActors", {}, token="wrong").status, 401)
        self.assertEqual(s.rpc("ateapi.Control/ListActors", {}, headers={"Origin": "http://evil"}).status, 403)
        self.assertEqual(s.rpc("ateapi.Control/GetActor", {"actor": {"atespace": "default", "name": "no"}}).status, 404)
        self.assertEqual(s.rpc("ateapi.Control/CreateTag", {"tag": {}}).status, 400)
        self.assertEqual(s.rpc("ateapi.Control/CreateWorker", {}).status, 501)

    def test_broken_image_ends_in_a_final_error(self):
        s = self.stack
        digest = "sha256:" + "0" * 64
        s.cli("create", "template", "broken", "--image", f"localhost:1/none@{digest}")
        s.cli("create", "actor", "never", "--template", "broken")
        answer = s.cli("resume", "never", code=None)
        self.assertNotEqual(answer.returncode, 0)
        self.assertIn("registry", answer.stderr)
        self.assertIn(s.state("never"), ("SUSPENDED", "CRASHED"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
