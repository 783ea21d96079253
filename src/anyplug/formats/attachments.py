"""Files that go into a call and come out of it, through the call's own /tmp/NAME."""

import os
import stat
import time
from typing import Any

import msgspec

from anyplug.errors import InvalidArguments
from anyplug.model import Call, File
from anyplug.untrusted_text import encodable

LARGEST_INPUT = 25 << 20  # bytes of all files of one call together
KEPT_S = 7 * 24 * 3600  # how long a tool's output files are kept


class Inputs(msgspec.Struct, frozen=True):
    """Arguments with files replaced by their paths, and what the files looked like when they were put there."""

    arguments: dict[str, Any]
    stamps: dict[str, tuple[int, int]]


def is_file(value: Any) -> bool:
    """Whether an argument is a file: exactly a name and base64 data."""
    return (
        isinstance(value, dict)
        and set(value) == {"filename", "data"}
        and all(isinstance(v, str) for v in value.values())
    )


def put(folder: str, call: Call) -> Inputs:
    """Write the call's files into its folder; raises InvalidArguments."""
    import base64  # 6 ms, and only calls need it

    arguments, stamps, total = dict(call.arguments), {}, 0
    for name, value in call.arguments.items():
        if not is_file(value):
            continue
        filename = value["filename"]
        if not filename or filename in {".", ".."} or "/" in filename or "\0" in filename:
            raise InvalidArguments(call.tool.name, [f'Invalid filename in file parameter "{name}"'])
        if filename in stamps:
            raise InvalidArguments(call.tool.name, [f'Two file parameters have the filename "{filename}"'])
        try:
            data = base64.b64decode(value["data"])
        except ValueError as error:
            raise InvalidArguments(
                call.tool.name, [f'The data of file parameter "{name}" is not base64: {error}']
            ) from error
        total += len(data)
        if total > LARGEST_INPUT:
            raise InvalidArguments(
                call.tool.name, [f"Input files exceed the maximum allowed size ({LARGEST_INPUT >> 20} MiB)"]
            )
        path = os.path.join(folder, filename)
        try:
            with open(path, "wb") as file:
                file.write(data)
        except OSError as error:
            raise InvalidArguments(
                call.tool.name, [f'The file of parameter "{name}" cannot be written: {error.strerror}']
            ) from error
        stamps[filename] = _stamp(os.lstat(path))
        arguments[name] = f"/tmp/{os.path.basename(folder)}/{filename}"
    return Inputs(arguments, stamps)


def take(folder: str, inputs: Inputs, keep: str, call_id: str) -> tuple[File, ...]:
    """Move what the tool wrote to where it stays for a week. Inputs that it left alone do not come back."""
    import mimetypes  # 5 ms, as shutil 3 ms, and only calls need them
    import shutil

    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ()  # the tool removed its folder
    files: list[File] = []
    for name in names:
        path = os.path.join(folder, name)
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or inputs.stamps.get(name) == _stamp(found):
            continue
        if not files:
            _forget_old(keep)
            os.makedirs(os.path.join(keep, call_id), mode=0o700)
        target = os.path.join(keep, call_id, encodable(name))
        shutil.move(path, target)
        files.append(File(encodable(name), mimetypes.guess_type(name)[0] or "application/octet-stream", target))
    return tuple(files)


def _stamp(found: os.stat_result) -> tuple[int, int]:
    return found.st_size, found.st_mtime_ns


def _forget_old(keep: str) -> None:
    from shutil import rmtree  # as above

    try:
        with os.scandir(keep) as entries:
            old = [entry.path for entry in entries if entry.stat().st_mtime < time.time() - KEPT_S]
    except FileNotFoundError:
        return
    for path in old:
        rmtree(path, ignore_errors=True)
