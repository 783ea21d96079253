"""Explain why a program cannot be started, and what to do, by examining the file."""

import os
import stat

import msgspec

from anyplug.home import untrusted_files
from anyplug.model.errors import is_shortage
from anyplug.model.hints import typed

MAGIC_BYTES = 4  # bytes that identify a program
HEAD_BYTES = 256  # bytes of a shebang line that the kernel reads
BOM = b"\xef\xbb\xbf"
BINARY_MAGIC = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ")

# Programs that cannot be installed under their own name, and what to do.
COMES_WITH = {
    "uvx": "use `uv` with the arguments `tool`, `run` instead, which is available, or install uv",
    "npx": "install npm, which includes it",
}


class Diagnosis(msgspec.Struct, frozen=True):
    """What is wrong with a program, and the fix."""

    reason: str
    hint: str


def diagnose(path: str, search_path: str | None = None) -> Diagnosis | None:
    """Return why a program would not start; None if no reason can be seen."""
    return next(iter(faults(path, search_path)), None)


def faults(path: str, search_path: str | None = None) -> list[Diagnosis]:
    """List everything that keeps a program from starting."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        if os.path.islink(path):
            return [Diagnosis("it is a broken link", f"fix or remove {path}")]
        return [Diagnosis("the file does not exist", _cure_for_name(path))]
    except OSError as error:
        return [Diagnosis(error.strerror or str(error), f"check the permissions of {os.path.dirname(path)}")]
    if stat.S_ISDIR(found.st_mode):
        return [Diagnosis("it is a folder", "use the program inside it")]
    closed = []
    if not os.access(path, os.X_OK):
        closed.append(Diagnosis("it has no execute permission", typed("chmod", "+x", path)))
    try:
        head = untrusted_files.head(path, HEAD_BYTES)
    except OSError as error:  # a lack of resources is not about the file
        fault = Diagnosis(error.strerror or str(error), typed("chmod", "+r", path))
        return closed if is_shortage(error) else [*closed, fault]
    if head.startswith(BOM):
        reason = "it begins with a byte order mark (BOM), so the system cannot find its interpreter"
        closed.append(Diagnosis(reason, "save the file as UTF-8 without a BOM"))
        head = head.removeprefix(BOM)
    if head.startswith(b"#!"):
        unusable = _diagnose_shebang(head, search_path)
        return [*closed, unusable] if unusable else closed
    if not head.startswith(BINARY_MAGIC):
        closed.append(
            Diagnosis(
                "it has no shebang line, so the system cannot find its interpreter",
                "begin the file with a line like #!/usr/bin/env python3",
            )
        )
    return closed


def not_on_path(name: str, named_in: str) -> Diagnosis:
    """Return the diagnosis for a missing program; `named_in` is where its author names it."""
    hint = COMES_WITH.get(name) or f"install {name}, or use its path in {named_in}"
    if " " in name:
        hint = f'in {named_in}, keep only the program there, and move the words after it to "args"'
    return Diagnosis(f"there is no program '{name}' in the PATH", hint)


def _cure_for_name(path: str) -> str:
    folder, name = os.path.split(path)
    alone, _, behind = name.partition(" ")
    if behind and os.path.exists(os.path.join(folder, alone)):
        return f'name only {alone}; if the format has "args", the words after it belong there'
    return "check the name and its spelling in the manifest"


def has_shebang_or_is_binary(path: str) -> bool:
    """Return whether the kernel itself knows how to start the file."""
    try:
        head = untrusted_files.head(path, MAGIC_BYTES)
    except OSError:
        return True  # the attempt to start it will report why
    return head.startswith((b"#!", *BINARY_MAGIC))


def shebang(path: str) -> list[str]:
    """Return the words of a file's shebang line; empty if it has none."""
    try:
        head = untrusted_files.head(path, HEAD_BYTES)
    except OSError:
        return []
    return _shebang_words(head.partition(b"\n")[0]) if head.startswith(b"#!") else []


def _shebang_words(line: bytes) -> list[str]:
    return line[2:].decode(errors="replace").split()


def _diagnose_shebang(head: bytes, search_path: str | None) -> Diagnosis | None:
    line = head.partition(b"\n")[0]
    if line.endswith(b"\r"):
        return Diagnosis(
            "its shebang line ends in a Windows line break (CRLF)", "save the file with Unix line breaks (LF)"
        )
    words = _shebang_words(line)
    if not words:
        return Diagnosis("its shebang line names no interpreter", "write a line like #!/usr/bin/env python3")
    if not os.path.exists(words[0]):
        return Diagnosis(f"its interpreter {words[0]} does not exist", "install it, or fix the shebang line")
    if os.path.basename(words[0]) == "env":
        name = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
        import shutil  # takes 3 ms to import, and only a detailed check needs it

        if name and shutil.which(name, path=search_path) is None:
            return Diagnosis(f"its interpreter '{name}' is not in the PATH", f"install {name}")
    return None
