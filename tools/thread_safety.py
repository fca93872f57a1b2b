#!/usr/bin/env python3
"""Runs clang's thread-safety analysis over every source file that sees an annotated mutex.

g++ builds the product and does not know the annotations, so the commands of a configured build are
repeated with clang, without generating code. A file that passed is not looked at again until it, a header
of ours that it reaches, or its flags change: BUILD_DIR/thread_safety.passed holds the digests.
Usage: tools/thread_safety.py BUILD_DIR
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLANG = "clang++-19"
KIND = re.compile(r"/torpor_(\w+?)_pch(?:_test)?\.dir/")  # which precompiled header the build uses
DROP = re.compile(r"^(-fpch-preprocess|-Winvalid-pch|-fuse-ld=.*|-fsanitize.*|-fno-sanitize.*|-O\d|-g\d?)$")


def flags_of(command: str) -> list:
    """Compiler flags without compiler, launcher, source, output and precompiled header."""
    words = shlex.split(command)
    out = []
    skip = 0
    for i, word in enumerate(words):
        if skip:
            skip -= 1
        elif word in ("-include", "-o", "-c"):
            skip = 1
        elif word.startswith(("-I", "-D", "-std", "-W", "-f")) and not DROP.match(word):
            out.append(word)
        elif word == "-isystem":
            out += [word, words[i + 1]]
            skip = 1
    # The product's own warnings are g++'s business. No -w: it would silence the analysis, too.
    out = [word for word in out if not word.startswith("-W")]
    return out + ["-Wno-everything", "-Wthread-safety", "-Werror=thread-safety"]


BROKEN = """#include "base/sync.h"
struct Broken {
  torpor::Mutex mu;
  int value GUARDED_BY(mu) = 0;
  int Get() { return value; }
};
"""


def sees_a_violation(flags: list) -> bool:
    command = [CLANG, "-fsyntax-only", *flags, f"-I{ROOT}/src", "-x", "c++", "-"]
    result = subprocess.run(command, input=BROKEN, capture_output=True, text=True)
    return result.returncode != 0 and "requires holding mutex" in result.stderr


@functools.lru_cache(maxsize=None)
def includes_of(path: pathlib.Path) -> tuple:
    """The headers of ours that `path` names; generated ones are covered by the .proto files."""
    names = re.findall(r'^#include "([^"]+)"', path.read_text(), re.M)
    found = [ROOT / "src" / n for n in names]
    found += [ROOT / "proto" / re.sub(r"(\.grpc)?\.pb\.h$", ".proto", n) for n in names]
    return tuple(p for p in found if p.is_file())


def digest_of(path: pathlib.Path, flags: list) -> str:
    """Of everything of ours that the analysis of `path` depends on."""
    seen, todo = set(), [path]
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.add(one)
            todo += includes_of(one) if one.suffix != ".proto" else ()
    digest = hashlib.sha256("\0".join(flags).encode())
    for one in sorted(seen | {pathlib.Path(__file__)}):
        digest.update(one.read_bytes())
    return digest.hexdigest()


def main() -> int:
    build = pathlib.Path(sys.argv[1])
    entries = json.loads((build / "compile_commands.json").read_text())
    annotated = {p for p in (ROOT / "src").rglob("*.h") if "GUARDED_BY(" in p.read_text()}
    headers = {str(p.relative_to(ROOT / "src")) for p in annotated}
    jobs = []
    for entry in entries:
        path = pathlib.Path(entry["file"])
        if ROOT / "src" not in path.parents or path.name.endswith("_test.cc"):
            continue
        text = path.read_text()
        if "GUARDED_BY(" not in text and not any(f'"{h}"' in text for h in headers):
            continue
        flags = flags_of(entry["command"])
        kind = KIND.search(entry["command"])
        jobs.append((path, flags, entry["directory"], digest_of(path, flags), kind.group(1) if kind else "std"))
    record = build / "thread_safety.passed"
    passed = set(record.read_text().split()) if record.exists() else set()
    known = len(jobs)
    current = {job[3] for job in jobs}
    jobs = [job for job in jobs if job[3] not in passed]
    if jobs and not sees_a_violation(jobs[0][1]):
        print("thread-safety analysis: does not see a planted violation")
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        pch = {}
        for _, flags, _, _, kind in jobs:
            if kind in pch:
                continue
            pch[kind] = os.path.join(scratch, kind + ".pch")
            subprocess.run([CLANG, "-x", "c++-header", *flags, str(ROOT / f"src/base/pch/{kind}_pch.h"), "-o", pch[kind]],
                           check=True)

        def run(job):
            path, flags, directory, _, kind = job
            command = [CLANG, "-fsyntax-only", "-include-pch", pch[kind], *flags, str(path)]
            return subprocess.run(command, cwd=directory, capture_output=True, text=True)

        failed = 0
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for job, result in zip(jobs, pool.map(run, jobs)):
                if result.returncode:
                    failed += 1
                    print(result.stderr[:4000])
                else:
                    passed.add(job[3])
    record.write_text("\n".join(sorted(passed & current)) + "\n")
    print(f"thread-safety analysis: {known} files, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
