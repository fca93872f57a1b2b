"""What an operator uses: metrics and traces of every role, watching, node verbs, doctor, JSON errors."""
import json
import os
import pathlib
import pty
import re
import signal
import socket
import subprocess
import unittest

import stack
from stack import StackTest, counts, image, wait_for

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
TRACE = "0af7651916cd43dd8448eb211c80319c"


def scrape(path, page="/metrics"):
    """A page of an admin socket, or of an address (host, port)."""
    s = socket.socket(socket.AF_UNIX if isinstance(path, str) else socket.AF_INET)
    s.settimeout(30)
    with s:
        s.connect(path)
        s.sendall(f"GET {page} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        data = b""
        while chunk := s.recv(65536):
            data += chunk
    head, body = data.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 200"), head
    return body.decode()


class Watch:
    """A command that goes on until Ctrl-C; its lines as they come."""

    def __init__(self, s, *arguments):
        self.file = pathlib.Path(s.dir, f"watch-{len(arguments)}-{arguments[0]}-{os.urandom(4).hex()}")
        self.out = self.file.open("w")
        self.process = subprocess.Popen([stack.BINARY, *arguments], env=s.environment, stdout=self.out,
                                        stderr=subprocess.STDOUT)

    def wait_for(self, text):
        wait_for(lambda: text in self.file.read_text(), f"{text!r} in {self.file.read_text()!r}", timeout=60)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(30)
        self.out.close()
        return code


class Terminal:
    """A command on a terminal of its own, from which Ctrl-C can be pressed."""

    def __init__(self, s, *arguments):
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(stack.BINARY, [stack.BINARY, *arguments], s.environment)

    def read(self):
        """False at the end."""
        try:
            data = os.read(self.fd, 4096)
        except OSError:  # EIO: nobody has the terminal any more
            data = b""
        self.text += data.decode(errors="replace")
        return bool(data)

    def wait_for(self, pattern):
        while not re.search(pattern, self.text):
            assert self.read(), f"no {pattern!r} in {self.text!r}"

    def press_ctrl_c(self):
        os.write(self.fd, b"\x03")

    def end(self):
        while self.read():
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Operators(StackTest):
    @classmethod
    def prepare(cls, s):
        s.cli("create", "template", "counter", "--image", image("counter"), "--memory", "128Mi",
              "--probe", "/readyz", "--port", "80", "--no-golden")

    def admin(self, role):
        s = self.stack
        return {"apiserver": f"{s.dir}/run/metrics-apiserver.sock",
                "node": f"{s.dir}/node/run/metrics-node.sock",
                "worker": f"{s.dir}/node/run/metrics-worker-gvisor-0.sock",
                "mover": f"{s.dir}/node/run/metrics-mover.sock",
                "router": ("127.0.0.1", s.admin_port)}[role]

    def test_metrics_of_every_role_are_documented(self):
        s = self.stack
        s.cli("create", "actor", "measured", "--template", "counter")
        self.assertEqual(counts(s.get("measured")), (1, 1))
        s.cli("pause", "measured")
        s.get("measured")
        s.cli("suspend", "measured")
        page = (DOCS / "metrics.md").read_text()
        expected = {
            "apiserver": ['torpor_apiserver_operation_seconds_count{verb="resume",outcome="ok",reason=""}',
                          'torpor_apiserver_phase_seconds_count{verb="pause",phase="checkpoint"}',
                          'torpor_apiserver_request_seconds_count{method="SuspendActor",code="OK"}',
                          'torpor_apiserver_store_commit_seconds_count{result="ok"}', "torpor_apiserver_queue_length"],
            "node": ['torpor_node_operation_seconds_count{op="StartActor",outcome="ok",reason=""}'],
            "worker": ['torpor_worker_operation_seconds_count{op="CaptureWorkload",outcome="ok",reason=""}',
                       "torpor_worker_workloads"],
            "mover": ['torpor_mover_operation_seconds_count{op="Upload",outcome="ok",reason=""}'],
            "router": ['torpor_router_requests_total{status_class="2xx",reason=""}'],
        }
        for role, names in expected.items():
            text = scrape(self.admin(role))
            for name in names + [f'torpor_build_info{{role="{role}"', "process_open_fds"]:
                self.assertIn(name, text, role)
            self.assertNotIn("measured", text, role)
            self.assertEqual(scrape(self.admin(role), "/healthz"), "ok\n")
            self.assertEqual(scrape(self.admin(role), "/readyz"), "ok\n")
            for name in re.findall(r"^# TYPE (\S+)", text, re.M):
                self.assertIn(f"`{name}", page, f"docs/metrics.md does not have {name} of {role}")

    def log_lines(self, role, trace):
        out = []
        for line in pathlib.Path(self.stack.dir, "logs", f"{role}.log").read_text().splitlines():
            if trace in line and line.startswith("{"):
                out.append(json.loads(line))
        return out

    def test_one_trace_id_from_the_request_to_the_worker(self):
        s = self.stack
        s.cli("create", "actor", "traced", "--template", "counter")
        s.get("traced", headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"})
        for role, op in (("apiserver", "resume"), ("node", "StartActor"), ("worker", "StartWorkload")):
            wait_for(lambda: [l for l in self.log_lines(role, TRACE) if l.get("op") == op], f"{op} in {role}.log")
        line = [l for l in self.log_lines("worker", TRACE) if l.get("op") == "StartWorkload"][0]
        self.assertEqual((line["message"], line["outcome"], line["trace_id"]), ("operation ended", "ok", TRACE))
        self.assertIn(TRACE, s.cli("why", "traced").stdout)
        # Through the JSON API, too; and an operation that nobody traced has one of its own.
        other = TRACE[::-1]
        answer = s.rpc("ateapi.Control/PauseActor", {"actor": {"atespace": "default", "name": "traced"}},
                       headers={"traceparent": f"00-{other}-b7ad6b7169203331-01"})
        self.assertEqual(answer.status, 200, answer)
        wait_for(lambda: self.log_lines("worker", other), "the pause in worker.log")
        s.cli("resume", "traced")
        own = s.json("why", "traced")["reports"][0]["traceId"]
        wait_for(lambda: self.log_lines("node", own), "the resume in node.log")

    def test_watch_shows_what_changes(self):
        s = self.stack
        actors = Watch(s, "get", "actors", "--watch")
        s.cli("create", "actor", "watched", "--template", "counter")
        actors.wait_for("watched")
        events = Watch(s, "events", "watched", "--watch", "-o", "json")
        s.cli("resume", "watched")
        actors.wait_for("RUNNING")
        s.cli("delete", "actor", "watched", "--any-state")
        actors.wait_for("default/watched deleted")
        events.wait_for("ACTOR_STATE_RUNNING")
        for line in events.file.read_text().splitlines():
            json.loads(line)
        self.assertEqual((actors.stop(), events.stop()), (0, 0))

    def test_l4_errors_for_scripts(self):
        s = self.stack
        s.cli("create", "actor", "scripted", "--template", "counter")
        for arguments, code, reason in ((["get", "actor", "nobody"], 4, "ACTOR_NOT_FOUND"),
                                        (["pause", "scripted"], 5, "WRONG_STATE"),
                                        (["get", "actor", "--nope"], 2, "WRONG_USAGE"),
                                        (["--endpoint", f"unix:{s.dir}/none.sock", "get", "actors"], 6, "")):
            result = s.cli(*arguments, "-o", "json", code=code)
            error = json.loads(result.stderr)["error"]
            self.assertEqual((error["reason"], error["exitCode"]), (reason, code), error)
            self.assertTrue(error["message"])
            self.assertEqual(result.stdout, "")

    def test_l5_an_empty_list_says_where_it_looked(self):
        s = self.stack
        s.cli("create", "atespace", "empty")
        result = s.cli("get", "actors", "-s", "empty")
        self.assertIn("nothing found in atespace empty; -s NAME looks in another one, -A in all", result.stderr)

    def test_l8_values_of_environment_variables_are_not_shown(self):
        s = self.stack
        s.cli("create", "template", "secret", "--image", image("counter"), "--no-golden", "--env", "KEY=canary-5f1c")
        for form in ("json", "yaml", "wide", "table"):
            result = s.cli("get", "template", "secret", "-o", form)
            self.assertNotIn("canary-5f1c", result.stdout + result.stderr, form)
        self.assertIn("canary-5f1c", s.cli("get", "template", "secret", "-o", "json", "--show-secrets").stdout)
        s.cli("create", "actor", "holder", "--template", "secret")
        s.cli("resume", "holder")
        for log in pathlib.Path(s.dir, "logs").glob("*.log"):
            self.assertNotIn("canary-5f1c", log.read_text(errors="replace"), log.name)
        s.cli("delete", "actor", "holder", "--any-state")

    def test_l3_a_verb_says_where_the_state_is(self):
        s = self.stack
        s.cli("create", "actor", "placed", "--template", "counter")
        self.assertRegex(s.cli("resume", "placed").stdout, r"default/placed is RUNNING, generation \d+ on node \S+")
        self.assertRegex(s.cli("pause", "placed").stdout,
                         r"is PAUSED, generation \d+, on the disk of node \S+; it does not survive the loss")
        self.assertRegex(s.cli("suspend", "placed").stdout,
                         r"is SUSPENDED, generation \d+, in the object store; it survives the loss")

    def test_l9_a_long_call_shows_its_step_and_ctrl_c_ends_the_waiting_only(self):
        s = self.stack
        s.cli("create", "actor", "slow", "--template", "counter")
        memory, file = counts(s.get("slow"))
        mover = s.roles()["mover"]
        os.kill(mover, signal.SIGSTOP)  # the upload takes as long as this lasts
        try:
            call = Terminal(s, "suspend", "slow", "fast")
            call.wait_for(r"\d(\.\d+)?s  SUSPENDING, step \w+ on \S+")
            call.press_ctrl_c()
            self.assertEqual(call.end(), 6, call.text)
            self.assertRegex(call.text, r"stopped waiting after \S+s; the operation goes on \(CANCELLED\): "
                                        r"torpor why default/slow shows how far it is")
            self.assertNotIn("fast", call.text, "the next one is not begun")
            begun = s.json("why", "slow")["reports"][0]
            self.assertTrue(begun["step"], begun)
            # --timeout and --wait are about the waiting, too; both join the same operation.
            late = s.cli("suspend", "slow", "--timeout", "300ms", code=6).stderr
            self.assertRegex(late, r"goes on.*\(DEADLINE_EXCEEDED\): torpor why default/slow")
            self.assertIn("is SUSPENDING", s.cli("suspend", "slow", "--wait=false").stdout)
            self.assertEqual(s.json("why", "slow")["reports"][0]["opId"], begun["opId"])
        finally:
            os.kill(mover, signal.SIGCONT)
        wait_for(lambda: s.state("slow") == "SUSPENDED", "end of the suspend that nobody waited for")
        self.assertEqual(s.json("why", "slow")["reports"][0]["opId"], begun["opId"])
        self.assertEqual(counts(s.get("slow")), (memory + 1, file + 1))

    def test_logs_follow(self):
        s = self.stack
        s.cli("create", "actor", "loud", "--template", "counter")
        s.cli("resume", "loud")
        logs = Watch(s, "logs", "loud", "-f")
        wait_for(lambda: logs.file.read_text(), "a first line")
        before = len(logs.file.read_text())
        s.get("loud")
        wait_for(lambda: len(logs.file.read_text()) > before, "the line of a request")
        logs.stop()

    def test_node_status_and_doctor(self):
        s = self.stack
        node = s.json("get", "nodes")["items"][0]["name"]
        self.assertIn("READY", s.cli("node", "status").stdout)
        self.assertEqual(s.json("node", "status", node)["name"], node)
        s.cli("node", "status", "nowhere", code=4)
        result = s.cli("doctor", "--no-smoke", "--output", "json", code=None)
        findings = json.loads(result.stdout)["items"]
        # How full the disk of this machine is, is not the test's business.
        problems = [f for f in findings if f["level"] == "PROBLEM" and f["check"] != "disk"]
        self.assertEqual(problems, [])
        self.assertIn("records", {f["check"] for f in findings})

    def test_node_drain_and_back(self):
        s = self.stack
        s.cli("create", "actor", "moved", "--template", "counter")
        self.assertEqual(counts(s.get("moved")), (1, 1))
        out = s.cli("node", "drain").stdout
        self.assertRegex(out, r"node \S+ is DRAINED: 0 running, 0 only on this node")
        self.assertEqual(s.state("moved"), "SUSPENDED")
        refused = s.cli("resume", "moved", code=6).stderr
        self.assertIn("NO_CAPACITY", refused)
        self.assertIn("READY", s.cli("node", "uncordon").stdout)
        self.assertEqual(counts(s.get("moved")), (2, 2))


if __name__ == "__main__":
    unittest.main(verbosity=2)
