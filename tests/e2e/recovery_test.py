"""Roles that are killed while actors run: what lives is adopted again, what died leaves nothing behind."""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import signal
import unittest

from stack import StackTest, counts, image, wait_for


def sandboxes(directory):
    """{pid: command line} of the sandboxes of the Torpor in `directory`."""
    out = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[0].startswith("runsc") and any(directory in word for word in words):
            out[int(pid)] = " ".join(words)
    return out


def slot_of(note):
    """(actor, slot) of a note in the warm pool; slots come and go."""
    try:
        return note.read_text().strip(), f"/pool/{note.parent.name}/"
    except OSError:
        return "", ""


def sentry_of(s, name):
    """The process of the actor's kernel; one from the warm pool has the slot's name."""
    uid = s.actor(name)["metadata"]["uid"]
    notes = pathlib.Path(s.dir, "node", "run").glob("*/pool/*/actor")
    names = {uid} | {slot for actor, slot in map(slot_of, notes) if actor == uid}
    found = [pid for pid, line in sandboxes(s.dir).items()
             if line.startswith("runsc-sandbox") and any(n in line for n in names)]
    assert len(found) == 1, (names, sandboxes(s.dir))
    return found[0]


def local_files(s, name):
    """{file: sha256} of the actor's local generations."""
    uid = s.actor(name)["metadata"]["uid"]
    top = pathlib.Path(s.dir, "node", "actors", uid, "local-checkpoint")
    return {str(p.relative_to(top)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(top.rglob("*")) if p.is_file() and p.name != "sums.json"}


def capture_group_of(pid):
    """The file with the processes of the group beside the sandbox's own in which it writes its image."""
    groups = {}
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        groups.update({c: path for c in controllers.split(",")})
    top = f"/sys/fs/cgroup/memory{groups['memory']}" if "memory" in groups else f"/sys/fs/cgroup{groups['']}"
    return pathlib.Path(top + "_ckpt", "cgroup.procs")


def processes_in(group):
    try:
        return group.read_text().split()
    except OSError:  # there is none
        return []


class Recovery(StackTest):
    @classmethod
    def prepare(cls, s):
        for template, policy in (("counter", "stay"), ("careful", "revert")):
            s.cli("create", "template", template, "--image", image("counter"), "--memory", "128Mi",
                          "--probe", "/readyz", "--port", "80", "--no-golden", "--on-crash", policy)

    def create(self, name, template="counter"):
        self.stack.cli("create", "actor", name, "--template", template)
        return counts(self.stack.get(name))

    def test_running_actors_are_adopted_after_the_agent_was_killed(self):
        s = self.stack
        count = {name: self.create(name) for name in ("adopted-1", "adopted-2", "adopted-3")}
        pids = {name: sentry_of(s, name) for name in count}
        for turn in range(3):
            s.kill("node")
            for name, (memory, file) in count.items():
                # They answer all the time: the way to them does not lead through the agent.
                self.assertEqual(counts(s.get(name)), (memory + 1, file + 1), name)
                count[name] = (memory + 1, file + 1)
        self.assertEqual({name: sentry_of(s, name) for name in count}, pids)
        for name, (memory, file) in count.items():
            self.assertEqual(s.state(name), "RUNNING")
            s.cli("pause", name)
            self.assertEqual(counts(s.get(name)), (memory + 1, file + 1), name)

    def test_a_killed_worker_leaves_nothing_and_each_actor_ends_as_its_policy_says(self):
        s = self.stack
        memory, file = self.create("stays")
        self.create("reverts", "careful")
        s.cli("suspend", "reverts")
        careful = counts(s.get("reverts"))
        counts(s.get("reverts"))  # lost with the worker
        running = {sentry_of(s, name) for name in ("stays", "reverts")}
        s.cli("pause", "stays")
        memory, file = memory + 1, file + 1
        self.assertEqual(counts(s.get("stays")), (memory, file))
        before = local_files(s, "stays")
        self.assertTrue(before)
        running.add(sentry_of(s, "stays"))
        s.kill("worker")
        wait_for(lambda: s.state("stays") == "CRASHED", "crash without a durable generation")
        wait_for(lambda: not running & set(sandboxes(s.dir)), "end of the old sandboxes")
        self.assertEqual(local_files(s, "stays"), before)
        # The careful one wakes by itself from what it was suspended with.
        wait_for(lambda: s.answers("reverts"), "wake after the revert")
        self.assertEqual(counts(s.get("reverts")), careful)

    def starts_of(self, name):
        """How often the worker has started a sandbox for the actor."""
        uid = self.stack.actor(name)["metadata"]["uid"]
        lines = pathlib.Path(self.stack.dir, "logs", "worker.log").read_text().splitlines()
        ended = [json.loads(line) for line in lines if "operation ended" in line]
        return len([l for l in ended if (l["op"], l["actor"]) == ("StartWorkload", uid)])

    def test_B3_a_parked_request_outlives_the_apiserver_that_wakes_its_actor(self):
        s = self.stack
        memory, file = self.create("parked")
        s.cli("suspend", "parked")
        starts = self.starts_of("parked")
        worker = s.roles()["worker"]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            os.kill(worker, signal.SIGSTOP)  # the restore takes as long as this lasts
            try:
                answer = pool.submit(s.get, "parked")
                wait_for(lambda: s.state("parked") == "RESUMING", "wake")
                s.kill("apiserver")
                self.assertEqual(s.state("parked"), "RESUMING")
                self.assertFalse(answer.done())
            finally:
                os.kill(worker, signal.SIGCONT)
            self.assertEqual(counts(answer.result(60)), (memory + 1, file + 1))
        self.assertEqual(self.starts_of("parked"), starts + 1)
        self.assertEqual(s.roles()["worker"], worker)

    def test_E2_E5_a_worker_killed_while_an_image_is_written_leaves_no_sandbox_and_no_group(self):
        s = self.stack
        s.cli("create", "template", "big", "--image", image("glutton"), "--memory", "512Mi",
              "--probe", "/readyz", "--port", "80", "--no-golden")
        s.cli("create", "actor", "big", "--template", "big")
        fill = b"\x0a\x01a\x12\x05300Mi"  # WriteRAMRequest{key: "a", size: "300Mi"}
        answer = s.get("big", "/writeram", method="POST", body=fill)
        self.assertEqual(answer.status, 200, answer)
        sentry = sentry_of(s, "big")
        group = capture_group_of(sentry)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pause = pool.submit(s.cli, "pause", "big", code=None)
            wait_for(lambda: processes_in(group), "the sentry beside its group")
            s.kill("worker")
            pause.result(60)
        wait_for(lambda: sentry not in sandboxes(s.dir), "end of the old sandbox")
        wait_for(lambda: not group.parent.exists(), "removal of the group")
        # Killed when everything was written it is as good as paused; else it crashed, and says so.
        state = s.state("big")
        self.assertIn(state, ("CRASHED", "PAUSED"))
        if state == "PAUSED":
            self.assertEqual(s.get("big", "/readyz").status, 200)
        s.cli("delete", "actor", "big", "--any-state")

    def test_A12_local_files_are_what_they_were_whatever_ends_the_restored_actor(self):
        s = self.stack
        memory, file = self.create("kept")
        s.cli("suspend", "kept")
        self.assertEqual(counts(s.get("kept")), (memory + 1, file + 1))
        s.cli("pause", "kept")
        files = local_files(s, "kept")
        self.assertTrue(any("manifest.json" in f for f in files))
        self.assertEqual(counts(s.get("kept")), (memory + 2, file + 2))
        self.assertEqual(local_files(s, "kept"), files, "after a restore")
        os.kill(sentry_of(s, "kept"), signal.SIGKILL)
        wait_for(lambda: s.state("kept") == "CRASHED", "crash")
        self.assertEqual(local_files(s, "kept"), files, "after a crash")
        s.cli("revert", "kept")
        wait_for(lambda: s.answers("kept"), "wake after the revert")
        self.assertEqual(counts(s.get("kept")), (memory + 1, file + 1))

    def test_a_killed_mover_costs_a_suspend_nothing(self):
        s = self.stack
        memory, file = self.create("moved")
        for turn in range(3):
            s.kill("mover")
            s.cli("suspend", "moved")
            self.assertEqual(s.state("moved"), "SUSPENDED")
            memory, file = memory + 1, file + 1
            self.assertEqual(counts(s.get("moved")), (memory, file))


if __name__ == "__main__":
    unittest.main(verbosity=2)
