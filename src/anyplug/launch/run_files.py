"""The folders of a run, and the files that go into its own /tmp/NAME before it starts and come out of it."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress

from anyplug.home import untrusted_files
from anyplug.home.location import make_private
from anyplug.home.untrusted_files import Budget, HeldFolder
from anyplug.model.errors import InvalidArguments, TooLarge, Unavailable, is_shortage
from anyplug.model.types import File
from anyplug.model.untrusted_text import encodable
from anyplug.runtime.processes.program import Files, PrivateTmp

MOST_OUTPUTS = 1_000  # files of one call
LARGEST_OUTPUT = 1 << 30  # bytes of all files of one call; its /tmp has 512 MiB unless the settings allow more
MOST_NAMES = 20_000  # searched for output files
TAKE_S = 120.0  # for copying them
KEPT_S = 7 * 24 * 3600  # how long a tool's output files are kept

Stamps = dict[str, tuple[int, int]]  # what input files looked like when they were put there, by name


def make_folder(path: str) -> None:
    """Create a folder of the plugin's, unless it exists; raises Unavailable."""
    if os.path.isdir(path):
        return
    try:
        make_private(path)
    except OSError as error:
        raise Unavailable(
            f"cannot create the folder {path}: {error.strerror}", ("check what is in its place, and the permissions")
        ) from error


def put(tmp: PrivateTmp, files: Files) -> Stamps:
    """Write a run's files into its folder; raises InvalidArguments."""
    stamps: Stamps = {}
    for given in files.inputs:
        try:
            with tmp.around.own_folder(tmp.name) as folder, open(folder.create(given.filename, 0o644), "wb") as file:
                file.write(given.data)
                file.flush()
                stamps[given.filename] = _stamp(os.fstat(file.fileno()))
        except OSError as error:
            raise InvalidArguments(
                files.tool, [f'The file of parameter "{given.parameter}" cannot be written: {error.strerror}']
            ) from error
    return stamps


def are_none(tmp: PrivateTmp, stamps: Stamps) -> bool:
    """Return whether the folder is as empty as it was given, as most are: then there is nothing to copy."""
    if stamps:
        return False
    try:
        with tmp.around.own_folder(tmp.name) as folder, os.scandir(folder.fd) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def take(tmp: PrivateTmp, stamps: Stamps, files: Files) -> tuple[File, ...]:
    """Copy the tool's output files to where they are kept for a week; raises TooLarge. Unchanged inputs are skipped.

    The tool could replace its folder and its files with anything, and may still run: only our regular files are copied,
    from a folder that is not a link, as they were opened. Blocks: call it in a thread.
    """
    try:
        folder = tmp.around.own_folder(tmp.name)
    except OSError:
        return ()  # the tool removed or replaced its folder
    keep = os.path.dirname(files.keep)
    with folder:
        try:
            return tuple(_taken(folder, stamps, files.keep))
        except OSError as error:
            with suppress(OSError):
                untrusted_files.remove(files.keep)
            why = f"cannot copy the files that '{files.tool}' wrote to /tmp/{tmp.name}: {error.strerror}"
            if not isinstance(error, untrusted_files.TooMuch):
                raise Unavailable(why, f"check the disk's free space and the permissions of {keep}") from error
            most = f"{MOST_OUTPUTS:,} files of {untrusted_files.shown(LARGEST_OUTPUT)} together"
            raise TooLarge(why, f"change the tool so that it leaves at most {most} there") from error


def _taken(folder: HeldFolder, stamps: Stamps, target: str) -> list[File]:
    """Copy all output files; raises OSError."""
    import mimetypes  # takes 5 ms to import, and only calls need it

    budget = Budget(MOST_NAMES, LARGEST_OUTPUT, TAKE_S)
    found: list[File] = []
    taken: set[str] = set()
    kept: HeldFolder | None = None
    try:
        for name, fd in _outputs(folder, stamps, budget):
            try:
                if kept is None:
                    _forget_old(os.path.dirname(target))
                    make_private(target)
                    kept = untrusted_files.hold(target)
                if len(found) == MOST_OUTPUTS:
                    raise untrusted_files.TooMuch(f"there are more than {MOST_OUTPUTS:,} files", folder.path)
                shown = _free_name(encodable(name), taken)
                untrusted_files.copy_file(fd, folder.where(name), kept, shown, budget)
            finally:
                os.close(fd)
            kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
            found.append(File(shown, kind, os.path.join(target, shown)))
    finally:
        if kept is not None:
            kept.close()
    return found


def _outputs(folder: HeldFolder, stamps: Stamps, budget: Budget) -> Iterator[tuple[str, int]]:
    """Open the files that the tool wrote, one at a time; the caller closes each descriptor. Raises OSError.

    A file with a second name outside the folder may be anybody's, linked there, with content that the tool could not
    read. Other users' files are not the tool's either.
    """
    names = folder.names(budget)
    links: dict[tuple[int, int], int] = {}
    for name in names:
        with suppress(FileNotFoundError):
            found = folder.stat(name)
            links[found.st_dev, found.st_ino] = links.get((found.st_dev, found.st_ino), 0) + 1
    device = os.fstat(folder.fd).st_dev
    for name in names:
        try:
            fd = folder.open(name)
        except OSError as error:
            if is_shortage(error):
                raise
            continue  # a folder, link, pipe or device, or not readable
        found = os.fstat(fd)
        is_its_own = (
            found.st_dev == device
            and found.st_uid == os.geteuid()
            and 0 < found.st_nlink <= links.get((found.st_dev, found.st_ino), 0)
        )
        if is_its_own and stamps.get(name) != _stamp(found):
            yield name, fd
        else:
            os.close(fd)


def _free_name(name: str, taken: set[str]) -> str:
    """Return the name, or a similar one if it is taken, and record it: two names can look the same."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}.{number}"
    taken.add(free)
    return free


def _stamp(found: os.stat_result) -> tuple[int, int]:
    return found.st_size, found.st_mtime_ns


def _forget_old(keep: str) -> None:
    """Remove the files of old calls; no plugin can write there."""
    try:
        with os.scandir(keep) as entries:
            old = [entry.path for entry in entries if entry.stat(follow_symlinks=False).st_mtime < time.time() - KEPT_S]
    except FileNotFoundError:
        return
    for path in old:
        with suppress(OSError):
            untrusted_files.remove(path)
