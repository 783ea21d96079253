"""How an extension fails its caller, each way in the words that people need: what happened, and what to do."""

from anyplug.formats.shared import long_lived
from anyplug.formats.shared.features import BadAnswer
from anyplug.model.errors import BadOutput, CallError, TimedOut, TooLarge, Unavailable
from anyplug.runtime.processes.program import Program
from anyplug.runtime.session.session import NotSent, PeerGone, Session


class LongAnswer(BadAnswer):
    """It answered with a line that is too long to be read."""


def not_started(name: str, program: Program, reason: str) -> Unavailable:
    """Say why an extension's program cannot be started."""
    return long_lived.not_started(_label(name), program, reason, plugin=name, named_in="extension.json")


def no_hello(name: str, hello_s: float, session: Session) -> Unavailable:
    """Say that an extension did not greet in time, and what it wrote instead."""
    if session.is_amid_a_line:
        instead = "; it wrote a line without a line break behind it"
    else:
        instead = noise(session) or "; it wrote nothing to stdout, or has not flushed it, or waits for input itself"
    stderr = session.stderr_end
    return Unavailable(
        f"extension '{name}' sent no hello within {hello_s:g}s{instead}{long_lived.last_words(stderr)}",
        "its first line on stdout must be a hello frame; if it only needs longer, "
        f"`hello_s` under [plugins.{name}] in settings.toml gives it the time",
        stderr=stderr,
    )


def timed_out(
    name: str, asked: str, limit_s: float | None, session: Session, before: int, *, is_interactive: bool = False
) -> TimedOut:
    """Say that an extension did not answer in time; `before` are the lines of noise before it was asked."""
    hint = f"`timeout_s` under [plugins.{name}] in settings.toml changes the limit"
    if is_interactive:
        hint = "it may wait for a person, and nothing here shows what it draws"
    if noise_lines(session) > before:
        hint = f"its answer may be among them: `anyplug logs {name}` says what is wrong with each"
    return TimedOut(f"timeout waiting for {name}/{asked} after {limit_s:g}s{noise(session, before)}", hint)


def bad_output(name: str, asked: str, bad: BadAnswer) -> CallError:
    """Say that what an extension answered is no answer."""
    if isinstance(bad, LongAnswer):
        return TooLarge(f"extension {name}/{asked}: {bad}", "let it answer with less, or name a file")
    return BadOutput(f"extension {name}/{asked}: {bad}", "mend the frame that it answers with")


def not_asked(name: str, not_sent: NotSent) -> CallError:
    """Say why an extension that is up was not asked."""
    return long_lived.not_asked(_label(name), not_sent)


def ended(name: str, when: str, gone: PeerGone) -> Unavailable:
    """Say how an extension ended."""
    return long_lived.ended(_label(name), when, gone, f"`anyplug logs {name}` shows what it said")


def noise_lines(session: Session) -> int:
    """Count the lines on stdout that are no frames."""
    return session.counts.malformed + session.counts.too_long


def noise(session: Session, before: int = 0) -> str:
    """Say how many of those came since there were `before`, to stand behind what did not come."""
    lines = noise_lines(session) - before
    several = "1 line that is no frame" if lines == 1 else f"{lines} lines that are no frames"
    return f"; it wrote {several}" if lines else ""


def _label(name: str) -> str:
    return f"extension '{name}'"
