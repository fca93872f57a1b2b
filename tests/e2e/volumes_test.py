"""Durable directories and system-info: what survives without memory, and what is new at every activation."""
import json
import pathlib
import tempfile
import unittest

from stack import StackTest, counts, image, wait_for

TEMPLATE = """
kind: ActorTemplate
metadata: {{name: {name}}}
containers:
- name: main
  image: {image}
  args: {args}
  wakeupProbe: {{httpGet: {{path: /readyz, port: 80}}}}
  volumeMounts:
  - {{name: data, mountPath: {mount}}}
  - {{name: info, mountPath: /run/actor}}
volumes:
- name: data
  durableDir: {{}}
- name: info
  systemInfo:
    dataSources:
    - actorMetadata: {{items: [{{field: ACTOR_METADATA_FIELD_NAME, path: name}}]}}
snapshotConfig: {{onCommit: {scope}}}
sandboxConfig: {{sandboxClass: SANDBOX_CLASS_GVISOR, configName: gvisor}}
resources: {{limits: [{{name: memory, quantity: 128Mi}}]}}
"""
COUNTER_ARGS = '["--home-dir", "/data", "--system-info-dir", "/run/actor"]'


class Volumes(StackTest):
    def create(self, name, workload="counter", args=COUNTER_ARGS, mount="/data", scope="SNAPSHOT_CONTENT_SCOPE_DATA"):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(TEMPLATE.format(name=name, image=image(workload), args=args, mount=mount, scope=scope))
            file.flush()
            self.stack.cli("create", "-f", file.name)
        self.stack.cli("create", "actor", f"{name}-1", "--template", name)
        return f"{name}-1"

    def test_files_survive_and_memory_begins_anew(self):
        s = self.stack
        actor = self.create("data")
        _, file = counts(s.get(actor))
        s.get(actor)
        for turn, verb in enumerate(("suspend", "pause", "suspend")):
            s.cli(verb, actor)
            memory, now = counts(s.get(actor))
            self.assertEqual(now, file + 2 + turn, verb)
            self.assertEqual(memory, 1, f"memory after {verb}")
        self.assertEqual(s.actor(actor)["status"]["lastSnapshotFidelity"], "FIDELITY_VOLUMES")

    def test_both_survive_with_full_scope_and_only_files_after_a_change_of_template(self):
        s = self.stack
        actor = self.create("full", scope="SNAPSHOT_CONTENT_SCOPE_FULL")
        memory, file = counts(s.get(actor))
        for verb in ("pause", "suspend"):
            s.cli(verb, actor)
            memory, file = memory + 1, file + 1
            self.assertEqual(counts(s.get(actor)), (memory, file), verb)
        s.cli("suspend", actor)
        # Without its local copies the actor comes from the store.
        record = s.actor(actor)
        self.assertEqual(record["status"]["lastSnapshotFidelity"], "FIDELITY_MEMORY")
        self.create("full-2", scope="SNAPSHOT_CONTENT_SCOPE_FULL")
        update = {"actor": {**record, "actorTemplate": {"atespace": "default", "name": "full-2"}}}
        answer = s.rpc("ateapi.Control/UpdateActor", update)
        self.assertEqual(answer.status, 200, answer)
        self.assertEqual(counts(s.get(actor)), (1, file + 1), "narrowed to the volumes")

    def test_rootfs_is_refused(self):
        s = self.stack
        actor = self.create("refused")
        s.cli("resume", actor)
        for method in ("PauseActor", "SuspendActor"):
            answer = s.rpc(f"ateapi.Control/{method}",
                           {"actor": {"atespace": "default", "name": actor}, "fidelity": "FIDELITY_ROOTFS"})
            self.assertEqual(answer.status, 400, answer)
            self.assertIn("FIDELITY_UNSUPPORTED", json.dumps(answer.body))
        self.assertEqual(s.state(actor), "RUNNING")

    def test_H4_identity_is_new_at_every_activation(self):
        s = self.stack
        actor = self.create("told", scope="SNAPSHOT_CONTENT_SCOPE_FULL")
        seen = []
        for _ in range(3):
            s.get(actor)
            state = s.get(actor, "/state").body
            self.assertIn(actor, state)
            seen.append(json.loads(state)["generation"])
            s.cli("pause", actor)
        self.assertEqual(len(set(map(str, seen))), 3, seen)
        self.assertEqual(sorted(seen, key=int), seen)

    def test_benchmark_template_keeps_its_file(self):
        s = self.stack
        actor = self.create("glutton", workload="glutton", args="[]", mount="/var/lib/glutton")
        write = b"\x0a\x01f\x10\x80\x80\x80\x04"  # WriteDiskRequest{key: "f", size: 8 MiB}
        read = b"\x0a\x01f\x10\x01"  # ReadDiskRequest{key: "f", read_mode: READ_MODE_DIGEST_ONLY}
        answer = s.get(actor, "/writedisk", method="POST", body=write)
        self.assertEqual(answer.status, 200, answer)
        before = s.get(actor, "/readdisk", method="POST", body=read)
        self.assertEqual(before.status, 200, before)
        s.cli("suspend", actor)
        after = s.get(actor, "/readdisk", method="POST", body=read)
        self.assertEqual(after.status, 200, after)
        self.assertEqual(after.body, before.body, "size and digest")

    def test_nothing_of_a_deleted_actor_stays(self):
        s = self.stack
        actor = self.create("gone")
        s.get(actor)
        uid = s.actor(actor)["metadata"]["uid"]
        s.cli("pause", actor)
        tree = pathlib.Path(s.dir, "node", "actors", uid)
        self.assertTrue(list(tree.glob("local-checkpoint/*/volume-data.tar")))
        s.cli("delete", "actor", actor, "--any-state")
        wait_for(lambda: not tree.exists(), "the actor's tree goes")


if __name__ == "__main__":
    unittest.main(verbosity=2)
