"""The hooks of a git repository: what changes them, switches them off, or passes them over.

Hooks are files, and so is what tells git where they are. Settings also come from options and variables, and an alias
can hide an option; a setting whose effect cannot be read counts as one that switches hooks off.
"""

import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

from anyplug.model.late_patterns import late
from anyplug.policy.listed_paths import ListedPaths
from anyplug.policy.paths import is_within, resolved
from anyplug.policy.shell import git_configuration, reading_time, word_patterns
from anyplug.policy.shell.command_steps import Line, Step
from anyplug.policy.shell.git_configuration import COMMANDS, Setting, git_command, gits

HOOKS: Final = "hooks"  # the folder of a repository
NAMES: Final = (
    "applypatch-msg", "commit-msg", "post-applypatch", "post-checkout", "post-commit", "post-merge", "post-rewrite",
    "pre-applypatch", "pre-auto-gc", "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase", "prepare-commit-msg",
    "reference-transaction",
)  # fmt: skip
PLACE: Final = "core.hookspath"
SWITCHING: Final = (PLACE, "include.path", "includeif.", "hook.")  # settings: other hooks, or other files with settings
SECTIONS: Final = ("core.", "include.", "includeif.", "hook.", "alias.")  # that must not be renamed or removed
REPOSITORY: Final = "repository"  # a place that is refused unless it is named as git names them, and so protected
RUNNING: Final = frozenset({"commit", "push", "merge", "rebase", "am", "pull", "cherry-pick", "revert"})
BYPASSING: Final = frozenset({"commit-tree", "fast-import"})  # make commits without any hook
FOREIGN: Final = {  # variables and options that give git other settings, programs or hooks, with their values
    "GIT_CONFIG_GLOBAL": "", "GIT_CONFIG_SYSTEM": "", "GIT_CONFIG_NOSYSTEM": "", "HOME": "", "XDG_CONFIG_HOME": "",
    "GIT_EXEC_PATH": "", "--exec-path": ".", "GIT_TEMPLATE_DIR": "",
    "GIT_DIR": REPOSITORY, "GIT_COMMON_DIR": REPOSITORY, "--git-dir": REPOSITORY,
    "HUSKY": "0|false", "HUSKY_SKIP_HOOKS": "", "SKIP": ".", "LEFTHOOK": "0|false", "LEFTHOOK_EXCLUDE": "",
    "OVERCOMMIT_DISABLE": "", "PRE_COMMIT_ALLOW_NO_CONFIG": "",
}  # fmt: skip
MOST_BEFORE: Final = 4  # words before a program's name, such as `sudo`
_FILE: Final = late(r"/\.git/(?:(?:worktrees|modules)/.+/)?(?:hooks(?:/|$)|config(?:\.worktree)?$|commondir$)")
_REPOSITORY: Final = late(r"(?:^|/)\.git(?:/(?:worktrees|modules)/[^\0]+)?/?$")
_NO: Final = late(r"-[aeiopqsvz]*n")  # of letters in one word it is one before the first that takes a value
_ENABLING: Final = late(
    r"[ugoa]*\+[rwxXst]+|0?[0-7]?[1357][0-7]{2}"
)  # modes of `chmod` with which its owner runs a file
_DISABLING: Final = late(r"[ugoa]*[-=]")


class HookPaths(ListedPaths):
    """The hooks of the git repository around a folder, and the files that say where they are."""

    names = NAMES

    def __init__(self, cwd: str) -> None:
        inside = git_configuration.repository(cwd)
        files = [path for path in git_configuration.files(cwd) if not (inside and is_within(path, inside))]
        named = [os.path.join(".git", name) for name in (HOOKS, *git_configuration.SCOPES)]
        super().__init__([*named, *files], cwd)
        roots = {inside, *(os.path.join(root, ".git") for root in self._roots)} - {""}
        self._named = [os.path.join(root, HOOKS) for root in roots]
        settings = (os.path.join(root, name) for root in roots for name in git_configuration.SCOPES)
        self._named += [path for path in (*settings, *files) if os.path.lexists(path)]
        self._foreign = ""  # what gives git other settings or hooks, in any part of the command
        self._runs_hooks = False
        self.passed: list[str] = []  # commands that are told to run no hooks

    def covers(self, path: str) -> bool:
        """Return whether a path is a hook, or a file that says where hooks are, in any repository."""
        return super().covers(path) or _FILE.search(path.casefold()) is not None

    def ignores(self, step: Step) -> bool:
        """Git's own commands leave hooks alone, and so does a change of owners, or one that lets files be run."""
        names = [word.rpartition("/")[2] for word in step.words[step.start : step.start + MOST_BEFORE]]
        if "git" in names:
            is_setting = any(git_command(git)[0] == "config" for git in gits(step.words))
            return not any(map(self.covers, step.writes if is_setting else (*step.writes, *step.paths)))
        if not {"chown", "chgrp"}.isdisjoint(names):
            return True
        modes = [word for word in step.words[step.start + 1 :] if not word.startswith("--")]
        return "chmod" in names and any(map(_ENABLING.fullmatch, modes)) and not any(map(_DISABLING.match, modes))

    def only_reads(self, step: Step) -> bool | None:
        """Judge by the command: a copy of a hook elsewhere does no harm."""
        return None

    def also_changed(self, line: Line, _folder: str) -> Iterator[str]:
        """Name settings that switch hooks off, or whose effect cannot be read."""
        lines = [step.words for step in line.steps]
        told = list(git_configuration.settings(lines))
        yield from (one.key for one in told if not one.lasts and _switches(one))
        for step in line.steps:
            reading_time.check()
            for git in gits(step.words):
                self._runs_hooks |= git_command(git)[0] not in COMMANDS or not RUNNING.isdisjoint(git)
                may_commit = git_configuration.may_run("commit", git, told, step.folder)
                self.passed += [" ".join(git)] if _passes_over(git, may_commit=may_commit) else []
                kept = [one for one in git_configuration.settings([git]) if one.lasts]
                yield from (
                    one.key for one in kept if _switches(one) and not (one.is_about(PLACE) and _adds(git, one, step))
                )
            self._foreign = self._foreign or next(_foreign(step.words), "")
        if self._foreign and self._runs_hooks:
            yield self._foreign


def _switches(one: Setting) -> bool:
    """Return whether a setting can switch hooks off."""
    if one.key.endswith("."):
        return one.key.casefold().startswith(SECTIONS) or word_patterns.is_unknown(one.key)
    if any(map(one.is_about, SWITCHING)):
        return True
    return one.is_about("alias.") and one.value is not None and not one.is_known


def _adds(git: Sequence[str], one: Setting, step: Step) -> bool:
    """Return whether hooks are only put into force: in a folder of the project, and none are in force elsewhere."""
    options = {word for word in git if word.startswith("-")} - {"-C", "--local"}
    above = next((git[at + 1] for at, word in enumerate(git[:-1]) if word == "-C"), ".")
    folder = step.where(above)
    if options or not one.value or not one.is_known or word_patterns.is_unknown(folder):
        return False
    inside = git_configuration.repository(folder)
    if not inside and not os.path.isdir(folder):  # the same line makes it, perhaps as a work tree
        return False
    top = os.path.dirname(inside) if inside else folder
    place = resolved(os.path.expanduser(one.value), top)
    known = [each.value or "" for each in git_configuration.stored(folder) if each.is_about(PLACE)]
    if known:
        return all(resolved(os.path.expanduser(value), top) == place for value in known)
    hooks = os.path.join(inside, HOOKS)
    is_in_force = any(os.access(os.path.join(hooks, name), os.X_OK) for name in NAMES) if inside else False
    return place == hooks or (is_within(place, top) and not is_in_force)


def _passes_over(git: Sequence[str], *, may_commit: bool) -> bool:
    """Return whether a git command is told to run no hooks, or makes commits without any."""
    words = [word.translate(dict.fromkeys(map(ord, word_patterns.MARKS))) for word in git]
    if any(word.casefold().startswith("--no-v") and "--no-verify".startswith(word.casefold()) for word in words):
        return True
    if (may_commit or not {"commit", "am"}.isdisjoint(words)) and any(map(_NO.match, words)):
        return True
    return not BYPASSING.isdisjoint(words) or {"hash-object", "commit"} <= set(words)


def _foreign(words: Sequence[str]) -> Iterator[str]:
    """Yield the words that give git other settings, programs or hooks."""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        following = "".join(words[at + 1 : at + 2])
        if word in {"-u", "--unset", "unset"} and following in {"HOME", "XDG_CONFIG_HOME"}:
            yield f"{word} {following}"
        if name not in FOREIGN or not (equals or name in git_configuration.VALUED):
            continue
        kind, given = FOREIGN[name], value if equals else following
        if _REPOSITORY.search(given) is None if kind == REPOSITORY else re.match(kind, given):
            yield word
