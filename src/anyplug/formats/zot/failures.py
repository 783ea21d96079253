"""How an extension fails its caller: what happened, and what to do."""

from anyplug.formats.shared import long_lived
from anyplug.formats.shared.features import BadAnswer
from anyplug.model.errors import RETURN_LESS, BadOutput, CallError, TimedOut, TooLarge, Unavailable
from anyplug.runtime.processes.program import Program
from anyplug.runtime.session.session import NotSent, PeerGone, Session


class LongAnswer(BadAnswer):
    """It answered with a line that is too long."""


def not_started(name: str, program: Program, reason: str) -> Unavailable:
    """Return why an extension's program cannot be started."""
    return long_lived.not_started(_label(name), program, reason, plugin=name, named_in="extension.json")


def no_hello(name: str, hello_s: float, session: Session) -> Unavailable:
    """Return the error for an extension without a hello in time, with what it wrote instead."""
    if session.is_amid_a_line:
        instead = "; it wrote a line without a line break"
    else:
        instead = noise(session) or "; it wrote nothing to stdout, has not flushed it, or waits for input itself"
    stderr = session.stderr_end
    return Unavailable(
        f"extension '{name}' sent no hello within {hello_s:g}s{instead}{long_lived.last_words(stderr)}",
        "its first line on stdout must be a hello frame; if it only needs longer, raise `hello_s` under "
        f"[plugins.{name}] in settings.toml",
        stderr=stderr,
    )


def timed_out(
    name: str, asked: str, limit_s: float | None, session: Session, before: int, *, is_interactive: bool = False
) -> TimedOut:
    """Return the error for a late answer; `before` counts the invalid lines before the request."""
    hint = f"raise `timeout_s` under [plugins.{name}] in settings.toml to change the limit"
    if is_interactive:
        hint = "it may wait for a person, but nothing here shows what it draws"
    if noise_lines(session) > before:
        hint = f"its answer may be among them: `anyplug logs {name}` shows what is wrong with each"
    return TimedOut(f"timeout waiting for {name}/{asked} after {limit_s:g}s{noise(session, before)}", hint)


def bad_output(name: str, asked: str, bad: BadAnswer, example: str) -> CallError:
    """Return the error for an invalid answer; `example` is a valid frame."""
    if isinstance(bad, LongAnswer):
        return TooLarge(f"extension {name}/{asked}: {bad}", RETURN_LESS)
    return BadOutput(f"extension {name}/{asked}: {bad}", f"answer with a frame such as {example}")


def not_asked(name: str, not_sent: NotSent) -> CallError:
    """Return why a running extension was not asked."""
    return long_lived.not_asked(_label(name), not_sent)


def ended(name: str, when: str, gone: PeerGone) -> Unavailable:
    """Return how an extension ended."""
    return long_lived.ended(_label(name), when, gone, f"`anyplug logs {name}` shows its output")


def noise_lines(session: Session) -> int:
    """Count the lines on stdout that are not frames."""
    return session.counts.malformed + session.counts.too_long


def noise(session: Session, before: int = 0) -> str:
    """Return how many of those came since there were `before`, as a suffix for a message."""
    lines = noise_lines(session) - before
    several = "1 line that is not a frame" if lines == 1 else f"{lines} lines that are not frames"
    return f"; it wrote {several}" if lines else ""


def _label(name: str) -> str:
    return f"extension '{name}'"
