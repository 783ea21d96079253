"""What the spawner is told to enforce, and the paths in it as they are on this machine now.

Part of the spawner only: standard library only.
"""

from __future__ import annotations

import os

from anyplug.runtime.sandbox.linux import mounts

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 4 ms to import
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from anyplug.runtime.sandbox.linux import seccomp


class Order:
    """What to enforce: the fields of a profile, and the wanted layers. Immutable."""

    layers: tuple[str, ...]
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    executable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()  # folders above hidden paths; computed here, not in a profile
    code: tuple[str, ...] = ()
    private_tmp: bool = False
    network: seccomp.Network = "none"
    ports: tuple[int, ...] = ()
    unix: bool = False
    watches: bool = False
    measured: tuple[str, ...] = ()
    brokered: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()
    limits: Mapping[str, int]
    shown: Mapping[str, Any] | None = (
        None  # how the plugin's own folder is shown, if from a snapshot (`own_folder_mount`)
    )
    recorded: bool = False  # the host wants to know what programs open, execute and connect to

    def __init__(self, layers: tuple[str, ...], **given: Any) -> None:
        if unknown := given.keys() - Order.__annotations__.keys():  # an unknown field would not be enforced
            raise TypeError(f"an order has no {', '.join(sorted(unknown))}")
        self.layers = layers
        self.limits = {}
        vars(self).update(given)

    def but(self, **changes: Any) -> Order:
        """Return a copy with these changes."""
        return Order(**(vars(self) | changes))

    def resolved(self) -> Order:
        """Return it with links resolved and missing paths left out, as rules and mounts need it."""
        readable, writable, executable = (
            _existing(paths, self.exact) for paths in (self.readable, self.writable, self.executable)
        )
        measured = _existing(self.measured)
        # A grant that names a hidden path opens it, but never our home; a grant of everything opens none.
        opening = {*self.exact, *executable, *measured} - {*_existing(self.hidden[:1])}
        hidden = tuple(path for path in _existing(self.hidden) if path not in opening)
        return self.but(
            readable=_without(hidden, readable),
            writable=_without(hidden, writable),
            executable=_without(hidden, executable),
            hidden=hidden,
            pinned=_existing(tuple(_above(self.hidden, writable))),
            code=_existing(self.code),
            measured=measured,
            brokered=tuple(filter(os.path.isdir, _without(hidden, _existing(self.brokered, self.exact)))),
        )


def _existing(paths: tuple[str, ...], exact: tuple[str, ...] = ()) -> tuple[str, ...]:
    found = [(path, _led_to(path)) for path in paths]
    return tuple(dict.fromkeys(real for path, real in found if real and (real == path or path not in exact)))


def _above(hidden: tuple[str, ...], writable: tuple[str, ...]) -> Iterator[str]:
    """Yield the folders between a writable folder and what is hidden in it, or would be if it existed.

    If they could be renamed, another folder could be put in the hidden one's place.
    """
    for path in hidden:
        yield from mounts.between(_led_to(path) or os.path.realpath(path), writable)


def _without(hidden: tuple[str, ...], paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path for path in paths if path not in hidden)


def _led_to(path: str) -> str:
    """Return a path's target; empty if there is none.

    The kernel resolves links in a fifth of the time of `realpath`, and there are hundreds of paths.
    """
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.readlink(f"/proc/self/fd/{opened}")
    except OSError:  # no /proc is mounted
        return os.path.realpath(path)
    finally:
        os.close(opened)
