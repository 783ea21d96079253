"""The system calls that the broker answers, and what it does for each."""

from __future__ import annotations

import os

from anyplug.runtime.sandbox.linux.broker import file_calls, socket_calls
from anyplug.runtime.sandbox.linux.broker.metadata_calls import (
    attribute,
    change,
    change_opened,
    exact_times,
    follows,
    mode,
    no_attribute,
    owner,
    times,
)
from anyplug.runtime.sandbox.linux.broker.waiting_call import AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable

    from anyplug.runtime.sandbox.linux.broker.places import Places
    from anyplug.runtime.sandbox.linux.broker.waiting_call import Call

CREATING = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
# The system calls, each as one of our functions: (places, call) -> a file to return and its flags, or nothing.
CALLS: dict[str, Callable[[Places, Call], tuple[int, int] | None]] = {
    "open": lambda p, c: file_calls.open(p, c, AT_FDCWD, 0, c.integer(1), c.integer(2)),
    "openat": lambda p, c: file_calls.open(p, c, c.integer(0), 1, c.integer(2), c.integer(3)),
    "creat": lambda p, c: file_calls.open(p, c, AT_FDCWD, 0, CREATING, c.integer(1)),
    "mkdir": lambda p, c: file_calls.mkdir(p, c, AT_FDCWD, 0, c.integer(1)),
    "mkdirat": lambda p, c: file_calls.mkdir(p, c, c.integer(0), 1, c.integer(2)),
    "rmdir": lambda p, c: file_calls.remove(p, c, AT_FDCWD, 0, AT_REMOVEDIR),
    "unlink": lambda p, c: file_calls.remove(p, c, AT_FDCWD, 0, 0),
    "unlinkat": lambda p, c: file_calls.remove(p, c, c.integer(0), 1, c.integer(2)),
    "rename": lambda p, c: file_calls.rename(p, c, (AT_FDCWD, 0, AT_FDCWD, 1), 0),
    "renameat": lambda p, c: file_calls.rename(p, c, (c.integer(0), 1, c.integer(2), 3), 0),
    "renameat2": lambda p, c: file_calls.rename(p, c, (c.integer(0), 1, c.integer(2), 3), c.integer(4)),
    "link": lambda p, c: file_calls.link(p, c, (AT_FDCWD, 0, AT_FDCWD, 1), 0),
    "linkat": lambda p, c: file_calls.link(p, c, (c.integer(0), 1, c.integer(2), 3), c.integer(4)),
    "symlink": lambda p, c: file_calls.symlink(p, c, AT_FDCWD, 0, 1),
    "symlinkat": lambda p, c: file_calls.symlink(p, c, c.integer(1), 0, 2),
    "mknod": lambda p, c: file_calls.mknod(p, c, AT_FDCWD, 0, c.integer(1), c.integer(2)),
    "mknodat": lambda p, c: file_calls.mknod(p, c, c.integer(0), 1, c.integer(2), c.integer(3)),
    "truncate": file_calls.truncate,
    "bind": socket_calls.bind,
    "connect": socket_calls.connect,
    "listen": lambda _, c: socket_calls.listen(c),
    "chmod": lambda p, c: change(p, c, AT_FDCWD, 0, mode(c, 1)),
    "fchmod": lambda p, c: change_opened(p, c, mode(c, 1)),
    "fchmodat": lambda p, c: change(p, c, c.integer(0), 1, mode(c, 2)),
    "fchmodat2": lambda p, c: change(
        p, c, c.integer(0), 1, mode(c, 2), follow=follows(c, 3), may_be_empty=bool(c.integer(3) & AT_EMPTY_PATH)
    ),
    "chown": lambda p, c: change(p, c, AT_FDCWD, 0, owner(c, 1)),
    "lchown": lambda p, c: change(p, c, AT_FDCWD, 0, owner(c, 1), follow=False),
    "fchown": lambda p, c: change_opened(p, c, owner(c, 1)),
    "fchownat": lambda p, c: change(
        p, c, c.integer(0), 1, owner(c, 2), follow=follows(c, 4), may_be_empty=bool(c.integer(4) & AT_EMPTY_PATH)
    ),
    "utime": lambda p, c: change(p, c, AT_FDCWD, 0, times(c, 1, "=2q", 0)),
    "utimes": lambda p, c: change(p, c, AT_FDCWD, 0, times(c, 1, "=4q", 1000)),
    "futimesat": lambda p, c: change(p, c, c.integer(0), 1, times(c, 2, "=4q", 1000)),
    "utimensat": lambda p, c: change(p, c, c.integer(0), 1, exact_times(c, 2), follow=follows(c, 3), may_be_empty=True),
    "setxattr": lambda p, c: change(p, c, AT_FDCWD, 0, attribute(c)),
    "lsetxattr": lambda p, c: change(p, c, AT_FDCWD, 0, attribute(c), follow=False),
    "fsetxattr": lambda p, c: change_opened(p, c, attribute(c)),
    "removexattr": lambda p, c: change(p, c, AT_FDCWD, 0, no_attribute(c)),
    "lremovexattr": lambda p, c: change(p, c, AT_FDCWD, 0, no_attribute(c), follow=False),
    "fremovexattr": lambda p, c: change_opened(p, c, no_attribute(c)),
}
