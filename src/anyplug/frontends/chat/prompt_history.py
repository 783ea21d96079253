"""What the person typed before, also in earlier chats: a private file in the home, bounded."""

import json
import os

MOST_KEPT = 1_000  # messages
LONGEST_KEPT = 10_000  # characters of a message; longer ones are pasted, and not typed again
LARGEST_FILE = 4_000_000  # bytes that are read
FILE = "chat-history.jsonl"


class PromptHistory:
    """The messages, the oldest first, and where the person is among them."""

    def __init__(self) -> None:
        self._path = ""
        self._lines: list[str] = []
        self._at = 0
        self._draft = ""

    def load(self, path: str) -> None:
        """Read a file, and add to it from now on; skip what is not a message in it. Without a path, keep none."""
        self._path = path
        if path:
            self._lines = _read(path)[-MOST_KEPT:] + self._lines
            self._at = len(self._lines)

    def add(self, text: str) -> None:
        """Keep a message, unless it is the same as the last one."""
        is_new = not self._lines or self._lines[-1] != text
        if is_new and text.strip() and len(text) <= LONGEST_KEPT:
            self._lines.append(text)
            self._append(text)
        self._at = len(self._lines)
        self._draft = ""

    def previous(self, draft: str) -> str | None:
        """Return the message before this one; None if there is none."""
        if self._at == 0:
            return None
        if self._at == len(self._lines):
            self._draft = draft
        self._at -= 1
        return self._lines[self._at]

    def next(self) -> str | None:
        """Return the message after this one, at last the draft; None if there is none."""
        if self._at >= len(self._lines):
            return None
        self._at += 1
        return self._draft if self._at == len(self._lines) else self._lines[self._at]

    def _append(self, text: str) -> None:
        if not self._path:
            return
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.fchmod(fd, 0o600)
                os.write(fd, json.dumps(text).encode() + b"\n")
                is_long = os.fstat(fd).st_size > LARGEST_FILE // 2
            finally:
                os.close(fd)
            if is_long:
                self._shorten()
        except OSError:
            self._path = ""  # the chat goes on without

    def _shorten(self) -> None:
        """Write the file again with the latest messages only."""
        kept = b"".join(json.dumps(line).encode() + b"\n" for line in self._lines[-MOST_KEPT // 2 :])
        fresh = f"{self._path}.{os.getpid()}"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, kept)
        finally:
            os.close(fd)
        os.replace(fresh, self._path)


def _read(path: str) -> list[str]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    with os.fdopen(fd, "rb") as file:
        file.seek(max(0, os.fstat(fd).st_size - LARGEST_FILE))
        lines = file.read().splitlines()
    found = []
    for line in lines:
        try:
            text = json.loads(line)
        except ValueError:
            continue
        if isinstance(text, str):
            found.append(text)
    return found
