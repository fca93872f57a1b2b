#!/usr/bin/env python3
"""What the roles say of their own settings, as pages: `reference.py yaml|markdown|write TORPOR`.

yaml      every setting as a commented line with its default, for /etc/torpor/torpor.yaml
markdown  the tables of docs/configure.md
write     puts them into that page
"""
import pathlib
import re
import subprocess
import sys

ROLES = ["up", "apiserver", "router", "node", "worker", "mover"]
# --name V   help (kind; default VALUE)
PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "configure.md"
# The tables come behind this line of the page.
MARK = "Printed by `tools/reference.py`; a test compares it.\n\n"
LINE = re.compile(r"^  --([a-z0-9-]+)(?: V)? +(.*) \((.*); default (.*)\)$")


def settings(binary, role):
    """[(name, help, kind, default)] of a role, from its --help."""
    text = subprocess.run([binary, role, "--help"], capture_output=True, text=True, check=True).stdout
    return [m.groups() for m in map(LINE.match, text.splitlines()) if m]


def yaml(binary):
    out = ["# Torpor's settings. Each line shows a default; remove the # to change it.",
           "# `torpor config check FILE` checks the file, `torpor config print --config FILE` shows what is in force.",
           ""]
    for role in ROLES:
        indent = "" if role == "up" else "  "
        if role != "up":
            out += ["", f"#{role}:"]
        for name, text, kind, default in settings(binary, role):
            if role == "up" and name == "detach":
                continue  # a service stays in the foreground
            out += [f"{'#' + indent if indent else ''}# {text} ({kind})", f"#{indent}{name}: {default}"]
    return "\n".join(out) + "\n"


def markdown(binary):
    out = []
    for role in ROLES:
        out += [f"### {role}", "", "| key | what | values | default |", "|---|---|---|---|"]
        for fields in settings(binary, role):
            name, text, kind, default = (f.replace("|", r"\|") for f in fields)
            default = "" if default in ('""', "[]") else f"`{default}`"
            out.append(f"| `{name}` | {text} | {kind} | {default} |")
        out.append("")
    return "\n".join(out)


def write(binary):
    PAGE.write_text(PAGE.read_text().split(MARK)[0] + MARK + markdown(binary))
    return ""


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("yaml", "markdown", "write"):
        sys.exit(__doc__)
    print({"yaml": yaml, "markdown": markdown, "write": write}[sys.argv[1]](sys.argv[2]), end="")
