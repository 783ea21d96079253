"""A private /tmp/NAME for each call, for plugins that write to a fixed path there.

With namespaces every call sees its own /tmp. Without them the calls of one plugin take turns on the real /tmp/NAME,
after checking its owner: a folder that we did not create is never touched.
"""

import fcntl
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from anyplug.home import untrusted_files
from anyplug.home.location import make_private
from anyplug.home.untrusted_files import HeldFolder
from anyplug.runtime import thread_lanes
from anyplug.runtime.processes.program import PrivateTmp, TmpTaken

FEW = 8  # files and empty folders that are removed at once, such as the lock that `uv` leaves
SMALL = 1 << 20  # bytes of such a file; freeing more takes time
TURN_POLL_S = 0.05  # how often a waiting call checks whether it is its turn


@asynccontextmanager
async def own_tmp(scratch: HeldFolder, name: str) -> AsyncIterator[PrivateTmp]:
    """Create a folder that will be mounted as /tmp, with NAME in it; it is removed at the end. Raises TmpTaken."""
    cover = os.urandom(8).hex()
    os.mkdir(cover, 0o700, dir_fd=scratch.fd)
    try:
        with scratch.folder(cover) as around:
            try:
                os.mkdir(name, 0o700, dir_fd=around.fd)
            except FileExistsError as error:
                raise TmpTaken(f"{around.where(name)} exists already") from error
            os.fchmod(around.fd, 0o1777)  # like /tmp; nobody else can reach it through the scratch folder
            yield PrivateTmp(around.where(name), around.path, around)
    finally:
        if not _had_little(scratch, cover):
            await _removed(scratch, cover, name)


@asynccontextmanager
async def shared_tmp(locks: str, name: str) -> AsyncIterator[PrivateTmp]:
    """Take a turn on the real /tmp/NAME; raises TmpTaken. The lock also works between processes."""
    make_private(locks)
    folder = f"/tmp/{name}"
    with (
        open(os.path.join(locks, f"{name}.lock"), "a+", encoding="ascii") as lock,
        untrusted_files.hold(os.path.realpath("/tmp")) as around,
    ):
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await anyio.sleep(TURN_POLL_S)
        lock.seek(0)
        await thread_lanes.run(f"/tmp/{name}", _claim, around, name, lock.read())
        lock.truncate(0)
        lock.write(str(around.stat(name).st_ino))
        lock.flush()
        try:
            yield PrivateTmp(folder, "", around)
        finally:
            await _removed(around, name, name)


def _had_little(above: HeldFolder, folder: str) -> bool:
    """Remove a call's folder at once if there is hardly anything in it, as with most calls; return False if not."""
    try:
        with above.folder(folder) as inside:
            with os.scandir(inside.fd) as entries:
                found = [entry for entry, _ in zip(entries, range(FEW + 1), strict=False)]
            if len(found) > FEW:
                return False
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    os.rmdir(entry.name, dir_fd=inside.fd)  # fails unless it is empty
                elif entry.stat(follow_symlinks=False).st_size > SMALL:
                    return False
                else:
                    os.unlink(entry.name, dir_fd=inside.fd)
        os.rmdir(folder, dir_fd=above.fd)
    except OSError:
        return False
    return True


async def _removed(above: HeldFolder, folder: str, name: str) -> None:
    """Remove what a call left, in a thread: there may be thousands of files, and other calls are running."""
    with anyio.CancelScope(shield=True):
        await thread_lanes.run(f"/tmp/{name}", remove_tree, above, folder)


def _claim(around: HeldFolder, name: str, made_by_us: str) -> None:
    """Recreate the folder. An existing one must be ours from an interrupted call, or empty and ours."""
    folder = f"/tmp/{name}"
    try:
        found = around.stat(name)
    except FileNotFoundError:
        os.mkdir(name, 0o700, dir_fd=around.fd)
        return
    if not stat.S_ISDIR(found.st_mode):
        raise TmpTaken(f"{folder} is not a folder")
    if found.st_uid != os.getuid():
        raise TmpTaken(f"{folder} belongs to another user")
    if str(found.st_ino) == made_by_us:
        remove_tree(around, name)
    else:
        try:
            os.rmdir(name, dir_fd=around.fd)
        except OSError as error:
            raise TmpTaken(f"{folder} contains your files") from error
    os.mkdir(name, 0o700, dir_fd=around.fd)


def remove_tree(above: HeldFolder, folder: str) -> None:
    """Remove what a call left; files that cannot be removed stay."""
    try:
        untrusted_files.remove(folder, folder=above.fd)
    except OSError:
        pass
