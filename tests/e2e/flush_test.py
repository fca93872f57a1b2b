"""A pause and a wake wait for no flush to the disk: the flushes of every role are counted by a preloaded library."""
import os
import pathlib
import tempfile
import unittest

from stack import Stack, counts, image, wait_for

# Threads whose whole purpose is to flush later what nobody waits for.
BACKGROUND = ("store-flusher", "housekeeper")


class FlushLog:
    def __init__(self):
        handle, self.path = tempfile.mkstemp(prefix="torpor-flushes-", dir="/var/tmp")
        os.close(handle)
        os.chmod(self.path, 0o666)  # the roles run as several users

    @property
    def environment(self):
        return {"LD_PRELOAD": os.environ["TORPOR_COUNT_FLUSHES"], "TORPOR_FLUSH_LOG": self.path,
                # A sanitizer's runtime insists on being the first library otherwise.
                "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}

    def lines(self):
        """[(pid, thread, call, file)]"""
        return [tuple(line.split(" ", 3)) for line in pathlib.Path(self.path).read_text().splitlines()]


class NoFlush(unittest.TestCase):
    def test_E9_no_flush_between_request_and_answer(self):
        log = FlushLog()
        self.addCleanup(os.unlink, log.path)
        with Stack(environment=log.environment) as s:
            s.cli("create", "template", "counter", "--image", image("counter"), "--memory", "128Mi",
                  "--probe", "/readyz", "--port", "80")
            s.cli("create", "actor", "a", "--template", "counter")
            memory, file = counts(s.get("a"))
            # The counter counts: making the node wrote its identity durably, and images are flushed when it is quiet.
            roles = {str(pid): role for role, pid in s.roles().items()}
            self.assertTrue([x for x in log.lines() if roles.get(x[0]) == "node" and x[2] == "fsync"], log.lines())
            wait_for(lambda: [x for x in log.lines() if x[1] == "housekeeper" and x[2] == "syncfs"], "flush of the image")
            seen = len(log.lines())
            for turn in range(5):
                s.cli("pause", "a")
                self.assertEqual(s.state("a"), "PAUSED")
                self.assertEqual(counts(s.get("a")), (memory + 1, file + 1))
                memory, file = memory + 1, file + 1
            flushed = [(roles.get(pid, pid), thread, call, path) for pid, thread, call, path in log.lines()[seen:]]
            self.assertEqual(roles, {str(pid): role for role, pid in s.roles().items()}, "a role was restarted")
            self.assertEqual([x for x in flushed if x[1] not in BACKGROUND], [])
            self.assertEqual([x for x in flushed if x[1] == "housekeeper"], [], "what was paused is flushed by the kernel")
            # And a suspend does flush: the durable copy is what it promises.
            seen = len(log.lines())
            s.cli("suspend", "a")
            self.assertTrue([x for x in log.lines()[seen:] if roles.get(x[0]) == "mover"], "durable")


if __name__ == "__main__":
    unittest.main(verbosity=2)
