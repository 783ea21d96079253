"""Find the project's files for `@file` completion, up to a limit, without hidden and ignored folders."""

import os
import stat

MOST_FILES = 5_000
MOST_FOLDERS = 1_000
SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "dist", "build", "target"})
MOST_FOUND = 50


def project_files(folder: str) -> list[str]:
    """Return paths relative to a folder, the shallow ones first; symlinks are not followed."""
    found: list[str] = []
    folders = [""]
    seen = 0
    while folders and len(found) < MOST_FILES and seen < MOST_FOLDERS:
        relative = folders.pop(0)
        seen += 1
        try:
            with os.scandir(os.path.join(folder, relative) if relative else folder) as entries:
                names = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in names:
            name = entry.name
            if name.startswith(".") or name in SKIPPED or not name.isprintable():
                continue
            path = f"{relative}/{name}" if relative else name
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except OSError:
                continue
            if stat.S_ISDIR(mode):
                folders.append(path)
            elif stat.S_ISREG(mode):
                found.append(path)
    return found[:MOST_FILES]


def matching(files: list[str], typed: str) -> list[str]:
    """Return the files that fit what was typed: by name's beginning, by part of the name, by part of the path."""
    wanted = typed.casefold()
    ranked: list[tuple[int, int, str]] = []
    for path in files:
        whole = path.casefold()
        name = whole.rpartition("/")[2]
        if whole.startswith(wanted) or name.startswith(wanted):
            rank = 0
        elif wanted in name:
            rank = 1
        elif wanted in whole:
            rank = 2
        else:
            continue
        ranked.append((rank, len(path), path))
    return [path for _, _, path in sorted(ranked)[:MOST_FOUND]]
