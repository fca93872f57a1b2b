"""Roles killed in random order while actors sleep and wake; at the end everything is as it must be.

TORPOR_SOAK_SEED and TORPOR_SOAK_SECONDS choose another run, e.g. 1800 for half an hour.
"""
import http.client
import os
import random
import subprocess
import time
import unittest

from stack import Stack, counts, image, wait_for

SEED = int(os.environ.get("TORPOR_SOAK_SEED", "1"))
SECONDS = float(os.environ.get("TORPOR_SOAK_SECONDS", "20"))
ACTORS = [f"soak-{i}" for i in range(4)]
ROLES = ("apiserver", "router", "node", "worker", "mover")
RESTING = ("RUNNING", "PAUSED", "SUSPENDED", "CRASHED")


class Soak(unittest.TestCase):
    def test_random_kills(self):
        rng = random.Random(SEED)
        with Stack() as s:
            s.cli("create", "template", "counter", "--image", image("counter"), "--memory", "128Mi",
                  "--probe", "/readyz", "--port", "80", "--no-golden")
            # Per actor: the count of its last answer, the count that was acknowledged as durable, and the highest that
            # all requests together can have made.
            seen, durable, most = {}, {}, {}
            for name in ACTORS:
                s.cli("create", "actor", name, "--template", "counter")
                seen[name] = durable[name] = most[name] = counts(s.get(name))[0]
                s.cli("suspend", name)
            kills = 0
            end = time.monotonic() + SECONDS
            while time.monotonic() < end or kills < 8:
                self.step(s, rng, seen, durable, most)
                if s.strike(rng.choice(ROLES)):
                    kills += 1
            wait_for(lambda: all(s.roles()[role] for role in ROLES), "all roles run")
            wait_for(lambda: s.cli("get", "actors", code=None).returncode == 0, "the API answers")
            for name in ACTORS:
                self.check(s, name, durable[name], most[name])
            for name in ACTORS:
                s.cli("delete", "actor", name, "--any-state")
            wait_for(lambda: not os.listdir(os.path.join(s.dir, "node", "actors")), "the node is empty")
        self.assertEqual(s.left_behind(), [])
        print(f"seed {SEED}: {kills} kills")

    def step(self, s, rng, seen, durable, most):
        """One call that may fail, as long as it does not hang."""
        name = rng.choice(ACTORS)
        verb = rng.choice(("get", "get", "pause", "suspend", "revert"))
        if verb == "get":
            most[name] += 1
            try:
                answer = s.get(name, timeout=60)
            except (OSError, http.client.HTTPException):
                return  # the router was killed
            if answer.status == 200:
                seen[name] = counts(answer)[0]
            return
        if verb == "revert":
            seen[name] = durable[name]
        try:
            result = s.cli(verb, name, code=None, timeout=60)
        except subprocess.TimeoutExpired:
            self.fail(f"{verb} {name} hangs")
        if verb == "suspend" and result.returncode == 0:
            durable[name] = seen[name]

    def check(self, s, name, durable, most):
        wait_for(lambda: s.state(name) in RESTING, f"{name} comes to rest", timeout=120)
        if s.state(name) == "CRASHED":
            s.cli("revert", name)
        wait_for(lambda: s.answers(name), f"{name} answers", timeout=120)
        memory, file = counts(s.get(name))
        self.assertGreater(memory, durable, f"{name} lost an acknowledged generation")
        self.assertLessEqual(memory, most + 1, name)
        self.assertEqual(memory, file, f"{name}: memory and files are of different moments")


if __name__ == "__main__":
    unittest.main(verbosity=2)
