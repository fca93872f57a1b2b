"""`torpor check-storage` beside a real S3 server (with_s3), and what of secrets can be seen from outside."""
import os
import subprocess
import tempfile
import unittest

BINARY = os.environ["TORPOR_BINARY"]
ENDPOINT = os.environ["TORPOR_S3_ENDPOINT"]
SECRET = os.environ["AWS_SECRET_ACCESS_KEY"]


def torpor(*arguments, **environment):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "AWS_EC2_METADATA_DISABLED": "true", **environment})


class CheckStorage(unittest.TestCase):
    def check(self, *arguments, code, says, **environment):
        result = torpor("check-storage", *arguments, **environment)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn(says, result.stdout + result.stderr)
        self.assertNotIn(environment.get("AWS_SECRET_ACCESS_KEY", SECRET), result.stdout + result.stderr)

    def test_a_bucket_that_can_be_used(self):
        self.check("--allowed-storage", "s3://torpor-test/p", "--s3-endpoint", ENDPOINT, code=0,
                   says="s3://torpor-test/p can be used")

    def test_what_is_wrong_is_said_with_what_to_do(self):
        self.check("--allowed-storage", "s3://no-such-bucket", "--s3-endpoint", ENDPOINT, code=7,
                   says="create the bucket")
        self.check("--allowed-storage", "s3://torpor-test", "--s3-endpoint", ENDPOINT, code=7,
                   says="SignatureDoesNotMatch", AWS_SECRET_ACCESS_KEY="canary-wrong")
        self.check("--allowed-storage", "s3://torpor-test", "--s3-endpoint", ENDPOINT, code=7,
                   says="set AWS_ACCESS_KEY_ID", AWS_ACCESS_KEY_ID="", HOME="/nonexistent")
        self.check("--allowed-storage", "s3://torpor-test", "--s3-endpoint", "http://127.0.0.1:1", code=6,
                   says="check the endpoint and the network")
        self.check("--allowed-storage", "s3://torpor-test", "--s3-endpoint", "127.0.0.1:1", code=2,
                   says="s3-endpoint must be")
        self.check("--allowed-storage", "s3://torpor-test", "--s3-addressing", "other", code=2,
                   says="auto")

    def test_a_file_of_keys(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write(f"[torpor]\naws_access_key_id = {os.environ['AWS_ACCESS_KEY_ID']}\n"
                       f"aws_secret_access_key = {SECRET}\n")
            keys.flush()
            arguments = ("--allowed-storage", "s3://torpor-test", "--s3-endpoint", ENDPOINT,
                         "--s3-credentials-file", keys.name)
            self.check(*arguments, "--s3-profile", "torpor", code=0, says="can be used", AWS_ACCESS_KEY_ID="")
            self.check(*arguments, code=7, says="section [default]")

    def test_f15_no_help_and_no_print_shows_a_secret(self):
        for role in ("up", "apiserver", "mover", "node", "worker", "router", "check-storage"):
            for flag in ("--help", "--print-config"):
                result = torpor(role, flag)
                self.assertEqual(result.returncode, 0, role)
                self.assertNotIn(SECRET, result.stdout + result.stderr, role)


if __name__ == "__main__":
    unittest.main()
