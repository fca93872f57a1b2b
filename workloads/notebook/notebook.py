#!/usr/bin/python3
"""A tiny notebook kernel: runs Python code in one persistent namespace, over HTTP.

POST /run    code as the body, or JSON {"code": ...}; answers JSON with stdout, stderr, result,
             error and the number of the execution
GET /vars    the variables of the namespace as JSON: name -> type and short repr
GET /readyz  200 once the kernel serves

The namespace lives in memory only, so a variable that is still there after a wake proves that
memory was restored. The code runs with all rights of this process; the sandbox is the boundary.
"""

import argparse
import ast
import contextlib
import http.server
import io
import json
import os
import signal
import socket
import sys
import threading
import traceback

MAX_BODY_BYTES = 16 << 20
MAX_REPR_CHARS = 10_000


def short_repr(value):
    """repr that neither fails nor floods the answer."""
    try:
        text = repr(value)
    except Exception as error:  # The object is the user's; its repr may raise anything.
        text = f"<repr failed: {error!r}>"
    return text if len(text) <= MAX_REPR_CHARS else text[:MAX_REPR_CHARS] + "..."


class Kernel:
    """Owns the namespace. Executions are serialized, as in any notebook."""

    def __init__(self):
        self._lock = threading.Lock()
        self._namespace = {"__name__": "__main__", "__builtins__": __builtins__}
        self._executions = 0

    def run(self, code):
        with self._lock:
            self._executions += 1
            stdout, stderr = io.StringIO(), io.StringIO()
            answer = {"execution": self._executions, "result": None, "error": None}
            with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
                try:
                    answer["result"] = self._execute(code, f"<cell {self._executions}>")
                except BaseException as error:  # SystemExit must not end the kernel either.
                    answer["error"] = {
                        "type": type(error).__name__,
                        "message": str(error),
                        "traceback": traceback.format_exc(),
                    }
            answer["stdout"], answer["stderr"] = stdout.getvalue(), stderr.getvalue()
            return answer

    def _execute(self, code, name):
        """Runs the statements; the value of a last expression is the result."""
        tree = ast.parse(code, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        exec(compile(tree, name, "exec"), self._namespace)
        if last is None:
            return None
        value = eval(compile(last, name, "eval"), self._namespace)
        if value is None:
            return None
        self._namespace["_"] = value
        return short_repr(value)

    def variables(self):
        with self._lock:
            return {
                name: {"type": type(value).__name__, "repr": short_repr(value)}
                for name, value in self._namespace.items()
                if not name.startswith("__")
            }


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body leave in one write: two would wait for each other's acknowledgement.
    wbufsize = 65536
    disable_nagle_algorithm = True
    kernel = None

    def do_GET(self):
        if self.path == "/readyz":
            self._answer(200, "ok", "text/plain")
        elif self.path == "/vars":
            self._answer_json(200, self.kernel.variables())
        else:
            self._answer_json(404, {"error": "no such path"})

    def do_POST(self):
        if self.path != "/run":
            self.close_connection = True
            self._answer_json(404, {"error": "no such path"})
            return
        try:
            size = int(self.headers.get("Content-Length", ""))
        except ValueError:
            size = -1
        if not 0 <= size <= MAX_BODY_BYTES:
            self.close_connection = True
            self._answer_json(400, {"error": f"Content-Length must be 0..{MAX_BODY_BYTES}"})
            return
        body = self.rfile.read(size)
        try:
            code = body.decode()
            if self.headers.get_content_type() == "application/json":
                code = json.loads(code)["code"]
            if not isinstance(code, str):
                raise TypeError("code must be a string")
        except (ValueError, KeyError, TypeError) as error:
            self._answer_json(400, {"error": f"bad body: {error}"})
            return
        self._answer_json(200, self.kernel.run(code))

    def _answer_json(self, status, value):
        self._answer(status, json.dumps(value) + "\n", "application/json")

    def _answer(self, status, text, content_type):
        # Lone surrogates can come out of user code and must not break the answer.
        body = text.encode(errors="backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        sys.__stdout__.write("notebook: " + format % args + "\n")
        sys.__stdout__.flush()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def server_bind(self):
        # The base class looks up the host name here, which can hang without a resolver.
        socket.socket.setsockopt(self.socket, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.server_address[:2]

    def handle_error(self, request, client_address):
        # Connections are reset by a restore of the sandbox; that is no reason for a traceback.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def main():
    parser = argparse.ArgumentParser(description="a small notebook kernel over HTTP")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=80)
    arguments = parser.parse_args()
    # As PID 1 a program that does not ask for SIGTERM never gets it.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    Handler.kernel = Kernel()
    server = Server((arguments.host, arguments.port), Handler)
    sys.__stdout__.write(f"notebook: listening on {arguments.host}:{server.server_port}\n")
    sys.__stdout__.flush()
    server.serve_forever(poll_interval=None)


if __name__ == "__main__":
    main()
