"""The program behind the chat's tools: one request on stdin, one answer on stdout. Only the standard library.

It runs in the sandbox, which decides what it may touch; nothing here is a check.
"""

import base64
import json
import os
import signal
import subprocess
import sys
from typing import Any

MOST_LINES, LONGEST_LINE = 2_000, 2_000
LONGEST_ABOUT, HEAD = 300, 8_000  # characters of a description; bytes that show whether a file is a text
LARGEST = 1 << 20  # bytes of a file that is read
LARGEST_IMAGE = 4 << 20
MOST_OUTPUT = 50_000  # characters of a command's output: its begin and its end
MOST_ENTRIES = 500  # of a folder
MOST_SKILLS, LARGEST_SKILL = 200, 64 << 10
USUAL_S = 120
IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}


class Refused(Exception):
    """It cannot be done; the text says why."""


def read(given: dict[str, Any]) -> dict[str, Any]:
    """Read a file, or list a folder."""
    path = os.path.expanduser(given["path"])
    if os.path.isdir(path):
        names = sorted(os.listdir(path))
        shown = [f"{name}/" if os.path.isdir(os.path.join(path, name)) else name for name in names[:MOST_ENTRIES]]
        more = [f"… and {len(names) - MOST_ENTRIES} more"] if len(names) > MOST_ENTRIES else []
        return {"text": "\n".join([*shown, *more]) or "(the folder is empty)"}
    kind = IMAGES.get(os.path.splitext(path)[1].lower())
    limit = LARGEST_IMAGE if kind else LARGEST
    with open(path, "rb") as file:
        raw = file.read(limit + 1)
    if kind:
        if len(raw) > limit:
            raise Refused(f"{given['path']} is larger than {limit >> 20} MB")
        image = {"mime_type": kind, "data": base64.b64encode(raw).decode()}
        return {"text": f"{given['path']}, {len(raw):,} bytes", "image": image}
    if b"\0" in raw[:HEAD]:
        raise Refused(f"{given['path']} is not a text")
    lines = raw[:limit].decode(errors="replace").splitlines()
    first, most = given.get("offset", 1), min(given.get("limit", MOST_LINES), MOST_LINES)
    part = lines[first - 1 : first - 1 + most]
    shown = [f"{number:6}\t{line[:LONGEST_LINE]}" for number, line in enumerate(part, first)]
    if first - 1 + len(part) < len(lines) or len(raw) > limit:
        shown.append(f"… {len(lines):,} lines{' and more' if len(raw) > limit else ''}; read on with offset")
    return {"text": "\n".join(shown) or "(the file is empty)"}


def write(given: dict[str, Any]) -> dict[str, Any]:
    """Write a file."""
    path = os.path.expanduser(given["path"])
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    is_new = not os.path.exists(path)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(given["content"])
    lines = len(given["content"].splitlines())
    return {"text": f"{'Wrote' if is_new else 'Replaced'} {given['path']}: {lines} line{'s' * (lines != 1)}"}


def edit(given: dict[str, Any]) -> dict[str, Any]:
    """Replace a text in a file."""
    path, old = os.path.expanduser(given["path"]), given["oldText"]
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    if not old:
        raise Refused("oldText is empty; `write` writes a whole file")
    count = text.count(old)
    if not count:
        raise Refused(f"oldText is not in {given['path']}; read it again, and copy it exactly")
    if count > 1 and not given.get("all"):
        raise Refused(f"oldText is {count} times in {given['path']}; add lines around it, or set all")
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text.replace(old, given["newText"]))
    line = text[: text.index(old)].count("\n") + 1
    return {"text": f"Edited {given['path']}: {count} place{'s' * (count != 1)}, the first in line {line}"}


def bash(given: dict[str, Any]) -> dict[str, Any]:
    """Run a command."""
    shell = next((one for one in ("/bin/bash", "/usr/bin/bash") if os.path.exists(one)), "/bin/sh")
    seconds = given.get("timeout", USUAL_S)
    process = subprocess.Popen(
        [shell, "-c", given["command"]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
        ended = ""
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        ended = f"(ended after {seconds:g} s)"
    text = output.decode(errors="replace")
    if len(text) > MOST_OUTPUT:
        half = MOST_OUTPUT // 2
        text = f"{text[:half]}\n… {len(text) - MOST_OUTPUT:,} characters are left out …\n{text[-half:]}"
    code = process.returncode
    parts = [text.rstrip("\n"), ended or (f"(exit {code})" if code else "")]
    said = "\n".join(part for part in parts if part) or "(no output)"
    return {"text": said, "is_error": bool(code or ended), "exit_code": code}


def skill(given: dict[str, Any], folders: list[str]) -> dict[str, Any]:
    """Load a skill, or list them."""
    found: dict[str, str] = {}
    for folder in map(os.path.expanduser, folders):
        try:
            names = sorted(os.listdir(folder))[:MOST_SKILLS]
        except OSError:
            continue
        for name in names:
            path = os.path.join(folder, name, "SKILL.md")
            if os.path.isfile(path):
                found.setdefault(name, path)
    name = given.get("name", "")
    if not name:
        lines = [f"{one}: {about(path)}" for one, path in found.items()]
        return {"text": "\n".join(lines) or f"There are no skills in {', '.join(folders)}."}
    if name not in found:
        raise Refused(f"there is no skill '{name}'; the skills are: {', '.join(found) or 'none'}")
    with open(found[name], "rb") as file:
        text = file.read(LARGEST_SKILL).decode(errors="replace")
    return {"text": f"Skill {name}, from {found[name]}:\n\n{text}"}


def about(path: str) -> str:
    """Return a skill's description, from the head of its file."""
    with open(path, "rb") as file:
        lines = file.read(HEAD).decode(errors="replace").splitlines()
    for line in lines:
        key, colon, value = line.partition(":")
        if colon and key.strip() == "description":
            return value.strip().strip("\"'")[:LONGEST_ABOUT]
    return next((line.strip("# ")[:LONGEST_ABOUT] for line in lines if line.strip() not in ("", "---")), "")


def main() -> None:
    """Answer one request."""
    asked = json.load(sys.stdin)
    given = asked["input"]
    tools = {"read": read, "write": write, "edit": edit, "bash": bash}
    try:
        answer = skill(given, asked["skills"]) if asked["tool"] == "skill" else tools[asked["tool"]](given)
    except Refused as why:
        answer = {"text": str(why), "is_error": True}
    except (OSError, UnicodeError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        answer = {"text": f"{given.get('path', asked['tool'])}: {said}", "is_error": True}
    json.dump(answer, sys.stdout)


main()
