"""Parse shell commands as far as a gate needs: blanks, words, the simple commands of a line, paths among the words.

Nothing is run. Quoting in all its forms, line continuations, comments, here-documents, substitutions of any depth,
braces, extended globs, arrays, and texts for another shell are parsed. The output of commands is unknown, except for
those that only print or transform their arguments (see `substitutions`); the values of variables are found by
`word_values`. Text that dash (`sh`) or zsh may read otherwise than bash is read as they do, too: the commands of all
these readings count. Each character is read a limited number of times. If it is not certain that a shell parses the
same, `Reading.is_sure` is False, and callers that protect something must assume the worst.
"""

import functools
import itertools
import re
import sys
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from anyplug.model.late_patterns import late
from anyplug.policy.shell import reading_time, substitution_output, substitutions
from anyplug.policy.shell.substitutions import Shell

BLANKS: Final = " \t\n\r\v\f"
PATH_STARTS: Final = (".", "$", "~")
GLOBS: Final = "*?["
_MANY: Final = f"{GLOBS}$"
PROCESS: Final = frozenset("<>")  # `<(…)` and `>(…)`
BOTH: Final = frozenset({"&>", "&>>"})
PIPE: Final = "/dev/fd/pipe"  # stands for the word that a shell makes of these; no such file exists
UNKNOWN: Final = "\0"  # stands for the output of a command, and for unknown values
ELEMENT: Final = "\ue011"  # separates the elements of an array
_BREAK: Final = "\ue014"  # where a shell splits the output of a command into words
_ALONE: Final = "\ue016"  # before a word of its own that the output may also bring
_KNOWN: Final = ("\ue012", "\ue013")  # around the known output of a command
_KNOWN_OUTPUT: Final = late("\ue012[^\ue013]*\ue013")
_MARKS: Final = dict.fromkeys(
    map(ord, "\0\ue000\ue001\ue002\ue003\ue004\ue005\ue006\ue007\ue010\ue011\ue012\ue013\ue014\ue015\ue016")
)  # have special meanings here
SHELLS: Final = frozenset(  # or so similar that programs and files stand in the same places
    {
        "sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "rbash", "mksh", "yash", "csh", "tcsh", "nu", "xonsh",
        "elvish", "pwsh", "powershell", "pwsh.exe", "powershell.exe",
    }
)  # fmt: skip
SUBSCRIPTING: Final = frozenset(  # builtins that expand `a[$(…)]` even if it is quoted
    {
        "test", "[", "[[", "printf", "declare", "typeset", "local", "export", "readonly", "unset", "read", "let",
        "mapfile", "readarray", "wait", "getopts",
    }
)  # fmt: skip
TEXT_RUNNERS: Final = frozenset(  # run their arguments or input as shell commands
    {
        ".", "at", "batch", "concurrently", "crontab", "entr", "expect", "flock", "hyperfine", "nodemon", "nsenter",
        "parallel", "runuser", "screen", "script", "socat", "source", "ssh", "su", "systemd-run", "tmux", "trap",
        "unshare", "watch", "watchexec", "yarn",
    }
)  # fmt: skip
PREFIXES: Final = frozenset(  # run the words after them
    {
        "builtin", "busybox", "chroot", "command", "doas", "env", "exec", "ionice", "nice", "nohup", "pkexec", "run0",
        "setsid", "stdbuf", "strace", "sudo", "time", "timeout", "toybox", "xargs",
    }
)  # fmt: skip
PACKAGED: Final = frozenset({"npx", "bunx", "pnpx", "npm", "pnpm", "bun", "uvx", "pipx"})  # run programs of packages
QUIET: Final = frozenset(  # programs that run nothing that the same line writes
    {
        "cat", "tee", "echo", "printf", "ls", "mkdir", "cd", "touch", "wc", "head", "tail", "grep", "test", "[", "true",
        "pwd", "diff", "date", "chmod", "rm", "sleep", "sort", "stat", "file", "du", "tree",
    }
)  # fmt: skip
SAYING: Final = frozenset({"git", "gh", "echo", "printf"})  # and whose words name no files that they change
QUIET_GIT: Final = frozenset({"add", "commit", "diff", "log", "push", "show", "status", "tag"})
TAKING_TEXTS: Final = {  # programs with their commands, and the options whose `-` is a text for people on stdin
    ("git", "commit"): ("-F", "--file"), ("git", "tag"): ("-F", "--file"), ("git", "notes"): ("-F", "--file"),
    ("gh", "pr"): ("-F", "--body-file"), ("gh", "issue"): ("-F", "--body-file"),
    ("gh", "release"): ("-F", "--notes-file"),
}  # fmt: skip
MESSAGING: Final = frozenset({("git", "commit"), ("gh", "pr"), ("gh", "issue")})
READS: Final = 72  # times that each character is read on average, by three shells, before parsing is given up
FREE: Final = 262_144  # characters that are read in any case
MOST_ALTERNATIVES: Final = 256  # words that braces expand to
DEEPEST_SCOPE: Final = 16  # nested subshells that are told apart
LONGEST_SEPARATOR: Final = 16  # characters between two commands
LONGEST_RANGE: Final = 64  # of {a..z}
MOST_BEFORE: Final = 4  # words of a command among which is the program
LONGEST_PRINTED: Final = 1024  # characters between backticks whose output is computed

# Quotes may be left open at the end of a line; a backslash has no meaning between single ones.
_JOINED: Final = r"(?:\\\n)*"
_ESCAPED: Final = r"\\[\s\S]"
_SINGLE: Final = r"'[^']*'?"
_DOUBLE: Final = rf'"(?:{_ESCAPED}|[^"\\])*"?'
_ANSI: Final = rf"\${_JOINED}'(?:{_ESCAPED}|[^'\\])*'?"
_UNIT: Final = late(rf"""(?:{_ESCAPED}|{_SINGLE}|{_DOUBLE}|[^{BLANKS}\\'"]+|\\)+""")
_CONTINUED: Final = late(rf"(?P<joined>\\\n)|{_ANSI}|{_SINGLE}|(?P<double>{_DOUBLE})|{_ESCAPED}")
_IN_DOUBLE: Final = late(r"\\\n|(\\[^\n])")
_OUTSIDE: Final = late(  # how a line is parsed outside double quotes
    rf"""(?P<joined>\\\n)|(?P<escaped>{_ESCAPED})|(?P<arithmetic>\${_JOINED}\({_JOINED}\()|(?P<inner>\${_JOINED}\()"""
    rf"""|(?P<backtick>`)|(?P<brace>\${_JOINED}\{{)|(?P<close>\}})"""
    rf"""|(?P<ansi>{_ANSI})|(?P<single>{_SINGLE})|(?P<double>(?:\${_JOINED})?")"""
    rf"""|(?P<document><{_JOINED}<(?!{_JOINED}<))|(?P<process>[<>]{_JOINED}\()"""
    rf"|(?P<redirection>&>>?|[<>][<>|&]*)|(?P<sums>\(\()|(?P<separator>[;&|\n()])|(?P<blank>[{BLANKS}])"
    rf"|(?P<text>[^\\`$'\"<>;&|(){{}}{BLANKS}]+|.)",
    re.DOTALL,
)
_INSIDE: Final = late(
    rf"""(?P<joined>\\\n)|(?P<escaped>{_ESCAPED})|(?P<arithmetic>\${_JOINED}\({_JOINED}\()|(?P<inner>\${_JOINED}\()"""
    rf"""|(?P<backtick>`)|(?P<brace>\${_JOINED}\{{)|(?P<close>\}})|(?P<double>")|(?P<text>[^"\\`${{}}']+|.)""",
    re.DOTALL,
)
_SPLITTING: Final = late(r"-[0a-zA-Z]*?S=?([\s\S]*)|--s(?:p|pl|pli|plit)?(?:-[a-z]*)?(?:=([\s\S]*))?")  # of `env`
LONGEST_NAME: Final = 64  # pieces of a word among which a variable's name is
_ENDING_NAME: Final = late("\\$([~=^\ue005\ue006]*[A-Za-z_]\\w*)\\Z")
_ASSIGNED: Final = late(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_SUBSCRIPT: Final = late(r"\[[^\]]*(?:\$\(|`)")
_BACKTICKED: Final = late(rf"(?:{_ESCAPED}|[^`\\])*")
_DELIMITER: Final = late(rf"""(-?)[ \t]*((?:{_ESCAPED}|{_ANSI}|{_SINGLE}|{_DOUBLE}|[^{BLANKS};&|<>()\\'"])+)""")
_WORD: Final = late(rf"""(?:'[^']*'?|"[^"]*"?|[^{BLANKS}'"]+)+""")
_QUOTED: Final = late(r"""'([^']*)'?|"([^"]*)"?""")
_SPECIAL: Final = late(r"[*?\[\\/]")
ESCAPABLE: Final = '$`"\\\n'  # between double quotes
_ANSI_ESCAPE: Final = late(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c([\s\S])|([\s\S]))"
)
_ANSI_LETTERS: Final = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"
}  # fmt: skip
_HIDDEN: Final = {ord(char): 0xE000 + at for at, char in enumerate("{},.$")}  # quoted characters make no alternatives
_SHOWN: Final = {code: char for char, code in _HIDDEN.items()}
_INNERMOST: Final = late(r"(?<!\$)\{([^{}]*)\}")
_RANGE: Final = late(r"(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])(?:\.\.-?(\d{1,9}))?")


# Ways for a line to rerun words of an earlier command, or to redefine one.
_HOOK: Final = late(r"\.git(?:/|$)|hook|husky", re.IGNORECASE)  # in the path of a file that git may run
_REUSED: Final = late(r"\$\{?_\b|!|\b(?:git|gh|cat)\s*\(|\b(?:alias|function|trap|fc|history|BASH_COMMAND|enable)\b")


_Mode = Literal["script", "text"]

# What zsh reads otherwise, wherever it stands: `>!`, `a(b|c)`, `(#i)a`, `=program`, `^a`, `a~b`, `a#`.
_OF_ZSH: Final = late(r"\$\w+\{|>>?&?!|&>>?[!|]|(?<![$<>;&|(])\(|(?<![^\s;|&({])=[A-Za-z]|\^|[^\s=:]~|[^\s$\"'{]#")
_PROGRAM: Final = late(r"=([A-Za-z_][\w.+-]*)")  # stands for its path in zsh
_EXTENDED: Final = {ord("^"): "\ue005", ord("~"): "\ue006", ord("#"): "\ue007"}  # unquoted, of zsh's patterns
_LITERAL: Final = {ord(mark): chr(code) for code, mark in _EXTENDED.items()}
_EXCEPT: Final = late("(?<=[^/=:$])\ue006(?=.)", re.DOTALL)  # `a~b` is what matches a, and not b
_OTHER: Final = late("(?<![$[])\ue005[^/]*|[^/$]\ue007+")  # `^a` is anything else, and `a#` any number of them
_OTHER_THAN_VALUE: Final = late("(?<![$[])\ue005[^/]*\\$")
_ECHO_OPTION: Final = late(r"-[neE]+")
_GROUPING: Final = frozenset(  # what stands before a subshell
    {"!", "{", "}", "do", "then", "else", "elif", "if", "while", "until", "time", "-p", "fi", "done", "esac", "always"}
)
MOST_LISTING: Final = 2  # words of `for NAME`, `repeat 3`, `function NAME`
_LISTING: Final = frozenset({"for", "foreach", "select", "case", "function", "coproc", "repeat", "[["})  # before `(`


class Simple(msgspec.Struct, frozen=True):
    """One simple command: its words without their quotes, and where its output goes."""

    words: tuple[str, ...]
    writes: tuple[str, ...] = ()  # files behind `>`
    marked: tuple[str, ...] = ()  # the words with the result of substitutions, or UNKNOWN, if there are any
    marked_writes: tuple[str, ...] = ()  # the same for the files
    fed: tuple[str, ...] = ()  # texts behind `<<<` and `<<`
    reads: tuple[str, ...] = ()  # files after `<`; they are among the words, too
    scope: tuple[int, ...] = ()  # the text that contains it, and the subshells around it
    before: str = ""  # what separates it from the previous command, such as `&&`
    inputs: int = 0  # how many of the words, at their end, are input files and texts
    is_diverted: bool = False  # its output goes to a file, or its input comes from one

    @property
    def command(self) -> substitution_output.Command:
        """Return what tells what it prints."""
        words = self.marked or self.words
        words = words[: len(words) - self.inputs]
        is_piped = PIPE in words and len(words) == 2 and len(self.fed) == 1  # noqa: PLR2004
        is_diverted = self.is_diverted or (PIPE in words and not is_piped)
        return substitution_output.Command(words[:1] if is_piped else words, self.fed, self.before, is_diverted)


class Reading(msgspec.Struct, frozen=True):
    """What was parsed of a command."""

    commands: list[Simple]
    is_sure: bool  # whether a shell certainly parses it the same


def normalised(command: str) -> str:
    """Collapse runs of blanks outside quotes; quoted and escaped ones stay."""
    return " ".join(_UNIT.findall(command))


def joined(command: str) -> str:
    """Join lines that end in a backslash, except between single quotes."""
    if "\\\n" not in command:
        return command
    return _CONTINUED.sub(
        lambda found: "" if found["joined"] else _IN_DOUBLE.sub(r"\1", found[0]) if found["double"] else found[0],
        command,
    )


def plain(command: str) -> str:
    """Return a command without anything that hides words from a plain search, to find names in it."""
    flat = _ANSI_ESCAPE.sub(_unescaped, command.replace("\\\n", ""))
    return (command.replace("\\\n", "") + "\n" + flat).translate(_QUOTES).casefold()


_QUOTES: Final = {ord(char): None for char in "'\"\\\n\r`$"}


def simple_commands(command: str) -> list[Simple]:
    """Split a line into its simple commands, with those in substitutions and those passed to a shell with -c."""
    return read(command).commands


@functools.lru_cache(maxsize=4)  # policies and self-protection ask about the same command
def read(command: str) -> Reading:
    """Parse a command."""
    command = command.translate(_MARKS)
    reader = _Reader(len(command) * READS + FREE)
    return Reading(reader.read(command), reader.is_sure)


def _is_kept(words: Sequence[str]) -> bool:
    """Return whether a command writes its input to a file, or takes it as a text for people."""
    if words[:1] == ("cat",):
        return set(words[1:]) <= {"-"}
    if words[:1] == ("tee",):
        return not any(word.startswith("-") and word not in {"-a", "--append"} for word in words[1:])
    options = TAKING_TEXTS.get((words[0], words[1]), ()) if len(words) > 1 else ()
    return any(
        word in {f"{option}=-", f"{option}-"} or (word == option and words[at + 1 : at + 2] == ("-",))
        for at, word in enumerate(words)
        for option in options
    )


def _is_quiet(found: Sequence[Simple]) -> bool:
    """Return whether no command can run a file that another one writes."""
    writes_hook = any(_HOOK.search(path) for one in found for path in (*one.writes, *one.words[1:]))
    for one in found:
        name = one.words[0] if one.words else "cat"
        command = "".join(one.words[1:2])
        is_quiet = command in QUIET_GIT and not writes_hook if name == "git" else (name, command) in TAKING_TEXTS
        has_output = bool(one.marked or one.marked_writes)  # of a command, which may print what was written
        if not (is_quiet or name in QUIET) or (has_output and (name not in SAYING or one.writes)):
            return False
    return True


def _scripts(simple: Simple) -> list[str]:
    """Return what another shell is told to run."""
    words = [word.rpartition("/")[2] for word in simple.words]
    if "eval" in words:
        rest = itertools.dropwhile(lambda word: word in {"eval", "--"}, simple.words[words.index("eval") :])
        return [" ".join(rest)]
    start = next((at for at, word in enumerate(words) if "=" not in word), 0)
    has_prefix = words[start : start + 1] and words[start] in PREFIXES
    for number, word in enumerate(simple.words if has_prefix else ()):
        if split := _SPLITTING.fullmatch(word):
            return [" ".join((split[1] or split[2] or "", *simple.words[number + 1 :])).replace(r"\_", " ")]
    if words[start : start + 1] and words[start] in SUBSCRIPTING:
        return [word for word in simple.words[start + 1 :] if _SUBSCRIPT.search(word)]
    at = next((at for at, word in enumerate(words) if word in SHELLS), -1)
    flags = [number for number, word in enumerate(words) if 0 <= at < number and word.startswith("-") and "c" in word]
    scripts = [simple.words[flags[0] + 1]] if flags and flags[0] + 1 < len(words) else []
    scripts += [text for text in map(substitutions.wide, scripts) if text]
    is_carried = has_prefix or (words[start : start + 1] and words[start] in PACKAGED)
    if any(word in SHELLS or word in TEXT_RUNNERS for word in (words if is_carried else words[start : start + 1])):
        scripts += [word for word in simple.words[start + 1 :] if any(char in word for char in " \t\n;:")]
    return list(dict.fromkeys(scripts))


class _Line:
    """The simple commands of a text parsed so far, and the texts inside it."""

    def __init__(self, shell: Shell, *, is_extended: bool) -> None:
        self._shell = shell
        self._is_extended = is_extended  # the line turns on more patterns of zsh
        self.found: list[Simple] = []
        self.inner: list[_Line] = []
        self.depth = 0  # of parentheses
        self.sums = 0  # the depth at which ((, in which << is not a here-document, was opened
        self.braces = 0  # of ${
        self.is_inside = False  # of double quotes
        self.cases = 0
        self._words: list[str] = []
        self._writes: list[str] = []
        self._word: list[str] = []  # in pieces; an empty word such as '' has an empty piece
        self._has_braces = False
        self._into = False  # the next word is where the output goes
        self._is_fed = False  # the next word is input text for the command
        self._fed: list[str] = []
        self._is_read = False  # the next word is an input file of the command
        self._is_diverted = False
        self._inputs: list[str] = []  # these files and texts, which count as words of the command
        self._reads: list[str] = []
        self.opened_by = ""  # what precedes the parenthesis: $ < > = @ ? + * !
        self._scopes: list[int] = []  # the subshells that are open
        self._opened = 0  # subshells so far
        self._before = ""

    def add(self, text: str, *, is_quoted: bool = False) -> None:
        self._has_braces |= "{" in text and not is_quoted
        self._word.append(text.translate(_HIDDEN) if is_quoted else text)

    def end_name(self) -> None:
        """Keep the name of a variable apart from what follows it: `$x"y"` and `$x$(echo y)` are not `$xy`."""
        text = "".join(self._word[-LONGEST_NAME:])
        if found := _ENDING_NAME.search(text):
            kept = self._word[:-LONGEST_NAME]
            self._word = [*kept, f"{text[: found.start()]}${{{found[1]}}}"]

    def open(self, mark: str) -> "_Line":
        """Begin a text in parentheses; its result replaces UNKNOWN when it is closed."""
        if mark not in PROCESS and mark not in {"$", "("} and self._word:
            self._word[-1] = self._word[-1][: None if mark == "=" else -1]
        self.end_name()
        self._word.append(UNKNOWN)
        self.inner.append(_Line(self._shell, is_extended=self._is_extended))
        self.inner[-1].opened_by = mark
        return self.inner[-1]

    def close(self, inner: "_Line") -> None:
        """Insert the result of a text in parentheses into the surrounding word."""
        if not self._word or self._word[-1] != UNKNOWN:
            return
        words = [word for simple in inner.found for word in simple.marked or simple.words]
        commands = [one.command for one in inner.found] if inner.opened_by in {"$", "<"} else []
        made = substitution_output.output(commands, self._shell) if inner.opened_by in {"$", "<"} else []
        if inner.opened_by == "$":
            is_split = not self.is_inside and not _ASSIGNED.match("".join(self._word[:1]))
            if len(made) > 1 and not substitutions.PRINTING.isdisjoint(self._words[:3]):
                made = [UNKNOWN]  # `echo` would print all of them
            each = [_broken(text, is_split=is_split) for text in made]
            if len(each) > 1 and any(_BREAK in text for text in each):  # all of their words, whatever is beside them
                each = [_BREAK.join([UNKNOWN, *each, UNKNOWN])]
            self._has_braces |= len(each) > 1
            self._word[-1] = f"{{{','.join(each)}}}" if len(each) > 1 else "".join(each)
        elif inner.opened_by in PROCESS:
            self._word[-1] = PIPE
            self._fed += [text for text in made if text != UNKNOWN]
        elif inner.opened_by == "=":
            self._word[-1] = ELEMENT.join(["", *words]).translate(_HIDDEN)
        elif inner.opened_by == "!":
            self._word[-1] = "*"
        elif inner.opened_by:
            choices = [*(word.translate(_HIDDEN) for word in words), *(() if inner.opened_by == "@" else (UNKNOWN, ""))]
            choices += ["*"] if inner.opened_by == "*" else []  # as zsh reads *(D)
            self._word[-1] = f"{{{','.join(choices)}}}" if len(choices) > 1 else "".join(choices)
            self._has_braces = True

    @property
    def only_prints(self) -> bool:
        """Return whether everything so far is one `cat` with input."""
        return self._before == "\n" and [(one.words, one.writes) for one in self.found] == [(("cat",), ())]

    @property
    def takes_message(self) -> bool:
        """Return whether the command being parsed treats its words as text for people."""
        return tuple(self._words[:2]) in MESSAGING and self._words[-1:] in (["-m"], ["-am"], ["--message"], ["--body"])

    @property
    def is_between_words(self) -> bool:
        return not self._word

    @property
    def begins_comment(self) -> bool:
        """Return whether `#` begins a comment here: not in a pattern such as `(#i)a`."""
        return self.is_between_words and not self.is_inside and self.opened_by != "("

    def prints_otherwise(self, *, has_escapes: bool) -> bool:
        """Return whether it prints words whose escapes only some shells decode, or options that only some know."""
        names = {word.rpartition("/")[2] for one in self.found for word in one.words[:MOST_BEFORE]}
        options = [word for one in self.found for word in one.words if _ECHO_OPTION.fullmatch(word)]
        return not substitutions.PRINTING.isdisjoint(names) and (has_escapes or options not in ([], ["-n"]))

    def takes_pattern(self, behind: str) -> bool:
        """Return whether zsh reads a parenthesis here as a part of a word; in bash it would be an error."""
        if self._shell != "zsh" or self.is_inside or self.braces or self.sums or self.cases:
            return False
        rest = list(itertools.dropwhile(lambda word: word in _GROUPING or _ASSIGNED.match(word), self._words))
        is_argument = bool(self._word or rest) and (
            _LISTING.isdisjoint(rest[:1]) or (len(rest) > MOST_LISTING and rest[0] not in {"case", "[["})
        )
        return is_argument and not behind.lstrip(" \t").startswith(")")

    def is_in_case(self) -> bool:
        """Return whether a closing parenthesis ends a pattern here."""
        self.end_word()
        return self.cases + ("case" in self._words) > ("esac" in self._words)

    def end_word(self) -> None:
        if self._word:
            text = "".join(self._word)
            parts = text.split(_BREAK)
            words = [word for part in parts for word in (_alternatives(part) if self._has_braces else [part])]
            words = [word.translate(_SHOWN) for word in words]
            if _ALONE in text:
                words = [one for one in words if one[:1] != _ALONE or one[1:] not in words]
                words = [one.replace(_ALONE, "") for one in words]
            if self._shell == "zsh":
                words = [
                    _PROGRAM.sub(rf"{UNKNOWN}/bin/\1", word) if _PROGRAM.fullmatch(word) else word for word in words
                ]
                words = list(map(self._matched, words))
            is_input = self._is_fed or self._is_read
            (self._writes if self._into else self._inputs if is_input else self._words).extend(words)
            if self._is_fed:
                self._fed += _shown(words)
            if self._is_read:
                self._reads += words
            self._into = self._is_fed = self._is_read = False
            self._word, self._has_braces = [], False

    def _matched(self, word: str) -> str:
        """Return a word with the patterns that only zsh has as `*`."""
        plain = word.translate(_LITERAL)
        if plain == word:
            return word
        is_glob = any(char in word for char in f"*?[{UNKNOWN}")
        is_pattern = self._is_extended or is_glob
        if is_pattern and (found := _OTHER_THAN_VALUE.search(word)):
            word = word[: found.start()] + UNKNOWN
        made: list[str] = []
        for part in word.split("/"):
            has_pattern = is_pattern or part[:1] == "."
            part = _OTHER.sub("*", part) if has_pattern else part  # noqa: PLW2901 - as zsh reads it
            kept, *excluded = _EXCEPT.split(part, 1) if "*" in part or is_glob else [part]
            made.append(kept)
            if excluded:
                break
        return "/".join(made).translate(_LITERAL)

    def separate(self, mark: str) -> None:
        """End a command at `;`, `&`, `|`, a line's end or a parenthesis."""
        self.end_command()
        self._before += mark
        for char in mark:
            if char == "(":
                self._opened += 1
                self._scopes.append(self._opened)
            elif char == ")" and self._scopes:
                self._scopes.pop()

    def redirect(self, mark: str) -> None:
        stream = "".join(self._word)
        if not stream.isdigit():  # 2> is about a stream
            self.end_word()
        self._word = []
        self._is_diverted |= mark != "<<<" and (not stream.isdigit() or int(stream) <= 1)
        self._into = ">" in mark
        self._is_fed = mark == "<<<"
        self._is_read = mark == "<"

    def end_command(self) -> None:
        self.end_word()
        self._into = self._is_fed = self._is_read = False
        if self._words or self._writes or self._inputs:
            self._words += self._inputs
            marked, marked_writes = _shown(self._words), _shown(self._writes)
            words, writes = _bare(self._words), _bare(self._writes)
            self.found.append(
                Simple(
                    words,
                    writes,
                    marked if marked != words else (),
                    marked_writes if marked_writes != writes else (),
                    tuple(self._fed),
                    _shown(self._reads),
                    (0, *self._scopes[:DEEPEST_SCOPE]),
                    self._before[-LONGEST_SEPARATOR:],
                    len(self._inputs),
                    self._is_diverted,
                )
            )
            self._before = ""
            self.cases = max(0, self.cases + ("case" in words) - ("esac" in words))
        self._words, self._writes, self._inputs, self._fed, self._reads = [], [], [], [], []
        self._is_diverted = False


def _broken(text: str, *, is_split: bool) -> str:
    """Return the output of a command as a part of a word, split into words if a shell does that."""
    if text == UNKNOWN:
        return text
    parts = text.split() if is_split and len(text.split()) > 1 else [text]
    # A glob, also in the value of a variable, may be several files, and only one stands beside the rest of the word.
    alone = [_ALONE + part for part in parts if is_split and any(char in part for char in _MANY)]
    return _BREAK.join(_known(part) for part in [parts[0], *alone, *parts[1:]])


def _known(part: str) -> str:
    mark = part[: part.startswith(_ALONE)]
    return mark + part.removeprefix(_ALONE).translate(_HIDDEN).join(_KNOWN)


def _shown(words: list[str]) -> tuple[str, ...]:
    """Return words with the results of substitutions."""
    return tuple(word.replace(_KNOWN[0], "").replace(_KNOWN[1], "") for word in words)


def _bare(words: list[str]) -> tuple[str, ...]:
    """Return words without the results of substitutions."""
    known = (_KNOWN_OUTPUT.sub("", word) if _KNOWN[0] in word else word for word in words)
    return tuple(word.partition(ELEMENT)[0].replace(UNKNOWN, "").replace(substitutions.MADE, "") for word in known)


class _Document(msgspec.Struct):
    """A here-document whose text has not come yet."""

    delimiter: str
    is_quoted: bool
    has_tabs: bool
    line: _Line
    number: int  # of the command on that line which it is fed to


class _Reader:
    """Parses a command and all texts in it, with a limit."""

    def __init__(self, budget: int, shell: Shell = "bash") -> None:
        self._budget = budget
        self._shell: Shell = shell
        self._others: set[Shell] = set()  # that read something in the text differently
        self._is_extended = False
        self._has_escapes = False
        self.is_sure = True
        self._texts = 0  # texts parsed
        self._waiting: list[tuple[_Line, str, _Mode, bool]] = []  # nested texts, to be parsed later
        self._documents: list[_Document] = []
        self._kept: list[str] = []  # here-documents that are only written to files

    def read(self, command: str) -> list[Simple]:
        self._is_extended = "extendedglob" in command.replace("_", "").casefold()
        self._has_escapes = "\\" in command
        found = self._read_each(command, is_loose=False)
        seen = {command}
        for simple in found:  # it grows
            for script in _scripts(simple):
                if script not in seen:
                    seen.add(script)
                    found += self._read_each(script, is_loose=True)
            if self._kept and simple is found[-1] and not _is_quiet(found):  # files that are written may be run
                kept, self._kept = dict.fromkeys(self._kept), []
                for text in kept:
                    found += self._read_each(text, is_loose=True)
        return found

    def _read_each(self, command: str, *, is_loose: bool) -> list[Simple]:
        """Read a text as bash, and as the shells that may read it differently."""
        first = self._texts
        self._shell, self._others = "bash", {"zsh"} if _OF_ZSH.search(command) else set()
        found = self._read_one(command, is_loose=is_loose)
        last = self._texts
        known = set(found)
        for shell in [shell for shell in substitutions.SHELLS if shell in self._others]:
            self._shell, self._texts = shell, first  # the same texts have the same numbers
            found += [simple for simple in self._read_one(command, is_loose=True) if simple not in known]
            known.update(found)
            last = max(last, self._texts)
        self._texts = last
        return found

    def _read_one(self, command: str, *, is_loose: bool) -> list[Simple]:
        first = _Line(self._shell, is_extended=self._is_extended)
        self._waiting.append((first, command, "script", is_loose))
        while self._waiting:
            reading_time.check()
            line, text, mode, is_loose = self._waiting.pop()
            self._budget -= len(text)
            if self._budget < 0:
                self.is_sure = False
                self._waiting.clear()
                break
            was_sure = self.is_sure
            self._cut(line, text, mode)
            self.is_sure = was_sure if is_loose else self.is_sure
        found: list[Simple] = []
        lines = [first]
        while lines:
            line = lines.pop()
            found += [msgspec.structs.replace(one, scope=(self._texts, *one.scope[1:])) for one in line.found]
            self._texts += 1
            lines += reversed(line.inner)
        return found

    def _cut(self, line: _Line, command: str, mode: _Mode) -> None:  # noqa: C901 (one branch for each kind of token)
        """Split a text, descending into substitutions. In a text such as a here-document, quotes have no meaning."""
        opened: list[_Line] = []
        line.is_inside = mode == "text"
        self._documents = []
        at = 0
        while found := (_INSIDE if line.is_inside else _OUTSIDE).match(command, at):
            kind, text, at = found.lastgroup, found[0], found.end()
            if kind == "ansi" and self._shell == "sh":
                kind, text, at = "text", "$", found.start() + 1
            if text in BOTH:  # bash and zsh write both outputs; others end the command, and begin one that writes
                self._others.add("sh")
                if self._shell == "sh":
                    kind, text, at = "separator", "&", found.start() + 1
            if kind == "redirection" and self._shell == "zsh":  # `>!` is as `>|`
                at += command.startswith(("!", "|") if text in BOTH else "!", at) and ">" in text
            if kind == "process" and (line.sums or line.braces):  # `((a<(b)))` compares
                kind, text, at = "redirection", text[0], found.start() + 1
            if self._documents and line.is_inside and "\n" in text:
                self.is_sure = False
            if kind in {"inner", "arithmetic"}:
                opened.append(line)
                line = line.open("$")
                line.depth = line.sums = int(kind == "arithmetic")
            elif kind == "process":
                opened.append(line)
                line = line.open(text[0])
            elif text[:1] == "(" and (mark := _opening(command, found.start(), line)):
                at = found.start() + 1
                opened.append(line)
                line = line.open(mark)
            elif kind == "separator" and text == ")" and opened and not line.depth and not line.is_in_case():
                self._end(line)
                inner, line = line, opened.pop()
                if inner.prints_otherwise(has_escapes=self._has_escapes):
                    self._others |= {"sh", "zsh"}
                line.close(inner)
            elif kind == "separator" and text == "\n" and self._documents:
                line.separate(text)
                is_message = (
                    bool(opened) and line.only_prints and opened[-1].takes_message and not _REUSED.search(command)
                )
                at = self._take_documents(command, at, line, is_message=is_message)
            elif kind == "document":
                at = self._announce(command, at, line)
            elif kind == "backtick":
                at = self._take_backticks(command, at, line)
            elif kind == "double" and mode == "text" and not opened:
                line.add(text)
            elif kind == "text" and text.startswith("#") and line.begins_comment:
                at = self._skip_comment(command, found.start(), at, line)
            else:
                self._take(line, kind or "", text)
        if opened:
            self.is_sure = False
        for each in (*opened, line):
            if each is not line or mode != "text" or opened:
                self._end(each)
            else:
                each.found.clear()

    def _end(self, line: _Line) -> None:
        if line.is_inside or line.braces:
            self.is_sure = False
        line.end_command()

    def _take(self, line: _Line, kind: str, text: str) -> None:  # noqa: C901 (as above)
        if kind == "joined":
            return
        if kind in {"double", "single", "ansi", "escaped"}:
            line.end_name()
        if kind == "double":
            self.is_sure &= not line.braces  # shells differ about a quote in "${…}"
            line.is_inside = not line.is_inside
            line.add("")
        elif line.braces and not line.is_inside and kind in {"blank", "separator", "sums", "redirection"}:
            self.is_sure = False  # whether that is part of ${…}
            line.add(text)
        elif kind == "redirection":
            line.redirect(text)
        elif kind in {"separator", "sums"}:
            line.depth = max(0, line.depth + text.count("(") - text.count(")"))
            line.sums = line.depth if kind == "sums" and not line.sums else min(line.sums, line.depth)
            line.separate(text)
        elif kind == "blank":
            line.end_word()
        elif kind == "escaped":
            is_kept = line.is_inside and text[1] not in ESCAPABLE  # a backslash between double quotes
            line.add(text if is_kept else _literal(text[1:], line), is_quoted=True)
        elif kind == "ansi":
            self._others |= {"sh"} if "\\'" in text else set()
            self.is_sure &= text.endswith("'")
            body = text[text.index("'") + 1 :]
            line.add(unescaped(body.removesuffix("'")), is_quoted=True)
        elif kind == "single":
            self.is_sure &= len(text) > 1 and text.endswith("'")
            line.add(_literal(text.strip("'"), line), is_quoted=True)
        else:
            line.braces = max(0, line.braces + (kind == "brace") - (kind == "close"))
            self.is_sure &= not (line.is_inside and line.braces and text == "'")
            if self._shell == "zsh" and kind == "text" and not line.is_inside and not line.braces:
                text = text.translate(_EXTENDED)
            if text == "{" and self._shell == "zsh":  # bash expands the braces first
                line.end_name()
            line.add("${" if kind == "brace" else text, is_quoted=line.is_inside and kind == "text" and text != "$")

    def _skip_comment(self, command: str, start: int, at: int, line: _Line) -> int:
        if line.braces or line.sums:  # there it is not one
            self.is_sure = False
            line.add(command[start:at])
            return at
        end = command.find("\n", start)
        return len(command) if end < 0 else end

    def _take_backticks(self, command: str, at: int, line: _Line) -> int:
        found = _BACKTICKED.match(command, at)
        end = found.end() if found else at
        self.is_sure &= end < len(command)
        body = re.sub(r'\\([`$\\"])' if line.is_inside else r"\\([`$\\])", r"\1", command[at:end])
        inner = line.open("$")
        if len(body) <= LONGEST_PRINTED and "`" not in body:
            reader = _Reader(len(body) * READS, self._shell)
            reader._cut(inner, body, "script")
            if inner.prints_otherwise(has_escapes=self._has_escapes):
                self._others |= {"sh", "zsh"}
            line.close(inner)
            inner.found.clear()
            inner.inner.clear()
        self._waiting.append((inner, body, "script", False))
        return end + 1

    def _announce(self, command: str, at: int, line: _Line) -> int:
        found = None if line.sums else _DELIMITER.match(command, at)
        if found is None:
            self.is_sure = False
            return at
        line.end_word()
        word = found[2].replace("\\\n", "")
        is_quoted = any(char in word for char in "'\"\\")
        delimiter = re.sub(r"\$(?=['\"])|['\"\\]", "", word)
        self._documents.append(_Document(delimiter, is_quoted, bool(found[1]), line, len(line.found)))
        return found.end()

    def _take_documents(self, command: str, at: int, line: _Line, *, is_message: bool) -> int:
        """Parse the here-documents that begin at a line: as what they may be fed to a shell as, and as text."""
        for document in self._documents:
            self.is_sure &= document.line is line
            start, logical = at, ""
            end = len(command)
            while at < len(command):
                began = at
                stop = command.find("\n", at)
                text = command[at : stop if stop >= 0 else len(command)]
                at = stop + 1 if stop >= 0 else len(command)
                is_continued = not document.is_quoted and (len(text) - len(text.rstrip("\\"))) % 2 == 1
                if logical or not is_continued:
                    whole = logical + text
                    if (whole.lstrip("\t") if document.has_tabs else whole).removesuffix("\r") == document.delimiter:
                        end = began
                        break
                logical = (logical + text[:-1])[: len(document.delimiter) + 1] if is_continued else ""
            body = command[start:end]
            is_kept = False
            if not is_message and document.number < len(document.line.found):
                fed = document.line.found[document.number]
                document.line.found[document.number] = msgspec.structs.replace(fed, fed=(*fed.fed, body))
                if is_kept := _is_kept(fed.words):
                    self._kept.append(body)
            is_script = not is_message and not is_kept
            for mode in (*(("script",) if is_script else ()), *(() if document.is_quoted else ("text",))):
                line.inner.append(_Line(self._shell, is_extended=self._is_extended))
                self._waiting.append((line.inner[-1], body, mode, True))
        self._documents = []
        return at


def unescaped(text: str) -> str:
    """Decode what is between $' and '."""
    return _ANSI_ESCAPE.sub(_unescaped, text).partition("\0")[0]


def _unescaped(found: re.Match[str]) -> str:
    two, four, eight, octal, control, letter = found.groups()
    if control:
        return chr(ord(control.upper()) & 0x1F)
    if letter:
        return _ANSI_LETTERS.get(letter, letter if letter in "\\'\"?" else found[0])
    code = int(octal, 8) & 0xFF if octal else int(two or four or eight, 16)
    return chr(code) if code <= sys.maxunicode and code not in substitutions.NO_TEXT else "?"


def _literal(text: str, line: _Line) -> str:
    """Return a quoted text; in ${…}, where it may be a pattern, what would be special in one has a backslash."""
    return _SPECIAL.sub(r"\\\g<0>", text) if line.braces else text


def _opening(command: str, at: int, line: _Line) -> str:
    """Return what makes a parenthesis an array or an extended glob; empty if nothing does."""
    before = command[at - 1 : at]
    if before and before in "=@?+*!" and not line.is_between_words and not line.is_inside:
        return before
    return "(" if line.takes_pattern(command[at + 1 : at + 1 + LONGEST_NAME]) else ""


def _alternatives(word: str) -> list[str]:
    """Expand {a,b} and {a..c}; if that would be too many, only what each alternative alone would make."""
    found, open_, seen = [], [word], {word}
    while open_:
        each = open_.pop()
        inner = next((match for match in _INNERMOST.finditer(each) if _choices(match[1])), None)
        if inner is None:
            found.append(each)
        else:
            made = [each[: inner.start()] + choice + each[inner.end() :] for choice in reversed(_choices(inner[1]))]
            open_ += [one for one in dict.fromkeys(made) if one not in seen]
            seen.update(made)
        if len(found) + len(open_) > MOST_ALTERNATIVES or len(word) * (len(found) + len(open_)) > FREE:
            return _single_choices(word)
    return found


def _single_choices(word: str) -> list[str]:
    """Expand one brace after the other, while the others are empty if they may be, else unknown."""
    found = {_INNERMOST.sub(UNKNOWN, word): None}
    open_, left = [word], MOST_ALTERNATIVES
    while open_:
        each = open_.pop()
        groups = [(match, _choices(match[1])) for match in _INNERMOST.finditer(each)]
        groups = [(match, choices) for match, choices in groups if choices]
        left -= sum(len(choices) for _, choices in groups)
        if left < 0:  # then each alone, without what surrounds it
            found |= dict.fromkeys(choice for _, choices in groups for choice in choices)
            continue
        for chosen, choices in groups:
            for choice in choices:
                made, at = "", 0
                for group, others in groups:
                    made += each[at : group.start()]
                    made += choice if group is chosen else "" if "" in others else UNKNOWN
                    at = group.end()
                made += each[at:]
                if any(_choices(match[1]) for match in _INNERMOST.finditer(made)):
                    open_.append(made)
                else:
                    found[made] = None
    return list(found)


def _choices(body: str) -> list[str]:
    if "," in body:
        return body.split(",")
    ends = _RANGE.fullmatch(body)
    if ends is None:
        return []
    is_number = not ends[1].isalpha() and not ends[2].isalpha()
    if not is_number and not (ends[1].isalpha() and ends[2].isalpha()):
        return []
    first, last = (int(ends[1]), int(ends[2])) if is_number else (ord(ends[1]), ord(ends[2]))
    if abs(last - first) > LONGEST_RANGE:
        return [UNKNOWN]
    by = max(1, int(ends[3] or 1))
    codes = range(first, last + 1, by) if last >= first else range(first, last - 1, -by)
    has_zeros = any(re.match(r"-?0\d", end) for end in ends.groups()[:2])
    width = max(map(len, ends.groups()[:2])) if has_zeros else 0
    return [f"{code:0{width}d}" if is_number else chr(code) for code in codes]


def path_words(command: str) -> list[str]:
    """Return the words after the first that look like paths, up to a glob."""
    return [_before_glob(word) for word in _split(command)[1:] if is_path(word)]


def is_path(word: str) -> bool:
    """Return whether a word looks like a path."""
    return "/" in word or "\\" in word or word.startswith(PATH_STARTS) or any(char in word for char in GLOBS)


def _split(command: str) -> list[str]:
    """Split at blanks outside quotes, and remove the quotes; a backslash has no meaning here, as in the original."""
    return [_QUOTED.sub(r"\1\2", word) if "'" in word or '"' in word else word for word in _WORD.findall(command)]


def _before_glob(word: str) -> str:
    first = min((at for char in GLOBS if (at := word.find(char)) >= 0), default=-1)
    if first < 0:
        return word
    folder, slash, _ = word[:first].rpartition("/")
    return folder or slash or "."
