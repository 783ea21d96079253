"""The error tree. Each leaf holds facts, builds its own message and tells the reader what to do next.

AnyplugError
├── CallError                ends a call; becomes a Result with its code
│   ├── ToolNotFound         not_found
│   ├── CommandNotFound      not_found
│   ├── NotApproved          not_approved
│   ├── PluginDisabled       disabled
│   ├── Denied               denied
│   ├── NeedsAnswer          needs_answer
│   ├── InvalidArguments     invalid_arguments
│   ├── ConfigMissing        config_missing
│   ├── NotExecutable        not_executable
│   ├── TimedOut             timed_out
│   ├── Crashed              crashed
│   ├── BadOutput            bad_output
│   ├── TooLarge             too_large
│   ├── Cancelled            cancelled
│   ├── Overloaded           overloaded
│   ├── NotEnforceable       not_enforceable
│   ├── WorkersFull          overloaded
│   ├── Lost                 lost
│   └── Unavailable          unavailable
├── PluginNotFound           not_found
├── UsageError               usage
├── ManifestError            bad_manifest
├── InstallError             install_failed
├── ExportError              export_failed
├── ScaffoldError            scaffold_failed
├── ConfigError              bad_config
└── StoreError               store_failed
    ├── LookFailed           store_failed
    └── StoreBusy            store_failed
"""

import errno
from typing import Any

import msgspec

from anyplug.model import hints
from anyplug.model.untrusted_text import for_models


class Code(msgspec.Struct, frozen=True):
    """A stable error code: its exit code on the command line, and its meaning."""

    exit: int
    meaning: str


DONE, FAILED, USAGE, REFUSED, MISSING = 0, 1, 2, 3, 4

OS_ERROR = "os_error"  # what a command reports that has no error of ours for it
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
CURE_FOR_SHORTAGE = "free some of it or raise the limit (`ulimit -n` for open files), then try again"
RETURN_LESS = "make it return less, or write to a file and return its path"

CODES: dict[str, Code] = {
    "tool_error": Code(FAILED, "The tool ran and reported an error."),
    "timed_out": Code(FAILED, "The plugin did not finish in time, so it and all its processes were killed."),
    "crashed": Code(FAILED, "The plugin's process exited with a non-zero code or was killed by a signal."),
    "bad_output": Code(FAILED, "The plugin's output does not follow its format."),
    "too_large": Code(FAILED, "The plugin wrote more than its limit allows and was killed."),
    "not_executable": Code(FAILED, "The plugin's program could not be started."),
    "config_missing": Code(FAILED, "A required configuration value is not set."),
    "cancelled": Code(FAILED, "The caller cancelled the call."),
    "overloaded": Code(FAILED, "Too many calls at once; try again later."),
    "conflict": Code(FAILED, "Something changed in the meantime, or someone else was faster; look again."),
    "unavailable": Code(FAILED, "The plugin cannot run now: its files, its process or its workers are gone."),
    "lost": Code(
        FAILED, "A worker of the fleet ended or stopped answering; the call may have run, and its result is lost."
    ),
    "bad_manifest": Code(FAILED, "The plugin's manifest is invalid."),
    "bad_config": Code(FAILED, "A configuration file or value is invalid."),
    "install_failed": Code(FAILED, "Installing or updating failed; nothing was changed."),
    "export_failed": Code(FAILED, "The plugin could not be written as a bundle; nothing was written."),
    "scaffold_failed": Code(FAILED, "A new plugin could not be written; nothing was left behind."),
    "store_failed": Code(FAILED, "The host's own database could not be read or written."),
    OS_ERROR: Code(FAILED, "The operating system refused something, such as reading a file or writing to a full disk."),
    "usage": Code(USAGE, "The command line is invalid."),
    "invalid_arguments": Code(USAGE, "The arguments do not match the tool's parameters."),
    "denied": Code(REFUSED, "A person, a guard, a policy or the host refused the call; nothing ran."),
    "not_approved": Code(REFUSED, "The plugin is not approved, or it changed since the approval; nothing ran."),
    "disabled": Code(REFUSED, "The plugin or the tool is disabled; nothing ran."),
    "not_enforceable": Code(REFUSED, "This machine cannot enforce the plugin's permissions; nothing ran."),
    "needs_answer": Code(REFUSED, "A person has to answer a question first; nothing ran."),
    "not_found": Code(MISSING, "No tool or plugin has that name."),
}

STDERR_SHOWN = 500  # characters of a plugin's stderr that a message quotes, as Cyclop One does
LONGEST_NAME = 200  # characters of an unknown name
TRACES = ("    at ", "Node.js v")  # prefixes of the lines that Node prints after the actual error


def last_words(stderr: str) -> str:
    """Return the end of a program's stderr, starting at a line; without Node's stack trace if it is long."""
    whole = stderr.strip()
    if len(whole) > STDERR_SHOWN:
        telling = [line for line in whole.splitlines() if not line.startswith(TRACES)]
        whole = "\n".join(telling).strip() or whole
    end = whole[-STDERR_SHOWN:]
    return end if end == whole else end.partition("\n")[2] or end


def _short(name: str) -> str:
    """Shorten a name for a message."""
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


class AnyplugError(Exception):
    """The root of all errors. `code` is stable, `hint` tells what to do."""

    code = "tool_error"

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = for_models(message)  # it may quote a plugin
        self.hint = for_models(hint)
        super().__init__(self.message)


class CallError(AnyplugError):
    """Ends a call. `partial` is the output until then; `metadata` goes into the result."""

    def __init__(self, message: str, hint: str = "", *, partial: str = "", **metadata: Any) -> None:
        super().__init__(message, hint)
        self.partial = partial
        self.metadata = {key: value for key, value in metadata.items() if value not in (None, "")}


class ToolNotFound(CallError):
    """No tool has that name."""

    code = "not_found"

    def __init__(self, name: str, similar: list[str], reason: str = "", cure: str = "") -> None:
        """`cure` is a hint for when the name is not a typo."""
        hint = f"did you mean {', '.join(similar)}?" if similar else cure or "`anyplug tools` lists all tools"
        super().__init__(f"no tool is named '{_short(name)}'" + (f": {reason}" if reason else ""), hint)


class CommandNotFound(CallError):
    """No slash command has that name."""

    code = "not_found"

    def __init__(self, name: str, similar: list[str], reason: str = "", cure: str = "") -> None:
        """`cure` is a hint for when the name is not a typo."""
        near = ", ".join(f"/{known}" for known in similar)
        hint = f"did you mean {near}?" if near else cure or "`anyplug run` lists all commands"
        shown = _short(name.removeprefix("/"))
        super().__init__(f"no command is named '/{shown}'" + (f": {reason}" if reason else ""), hint)


class NotApproved(CallError):
    """The plugin is not approved as it is now."""

    code = "not_approved"

    def __init__(self, plugin: str, state: str, changes: tuple[str, ...] = (), hint: str = "") -> None:
        """`hint` replaces the usual one when approving again would not help, because the files cannot be checked."""
        why = (
            "its files cannot be checked"
            if hint
            else {
                "new": "it is not approved yet",
                "denied": "it was denied",
                "changed": "it changed since it was approved",
            }.get(state, state)
        )
        what = f" ({'; '.join(changes)})" if changes else ""
        super().__init__(
            f"plugin '{plugin}' may not run: {why}{what}",
            hint or hints.review(plugin),
            changes=list(changes),
        )


class PluginDisabled(CallError):
    """The plugin or this tool is disabled."""

    code = "disabled"

    def __init__(self, plugin: str, hint: str, tool: str = "") -> None:
        super().__init__(
            f"tool '{tool}' of plugin '{plugin}' is disabled" if tool else f"Plugin is disabled: {plugin}",
            hint,
        )


class Denied(CallError):
    """A gate refused the call."""

    code = "denied"

    def __init__(self, by: str, reason: str, hint: str = "") -> None:
        super().__init__(reason, hint)
        self.by = by


class NeedsAnswer(CallError):
    """A person must answer first, and the question can only be sent by ending the call; the caller repeats it."""

    code = "needs_answer"

    def __init__(self, plugin: str, tool: str, question: str) -> None:
        super().__init__(
            f"plugin '{plugin}' asks before it runs '{tool}'", "answer the question and call again", question=question
        )


class InvalidArguments(CallError):
    """The arguments do not match the tool's parameters."""

    code = "invalid_arguments"

    def __init__(self, tool: str, violations: list[str], hint: str = "") -> None:
        super().__init__("; ".join(violations), hint or f"{hints.command('tools', tool)} shows its parameters")


class ConfigMissing(CallError):
    """Required configuration is not set."""

    code = "config_missing"

    def __init__(self, plugin: str, keys: list[str]) -> None:
        named = ", ".join(f"'{key}'" for key in keys)
        super().__init__(
            f"plugin '{plugin}' needs the configuration value {named}",
            f"{hints.command('config', plugin, keys[0])} asks for it",
            keys=keys,
        )


class NotExecutable(CallError):
    """The program could not be started."""

    code = "not_executable"


class TimedOut(CallError):
    """The plugin did not finish in time."""

    code = "timed_out"


class Crashed(CallError):
    """The plugin's process failed."""

    code = "crashed"


class BadOutput(CallError):
    """The plugin's output is invalid."""

    code = "bad_output"


class TooLarge(CallError):
    """The plugin wrote too much."""

    code = "too_large"


class Cancelled(CallError):
    """The caller cancelled the call."""

    code = "cancelled"


class Overloaded(CallError):
    """Too many calls run and wait."""

    code = "overloaded"

    def __init__(self, plugin: str, running: int, waiting: int, wait_s: int) -> None:
        super().__init__(
            f"too many calls at once: {running} of plugin '{plugin}' are running, and {waiting} calls are waiting",
            f"try again in {wait_s} s; the limits are under [calls] in settings.toml",
            retry_after_ms=wait_s * 1000,
        )
        self.wait_s = wait_s


class NotEnforceable(CallError):
    """This machine cannot enforce the plugin's permissions."""

    code = "not_enforceable"

    def __init__(self, plugin: str, reason: str, cure: str) -> None:
        instead = f"`anyplug approve {plugin} --allow-unconfined` lets it run without a sandbox"
        super().__init__(
            f"plugin '{plugin}' was not run, because its permissions cannot be enforced: {reason}",
            f"{cure}; {instead}" if cure else instead,
        )


class WorkersFull(CallError):
    """All workers of a fleet that could run it are full; nothing ran."""

    code = "overloaded"


class Lost(CallError):
    """The call may have run, and its result cannot be had."""

    code = "lost"

    def __init__(self, message: str) -> None:
        super().__init__(message, "check whether it ran before you call it again; `anyplug audit` names the worker")


class Unavailable(CallError):
    """What should run is gone."""

    code = "unavailable"


class PluginNotFound(AnyplugError):
    """No plugin has that name."""

    code = "not_found"

    def __init__(self, name: str, similar: list[str]) -> None:
        hint = f"did you mean {', '.join(similar)}?" if similar else "`anyplug list` lists all plugins"
        super().__init__(f"no plugin is named '{name}'", hint)
        self.similar = similar


class UsageError(AnyplugError):
    """The command line is invalid."""

    code = "usage"


class ManifestError(AnyplugError):
    """A manifest is invalid."""

    code = "bad_manifest"


class InstallError(AnyplugError):
    """Installing or updating failed, and nothing was changed."""

    code = "install_failed"


class ExportError(AnyplugError):
    """A plugin could not be written as a bundle."""

    code = "export_failed"


class ScaffoldError(AnyplugError):
    """A new plugin could not be written."""

    code = "scaffold_failed"


class ConfigError(AnyplugError):
    """A configuration file or value is invalid."""

    code = "bad_config"


class StoreError(AnyplugError):
    """The host's own database could not be read or written."""

    code = "store_failed"


class StoreBusy(StoreError):
    """Another process is writing to the database for unusually long."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the database {path} is locked by another process",
            f"try again; if that does not help, end the process that `fuser {path}` names",
        )


class LookFailed(StoreError):
    """Plugins could not be read because the machine is out of some resource; what was known about them still holds."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(f"cannot read {path}: {error.strerror}", CURE_FOR_SHORTAGE)


def is_shortage(error: OSError) -> bool:
    """Return whether an error is about a lack of resources and not about the file it names."""
    return error.errno in SHORTAGES
