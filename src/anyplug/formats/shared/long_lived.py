"""Shared by formats with long-running plugins: why one could not be started, and how one ended."""

import os
from collections.abc import Iterable
from typing import Any

import msgspec

from anyplug.formats.shared import one_shot
from anyplug.model import errors
from anyplug.model.errors import CallError, TooLarge, Unavailable
from anyplug.runtime.processes.diagnosis import diagnose, not_on_path
from anyplug.runtime.processes.program import Program
from anyplug.runtime.session.session import LARGEST_BUFFER, FrameTooLong, NotSent, PeerGone

LARGEST_INPUT = LARGEST_BUFFER // 2  # bytes of a call's arguments; several may be on their way
BUILT_FIRST_S = 120.0  # to become ready, for what is built or fetched before it runs: caches are empty at first
BUILDERS = frozenset(
    {"bun", "bunx", "cargo", "deno", "docker", "dotnet", "go", "nerdctl", "npm", "npx", "pipx"}
    | {"pnpm", "pnpx", "podman", "uv", "uvx", "yarn"}
)


def is_built_first(words: Iterable[str]) -> bool:
    """Return whether a command names a build tool or a package runner, also in a shell's script."""
    return not BUILDERS.isdisjoint(os.path.basename(part) for word in words for part in word.split())


def encoded(arguments: dict[str, Any]) -> bytes:
    """Encode a call's arguments; raises TooLarge if they are larger than a peer can receive."""
    given = msgspec.json.encode(arguments)
    if len(given) > LARGEST_INPUT:
        raise TooLarge(
            f"the arguments have {len(given):,} bytes, more than the {LARGEST_INPUT:,} that can be passed on",
            "write them to a file and pass its path",
        )
    return given


def last_words(stderr: str) -> str:
    """Return the end of its stderr, as a suffix for a reason."""
    return f": {errors.last_words(stderr)}" if stderr else ""


def not_asked(what: str, not_sent: NotSent) -> CallError:
    """Return why a running peer was not asked."""
    reason = f"{what} was not asked: {not_sent}"
    if isinstance(not_sent, FrameTooLong):
        return TooLarge(reason, "write large values to a file and pass its path")
    return Unavailable(reason, "call it again when it has caught up")


def ended(what: str, when: str, gone: PeerGone, hint: str) -> Unavailable:
    """Return how a peer ended."""
    return Unavailable(
        f"{what} ended {when}: {gone.reason}{last_words(gone.stderr)}",
        hint,
        exit_code=gone.exit_code,
        stderr=gone.stderr,
    )


def not_started(what: str, program: Program, reason: str, *, plugin: str, named_in: str) -> Unavailable:
    """Return why a program could not be started, and the fix; `named_in` is where its author names it."""
    import shutil  # with three compressors; only needed after a failure

    name, search_path = program.argv[0], program.env.get("PATH")
    path = name if "/" in name else shutil.which(name, path=search_path)
    fault = not_on_path(name, named_in) if path is None else diagnose(path, search_path)
    if fault is not None:
        reason, hint = fault.reason, fault.hint
    else:
        hint = one_shot.cure_for_start(reason, plugin)
    return Unavailable(f"cannot start {what}: {reason}", hint)
