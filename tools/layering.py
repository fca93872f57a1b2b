#!/usr/bin/env python3
"""Checks that includes point down only, and that gRPC stays at the rim.

A module may include itself and the modules named in its row. `proto` stands for generated headers.
"""
import pathlib
import re
import sys

ALLOWED = {
    "base": [],
    "model": ["base"],
    "os": ["base", "model"],
    "objstore": ["base", "model", "os"],
    "snapshot": ["base", "model", "os", "objstore"],
    "runtime": ["base", "model", "os"],
    "scheduler": ["base", "model"],
    "rpc": ["base", "model"],
    "control": ["base", "model", "scheduler", "objstore", "snapshot", "rpc"],
    "mover": ["base", "model", "os", "objstore", "snapshot", "rpc"],
    "worker": ["base", "model", "os", "snapshot", "runtime", "rpc"],
    "agent": ["base", "model", "os", "snapshot", "rpc"],
    "router": ["base", "model", "rpc"],
    "api": ["base", "model", "control", "rpc"],
    "cli": ["base", "model", "os", "rpc"],
    "bench": ["base", "model", "os", "rpc", "cli", "runtime", "worker"],
    "apps": ["*"],
}
# Folders whose files may include gRPC headers; `rpc` also below any module.
GRPC_MODULES = {"apps", "api", "cli", "rpc", "bench"}
INCLUDE = re.compile(r'^\s*#include\s+["<]([^">]+)[">]')
GENERATED = re.compile(r"^(ateapi|torpor|google/rpc|glutton)/.*\.pb\.h$")


def main() -> int:
    source = pathlib.Path(__file__).resolve().parent.parent / "src"
    problems = []
    for path in sorted(source.rglob("*.h")) + sorted(source.rglob("*.cc")):
        relative = path.relative_to(source)
        module = relative.parts[0]
        if module not in ALLOWED:
            problems.append(f"src/{relative}: module {module} is not in the table of tools/layering.py")
            continue
        rim = module in GRPC_MODULES or "rpc" in relative.parts[1:-1] or relative.name == "grpc_pch.h"
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            name = match.group(1)
            where = f"src/{relative}:{number}"
            if (name.startswith("grpc") or name.endswith(".grpc.pb.h")) and not rim:
                problems.append(f"{where}: gRPC header {name} outside apps, api, cli, bench and rpc folders")
                continue
            if GENERATED.match(name):
                continue
            target = name.split("/")[0]
            if target not in ALLOWED or target == module:
                continue
            if target == "rpc" and not rim:
                problems.append(f"{where}: {name} belongs to the rim; include it from an rpc folder")
            elif target not in ALLOWED[module] and "*" not in ALLOWED[module]:
                problems.append(f"{where}: {module} must not include {name}")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
