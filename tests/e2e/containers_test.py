"""Several containers per actor: each goes on, each has its port, its log, its files; the end of one is the actor's."""
import os
import pathlib
import subprocess
import tempfile
import unittest

from stack import StackTest, counts, image, wait_for

TEMPLATE = """
kind: ActorTemplate
metadata: {{name: {name}}}
containers:
- name: main
  image: {image}
  args: [--home-dir, /data]
  wakeupProbe: {{httpGet: {{path: /readyz, port: 80}}}}
  volumeMounts: [{{name: main-data, mountPath: /data}}]
- name: side
  image: {image}
  args: [--port, "8081", --home-dir, /data]
  wakeupProbe: {{httpGet: {{path: /readyz, port: 8081}}}}
  volumeMounts: [{{name: side-data, mountPath: /data}}]
  {side}
- name: third
  image: {image}
  args: [--port, "8082"]
  wakeupProbe: {{httpGet: {{path: /readyz, port: 8082}}}}
volumes:
- {{name: main-data, durableDir: {{}}}}
- {{name: side-data, durableDir: {{}}}}
snapshotConfig: {{onCommit: {scope}}}
goldenConfig: {{disabled: {cold}}}
sandboxConfig: {{sandboxClass: SANDBOX_CLASS_GVISOR, configName: gvisor}}
resources: {{limits: [{{name: memory, quantity: 256Mi}}]}}
"""
PORTS = (80, 8081, 8082)


def processes_with(argument):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if argument.encode() in words:
            found.append(pid)
    return found


class Containers(StackTest):
    def template(self, name, scope="SNAPSHOT_CONTENT_SCOPE_FULL", side="", cold="false", code=0):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(TEMPLATE.format(name=name, image=image("counter"), scope=scope, side=side, cold=cold))
            file.flush()
            return self.stack.cli("create", "-f", file.name, code=code)

    def create(self, name, **arguments):
        self.template(name, **arguments)
        self.stack.cli("create", "actor", f"{name}-1", "--template", name)
        return f"{name}-1"

    def count(self, actor, port):
        return counts(self.stack.get(actor, headers={"torpor-target-port": str(port)}))

    def test_every_container_goes_on(self):
        s = self.stack
        actor = self.create("full")
        memory, file = counts(s.get(actor))
        self.assertEqual(self.count(actor, 80), (memory + 1, file + 1), "the default port is the first container's")
        seen = {port: self.count(actor, port) for port in PORTS}
        for turn, verb in enumerate(("pause", "suspend", "pause", "suspend", "suspend")):
            s.cli(verb, actor)
            self.assertIn(s.state(actor), ("PAUSED", "SUSPENDED"))
            if turn % 2:
                s.cli("resume", actor)
            for port in PORTS:
                memory, file = seen[port]
                seen[port] = self.count(actor, port)
                self.assertEqual(seen[port], (memory + 1, file + 1), f"port {port} after {verb}, turn {turn}")

    def test_volumes_without_memory(self):
        s = self.stack
        actor = self.create("data", scope="SNAPSHOT_CONTENT_SCOPE_DATA")
        files = {port: self.count(actor, port)[1] for port in (80, 8081)}
        self.count(actor, 80)
        for turn, verb in enumerate(("suspend", "pause")):
            s.cli(verb, actor)
            self.assertEqual(self.count(actor, 80), (1, files[80] + 2 + turn), verb)
            self.assertEqual(self.count(actor, 8081), (1, files[8081] + 1 + turn), verb)

    def test_the_end_of_one_is_the_end_of_the_actor(self):
        s = self.stack
        actor = self.create("ended")
        memory, file = self.count(actor, 8081)
        s.cli("suspend", actor)
        self.assertEqual(self.count(actor, 8081), (memory + 1, file + 1))
        uid = s.actor(actor)["metadata"]["uid"]
        root = pathlib.Path(s.dir, "node", "actors", uid, "state", "runsc")
        container = f"_side.{uid.replace('-', '')[-12:]}"
        subprocess.run(["runsc", f"--root={root}", "kill", container, "KILL"], check=True)
        wait_for(lambda: s.state(actor) == "CRASHED", "crash")
        crash = s.actor(actor)["status"]["crash"]
        self.assertEqual(crash["reason"], "WORKLOAD_EXITED")
        self.assertIn("container side exited with code 137", crash["message"])
        s.cli("revert", actor)
        self.assertEqual(self.count(actor, 8081), (memory + 1, file + 1))

    def test_a_killed_worker_leaves_nothing(self):
        s = self.stack
        actor = self.create("orphaned")
        seen = self.count(actor, 8082)
        s.cli("suspend", actor)
        s.cli("resume", actor)
        root = f"--root={s.dir}/node/actors/{s.actor(actor)['metadata']['uid']}/state/runsc"
        self.assertTrue(processes_with(root))
        s.kill("worker")
        wait_for(lambda: s.state(actor) == "CRASHED", "crash")
        wait_for(lambda: not processes_with(root), "end of the sandbox and of who waits for its containers")
        s.cli("revert", actor)
        self.assertEqual(self.count(actor, 8082), (seen[0] + 1, seen[1] + 1))

    def test_each_has_its_log(self):
        s = self.stack
        actor = self.create("told", cold="true")  # it says so when it boots
        s.get(actor)
        wait_for(lambda: "listening on" in s.cli("logs", actor, "-c", "third").stdout, "log lines")
        self.assertIn("8082", s.cli("logs", actor, "-c", "third").stdout)
        self.assertNotIn("8082", s.cli("logs", actor, "-c", "side").stdout)

    def test_limits_of_one_container_are_refused(self):
        side = "resources: {limits: [{name: memory, quantity: 64Mi}]}"
        result = self.template("limited", side=side, code=None)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("containers[1].resources", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
