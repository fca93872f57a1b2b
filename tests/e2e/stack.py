"""A whole Torpor on this machine for one test: own data directory, own ports, real runsc.

    with Stack() as stack:
        stack.cli("create", "actor", "a", "--template", "counter")
        stack.get("a", "/")

Environment: TORPOR_BINARY (the program), TORPOR_IMAGES (OCI layouts made by workloads/build-images).
"""
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

BINARY = os.environ.get("TORPOR_BINARY", "")
IMAGES = os.environ.get("TORPOR_IMAGES", "")


def image(name):
    """`name` pinned by the digest of the layout that the build made."""
    for line in (pathlib.Path(IMAGES) / "images.txt").read_text().splitlines():
        fields = line.split()
        if fields and fields[0] == name:
            return f"{name}@{fields[1]}"
    raise KeyError(f"no image {name} in {IMAGES}/images.txt")


def listdir(path):
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def __repr__(self):
        return f"<{self.status} {dict(self.headers)} {self.body!r}>"


class Stack:
    def __init__(self, *flags, directory=None, environment=None):
        self.flags = list(flags)
        self.role_environment = environment or {}
        self.own_directory = directory is None
        # The roles' users must reach it, so it is not below a private directory.
        self.dir = directory or tempfile.mkdtemp(prefix="torpor-e2e-", dir="/var/tmp")
        os.chmod(self.dir, 0o755)
        self.api_port, self.http_port, self.port, self.admin_port = free_ports(4)
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, value, trace):
        if value is not None:
            self.print_logs()
        self.stop()
        if self.own_directory:
            shutil.rmtree(self.dir, ignore_errors=True)

    @property
    def environment(self):
        return {**os.environ, "TORPOR_ENDPOINT": f"unix:{self.dir}/run/api.sock", "TORPOR_DIR": self.dir}

    def start(self):
        command = [BINARY, "up", "--dir", self.dir, "--api-listen", f"127.0.0.1:{self.api_port}",
                   "--http-listen", f"127.0.0.1:{self.http_port}", "--router-listen", f"127.0.0.1:{self.port}",
                   "--router-admin-listen", f"127.0.0.1:{self.admin_port}", "--image-layout-dir", IMAGES,
                   *self.flags]
        begin = time.monotonic()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **self.role_environment})
        line = self.process.stdout.readline()
        if "ready" not in line:
            self.print_logs()
            raise RuntimeError(f"torpor up did not become ready: {line!r}")
        self.start_seconds = time.monotonic() - begin

    def stop(self, how=signal.SIGTERM):
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(120)
        finally:
            self.process.stdout.close()
            self.process = None

    def left_behind(self):
        """What a stopped Torpor must not leave: processes, namespaces, mounts, cgroups."""
        left = [f"netns {name}" for name in listdir("/run/netns") if name.startswith("torpor-")]
        left += [line for line in pathlib.Path("/proc/mounts").read_text().splitlines() if self.dir in line]
        # Groups of a worker have the hash (FNV-1a) of its node's directory in their name.
        instance = 2166136261
        for byte in f"{self.dir}/node".encode():
            instance = (instance ^ byte) * 16777619 % 2**32
        left += [str(p) for p in pathlib.Path("/sys/fs/cgroup").glob(f"**/*-{instance:08x}*/*") if p.is_dir()]
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if self.dir in line:
                left.append(f"process {pid} {line}")
        return sorted(left)

    def roles(self):
        """{role: pid} of what runs."""
        state = json.loads(pathlib.Path(self.dir, "run", "roles.json").read_text())
        return {r["name"]: r["pid"] for r in state["roles"]}

    def strike(self, role):
        """SIGKILL, and no waiting; False if the role is not running at the moment."""
        pid = self.roles()[role]
        try:
            if pid:
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False  # the supervisor has not seen yet that it ended
        return pid != 0

    def kill(self, role):
        """SIGKILL, then waits until the supervisor has started the role again."""
        old = self.roles()[role]
        os.kill(old, signal.SIGKILL)
        wait_for(lambda: self.roles()[role] not in (0, old), f"restart of {role}")
        if role == "apiserver":  # the router may answer from what it knows, long before the API is back
            wait_for(lambda: self.cli("get", "atespaces", code=None).returncode == 0, "the API")

    def print_logs(self):
        for path in sorted(pathlib.Path(self.dir, "logs").glob("*.log")):
            lines = path.read_text(errors="replace").splitlines()[-25:]
            print(f"--- {path.name}", *lines, sep="\n")

    def cli(self, *arguments, code=0, text=None, timeout=120):
        result = subprocess.run([BINARY, *arguments], env=self.environment, capture_output=True, text=True,
                                input=text, timeout=timeout)
        if code is not None and result.returncode != code:
            raise AssertionError(f"torpor {' '.join(arguments)}: exit {result.returncode}, wanted {code}\n"
                                 f"{result.stdout}{result.stderr}")
        return result

    def json(self, *arguments):
        return json.loads(self.cli(*arguments, "-o", "json").stdout)

    def actor(self, name):
        return self.json("get", "actor", name)

    def state(self, name):
        return self.actor(name)["status"]["state"].removeprefix("ACTOR_STATE_")

    def get(self, actor, path="/", atespace="default", timeout=60, method="GET", body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body,
                               headers={"Host": f"{actor}.{atespace}.actors.localhost", **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read().decode(errors="replace"))
        finally:
            connection.close()

    def answers(self, actor):
        """Whether the actor is reached; false while the router itself starts again."""
        try:
            return self.get(actor, "/readyz").status == 200
        except OSError:
            return False

    def rpc(self, method, message, token=None, headers=None):
        """A call of the JSON API; `method` like ateapi.Control/GetActor."""
        if token is None:
            token = pathlib.Path(self.dir, "token").read_text().strip()
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=120)
        try:
            connection.request("POST", f"/{method}", body=json.dumps(message),
                               headers={"Content-Type": "application/json", "Authorization": f"Bearer {token}",
                                        **(headers or {})})
            response = connection.getresponse()
            body = response.read().decode()
            return Answer(response.status, response.headers, json.loads(body) if body else None)
        finally:
            connection.close()


class StackTest(unittest.TestCase):
    """Tests that share one stack, which must leave nothing behind; `prepare` makes what all of them use."""

    @classmethod
    def prepare(cls, s):
        pass

    @classmethod
    def setUpClass(cls):
        cls.stack = Stack()
        # Last in, first out: also after a preparation that failed, what is left is looked at last.
        cls.addClassCleanup(cls.nothing_is_left)
        cls.addClassCleanup(cls.stack.__exit__, None, None, None)
        cls.stack.start()
        try:
            cls.prepare(cls.stack)
        except BaseException:
            cls.stack.print_logs()
            raise

    @classmethod
    def nothing_is_left(cls):
        assert not cls.stack.left_behind(), cls.stack.left_behind()

    def run(self, result):
        """One test; after a failure the logs of the roles are shown."""
        failed = len(result.failures) + len(result.errors)
        super().run(result)
        if len(result.failures) + len(result.errors) > failed:
            self.stack.print_logs()
        return result


def wait_for(condition, what, timeout=60):
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out: {what}")
        time.sleep(0.02)


def counts(answer):
    """(memory count, file count) of the counter workload's answer."""
    if answer.status != 200:
        raise AssertionError(f"the counter did not answer: {answer}")
    parts = dict(p.strip().rsplit(": ", 1) for p in answer.body.split("|"))
    return int(parts["preserved memory count"]), int(parts["preserved file counter"])
