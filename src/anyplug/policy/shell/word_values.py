"""The values that words of a shell command may have: variables, loops, arrays, arguments, what `read` reads.

Every value that a line can assign to a variable counts, in whatever order it runs. A value that does not follow from
the line is UNKNOWN; one that the line makes in a way that is not computed here is MADE (see `substitutions`). Values
are patterns: texts with these marks and with globs.
"""

import itertools
import os
import re
from collections.abc import Iterable, Sequence
from typing import Final

from anyplug.model.late_patterns import late
from anyplug.policy.shell import reading_time, substitutions, zsh_values
from anyplug.policy.shell.substitutions import MADE, UNKNOWN
from anyplug.policy.shell.syntax import ELEMENT, PREFIXES, SHELLS, Simple, unescaped

ASSIGNMENT: Final = late(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?(\+?)=")
ASSIGNING: Final = frozenset({"export", "declare", "local", "readonly", "typeset", "hash"})  # `hash -d`, of zsh
KEYWORDS: Final = frozenset({"do", "then", "else", "elif", "if", "while", "until", "!", "{", "time"})
LOOPS: Final = frozenset({"for", "while", "until", "select"})
DECLARING: Final = frozenset({"declare", "local", "typeset"})
ENDING: Final = frozenset({"fi", "done", "esac", "}"})  # of blocks
OPENING: Final = LOOPS | {"if", "case", "{"}
COUNTING: Final = frozenset({"let", "getopts", "wait", "coproc", "unset"})  # set variables to what is not computed
CHANGING: Final = frozenset({"_", "OPTARG", "BASH_REMATCH", "RANDOM", "OLDPWD", "DIRSTACK"})  # shells set them
KEYS: Final = "["  # behind the name of an array, stands for its keys
READING: Final = frozenset({"read", "mapfile", "readarray"})
TELLING: Final = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "VIRTUAL_ENV")  # whose values count
TELLING_NAME: Final = late(r"ANYPLUG|CUPCAKE", re.IGNORECASE)  # of a variable that leads to our files
NAMES: Final = (
    ".cupcake", "cupcake", "anyplug", ".opencode", "opencode", ".claude", ".codex", ".local", ".config", "rulebook",
)  # fmt: skip
SHELL_NAMES: Final = frozenset({"SHELL", "BASH"})  # variables that name a shell
ARGUMENTS: Final = "@"  # stands for all arguments of a script or a function
PASSES: Final = 3  # over the line: a variable may be set further down, in a loop or by the caller of a function
MOST_VALUES: Final = 512  # of one word
MOST_IN_ALL: Final = 8_192  # words that a line expands to through its variables
MOST_PIECES: Final = 64  # of a word with too many values; nobody writes more in good faith
MOST_OVERFLOWS: Final = 32  # words of a line with too many values, before the worst is assumed
LONGEST_VALUE: Final = 1024  # characters
ATTRIBUTES: Final = frozenset("lucnAagrxtfFpI")  # of variables: what these make of values is computed
LONGEST_MATCHED: Final = 128  # characters of a value that a pattern with `*` is compared with
MOST_STARS: Final = 2  # in a pattern: each multiplies the time that it takes
DEEPEST: Final = 6  # levels of ${a:-${b}}
MAPFILE: Final = "mapfile"  # of zsh: has the content of files, by their names
_REFERENCE: Final = late(r"\$([~=^]*)(?:(\{)|([A-Za-z_]\w*)|([0-9@*#?$!-])|\[[^\]]*\])")
_BRACED: Final = late(r"(!?)(\w+|[@*?$!-])(\[[^\]]*\])?([\s\S]*)")
_FLAGS: Final = late(r"(\([^()]*\))?[~=^]*")  # of zsh, as in ${(j::)name}
_HOME: Final = late(r"~([A-Za-z_]\w*)(/.*)?", re.DOTALL)  # zsh takes variables for it, too
_NAMELESS: Final = late(r":?[-=]([\s\S]*)")  # zsh: ${:-value}
_DEFAULTING: Final = late(r":?([-=+?])([\s\S]*)")
_OFFSET: Final = r"\s*\(?\s*(-?(?:0|[1-9]\d*))?\s*\)?\s*"
_SLICE: Final = late(rf":{_OFFSET}(?::{_OFFSET})?")
_USED: Final = late(rf"\$\{{?{substitutions.SPLIT}?[!#]?([A-Za-z_]\w*)")
_GLUED: Final = late(r"[^/]")  # beside a variable, a part of the same name
_SET: Final = late(r"\[([!^]?)(\]?[^\]\[:.=\\]*)\]")  # of a pattern
_QUOTED: Final = late(r"\\([*?\[\\/])")
_READ_OPTION: Final = late(r"-[ersu]*([nNd])(.*)", re.DOTALL)
_SLASH: Final = late(r"(?<!\\)/")
_ESCAPED: Final = r"\\\1"
_NAMES: Final = late(r"[A-Za-z_]\w*")
_KEY: Final = late(r"\[[^\]]*\]=")
_PIECE: Final = late(r"[\w.]+")
_LITERALS: Final = late(rf"[^{UNKNOWN}{MADE}*?\[\]${{}}/]+")


class Values:
    """The values of the variables of a line."""

    def __init__(self, commands: Sequence[Simple]) -> None:
        self._known: dict[str, dict[str, None]] = {}
        self._before: dict[str, dict[str, None]] = {}
        self._left = MOST_IN_ALL
        self._overflows = 0
        self._read: list[str] = []  # what `read` may read
        self._attributes: dict[str, set[str]] = {}  # letters of `declare -l` and the like
        self._maybe_unset = _maybe_unset(commands)  # names of variables
        lines = [one.marked or one.words for one in commands]
        self._has_loop = any(word in LOOPS for words in lines for word in words[:2])
        functions = {words[0] for words in lines if len(words) == 1 and "=" not in words[0]}
        functions |= {word for words in lines if words[:1] == ("function",) for word in words[1:2]}
        self._functions = functions - KEYWORDS
        setting = [one for one, words in zip(commands, lines, strict=True) if self._may_set(words)]
        for _ in range(PASSES if setting else 0):
            self._before, self._known = self._known, {}
            self._left = MOST_IN_ALL
            self._read = self._readable(commands)
            for one in setting:
                self._take(one)
        self._left = MOST_IN_ALL

    def words(self, word: str) -> list[str]:
        """Return what a word may become, split at blanks in its values."""
        if "$" not in word and word[:1] != "~":
            return [word]
        made = self.of(word)
        if ASSIGNMENT.match(word):
            return made
        return list(dict.fromkeys(part for one in made for part in (self._split(one) or [one])))

    def first_words(self, word: str) -> list[list[str]]:
        """Return what the first word of a command may become: each value is a program with its own words."""
        if ("$" not in word and word[:1] != "~") or ASSIGNMENT.match(word):
            return [[one] for one in self.words(word)]
        return [self._split(one) or [one] for one in self.of(word)]

    def _split(self, value: str) -> list[str]:
        """Split a value at blanks, and at what the line sets IFS to."""
        marks = "".join(self._known.get("IFS", ()))
        return value.translate(dict.fromkeys(map(ord, marks), " ")).split()

    def of(self, word: str, depth: int = DEEPEST) -> list[str]:
        """Return the values that a word may have."""
        if "$" not in word and word[:1] != "~":
            return [word]
        if found := _HOME.fullmatch(word):
            behind = self.of(found[2] or "", depth)
            named = self._value(found[1]) if self._is_assigned(found[1]) else []
            return [word, *(value + one for value in named for one in behind)]
        pieces = self._pieces(word, depth)
        count = 1
        for piece in pieces:
            count *= len(piece)
        self._left -= count if count > 1 else 0
        if count > MOST_VALUES or self._left < 0:
            self._overflows += 1
            if self._overflows > MOST_OVERFLOWS:
                return [MADE]
            values = dict.fromkeys(value for piece in itertools.islice(pieces, MOST_PIECES) for value in piece)
            fragments = [text for value in values for text in _LITERALS.findall(value)]
            unknown = MADE if len(pieces) > MOST_PIECES or is_composable(fragments) else UNKNOWN
            pieces = [piece if len(piece) == 1 else [unknown] for piece in pieces]
        return list(dict.fromkeys(map("".join, itertools.product(*pieces))))

    def printed(self, commands: Iterable[Simple]) -> list[str]:
        """Return the texts that a line prints or feeds to its commands."""
        found: list[str] = []
        last: list[str] = []  # what the previous command prints
        for one in commands:
            words = one.marked or one.words
            fed = [value for text in one.fed for value in self.of(text)]
            last = fed or last
            found += [value for text in one.fed for value in self.of(text)]
            start = next((at for at, word in enumerate(words) if word not in KEYWORDS | PREFIXES), len(words))
            name = words[start].rpartition("/")[2] if start < len(words) else ""
            if name in substitutions.PRINTING:
                texts = [substitutions.printed(words[start:], shell).rstrip("\n") for shell in substitutions.SHELLS]
                last = [value for text in dict.fromkeys(texts) for value in self.of(text)]
            elif last and one.before.strip() == "|" and name in substitutions.PASSING | substitutions.TRANSFORMING:
                pieces = [piece for text in last for piece in _PIECE.findall(text)]
                made = [substitutions.transformed(name, words[start:], text) for text in last]
                if name in substitutions.CUTTING and not is_composable(pieces):
                    made = [UNKNOWN]
                is_passing = name in substitutions.PASSING  # perhaps parts, and in another order
                last = [*last, *(text for text in made if text not in {UNKNOWN, MADE})] if is_passing else made
            elif not (last and name in substitutions.PASSING):
                last = []
            found += last
        return list(dict.fromkeys(found))

    def _may_set(self, words: Sequence[str]) -> bool:
        return any(
            ASSIGNMENT.match(word) or word in LOOPS or word in READING or word in SHELLS or word in COUNTING
            for word in (word.rpartition("/")[2] if "=" not in word else word for word in words)
        ) or any(word in {"printf", "set"} or word in self._functions or "${" in word for word in words)

    def _readable(self, commands: Sequence[Simple]) -> list[str]:
        if not any(word in READING for one in commands for word in one.words):
            return []
        texts = self.printed(commands)
        parts = [part for text in texts for part in (text, *text.split(), *re.split(r"[^\w.]+", text))]
        return [*filter(None, parts), UNKNOWN]

    def _take(self, simple: Simple) -> None:  # noqa: C901 - one branch for each way to set something
        """Record what a command sets."""
        words = list(simple.marked or simple.words)
        while words and (words[0] in KEYWORDS or (words[0] in PREFIXES and words[0] != "env")):
            words.pop(0)
        name = words[0].rpartition("/")[2] if words else ""
        is_setting = name in ASSIGNING
        flags = {letter for word in words[1:] if name in DECLARING and word[:1] == "-" for letter in word[1:]}
        for word in words[1:] if flags else ():
            if found := _NAMES.match(word):
                self._attributes.setdefault(found[0], set()).update(flags)
        for word in words:
            if "${" in word and "=" in word:
                self.of(word)  # ${a:=b} sets it, too
        started: dict[str, list[str]] = {}  # the values before the command, which several words may be alternatives of
        for at, word in enumerate(words):
            found = ASSIGNMENT.match(word)
            if found is not None:
                key, has_key, _ = word[len(found[1]) :].partition("]")
                self._note(found[1] + KEYS, [key[1:]] if has_key and key.startswith("[") else [])
                unset = [""] if found[1] in self._maybe_unset else []
                earlier = started.setdefault(found[1], [*self._known.get(found[1], ("",)), *unset])
                self._assign(found[1], word[found.end() :], earlier if found[2] else None)
            elif not (is_setting and (at == 0 or word.startswith("-"))):
                words = words if is_setting else words[at:]
                break
        name = words[0].rpartition("/")[2] if words else ""
        if name in {"for", "select"} and words[2:3] == ["in"]:
            self._note(words[1], [value for word in words[3:] for value in self.words(word)])
        elif name in {"for", "select"} and len(words) > 1:
            self._note(words[1], self._value(ARGUMENTS))
        elif name in READING:
            for variable in ("REPLY", "MAPFILE", *(word for word in words[1:] if word.isidentifier())):
                self._note(variable, [*self._limited(words), *self._read])
        elif name == "printf" and words[1:2] == ["-v"]:
            for variable in self.of("".join(words[2:3])):
                self._note(variable.partition("[")[0], self.of(substitutions.printed(words)))
        elif name in COUNTING:
            for variable in (found for word in words[1:] for found in _NAMES.findall(word)):
                self._note(variable, [UNKNOWN])
        elif name == "set" or name in self._functions or name in SHELLS:
            given = [value for word in words[1:] for value in self.words(word)]
            self._note(ARGUMENTS, given)

    def _limited(self, words: Sequence[str]) -> list[str]:
        """Return what `read -n COUNT` and `read -d END` may read."""
        found: list[str] = []
        for at, word in enumerate(words):
            if option := _READ_OPTION.fullmatch(word):
                given = option[2] or "".join(words[at + 1 : at + 2])
                if option[1] == "d":
                    found += [part for text in self._read for part in text.split(given[:1] or UNKNOWN)]
                elif given.isdecimal():
                    found += [text[: int(given)] for text in self._read]
        return found

    def _assign(self, name: str, text: str, earlier: list[str] | None) -> None:
        """Record a value; with `earlier`, it is added to these or to the present ones."""
        elements = text.split(ELEMENT)
        if len(elements) > 1:  # for an array, with all of them joined
            keys = [found[0][1:-2] for one in elements if (found := _KEY.match(one))]
            self._note(name + KEYS, keys or (elements[1:] if "A" in self._attributes.get(name, ()) else ()))
            values = [value for one in elements[1:] for value in self.of(_KEY.sub("", one, count=1))]
            self._note(name, [*values, "".join(values), " ".join(values)])
        elif earlier is None:
            self._note(name, self.of(text))
        elif self._has_loop:
            fragments = [*self._known.get(name, ()), *self.of(text)]
            self._note(name, [*fragments, MADE if is_composable(fragments) else UNKNOWN])
        else:
            before, more = list(dict.fromkeys((*earlier, *self._known.get(name, ())))), self.of(text)
            self._left -= len(before) * len(more)
            made = map("".join, itertools.product(before, more)) if self._left >= 0 else iter((MADE,))
            self._note(name, itertools.islice(made, MOST_VALUES))

    def _note(self, name: str, values: Iterable[str]) -> None:
        known = self._known.setdefault(name, {})
        if len(known) > MOST_VALUES:
            return
        if letters := self._attributes.get(name):
            values = list(values)
            if "n" in letters:  # what it refers to is set, too
                for target in [one.partition("[")[0] for one in known if _NAMES.match(one)]:
                    if target != name and target not in self._attributes:
                        self._note(target, values)
            values = [*values, *(_attributed(value, letters) for value in values)]
        for value in values:
            if len(known) >= MOST_VALUES:
                known[MADE if is_composable([*known, value]) else UNKNOWN] = None
                return
            known[value if len(value) <= LONGEST_VALUE else UNKNOWN] = None

    def _is_assigned(self, name: str) -> bool:
        return name in self._known or name in self._before

    def _value(self, name: str) -> list[str]:
        """Return the values of a variable."""
        if name.isdigit() or name in {"*", "@"}:
            given = [*self._known.get(ARGUMENTS, ()), *self._before.get(ARGUMENTS, ())]
            if name == "0" and not given:  # for `sh -c TEXT NAME` it is the name
                return ["bash"]
            return [*dict.fromkeys(given), *([" ".join(given)] if not name.isdigit() and given else ()), UNKNOWN]
        found = [*self._known.get(name, ()), *self._before.get(name, ())]
        if "n" in self._attributes.get(name, ()):
            targets = [one.partition("[")[0] for one in found]
            found += [value for one in targets if one not in self._attributes for value in self._value(one)]
        if found:
            return list(dict.fromkeys((*found, UNKNOWN) if name in CHANGING else found))
        if name == "PWD":
            return ["$PWD"]
        if TELLING_NAME.search(name):
            return [MADE]
        if name in SHELL_NAMES:
            return ["bash"]
        if name == "IFS":
            return [" "]
        if name in TELLING and (value := os.path.expanduser("~") if name == "HOME" else os.environ.get(name, "")):
            return [value]
        return [UNKNOWN]

    def _pieces(self, word: str, depth: int) -> list[list[str]]:
        """Split a word into its parts, each with the values that it may have."""
        pieces: list[list[str]] = []
        at = 0
        while found := _REFERENCE.search(word, at):
            pieces.append([word[at : found.start()]])
            at = found.end()
            name = found[3] or found[4] or ""
            if not found[2]:
                pieces.append(self._value(name) if name else [UNKNOWN])
                if found[1] and not self._is_assigned(name):
                    pieces[-1] = [found[0], *pieces[-1]]  # more likely a text in another language
                elif "~" in found[1]:
                    pieces[-1] = list(
                        dict.fromkeys(one for value in pieces[-1] for one in (value, zsh_values.globbed(value)))
                    )
                elif found[3] and depth > 0 and (end := zsh_values.suffix(word, at)) > at:
                    pieces[-1] = self._suffixed(name, word[at:end], depth - 1)
                    at = end
            else:
                end = _closing(word, at)
                if end < 0:
                    return [*pieces, [UNKNOWN]]
                name = word[at:end]
                pieces.append(self._braced(name, depth - 1))
                at = end + 1
                if "[@]" in name and (pieces[-2] != [""] or word[at:]):
                    pieces[-1] = [*pieces[-1], UNKNOWN]  # each element is a word
            used = _USED.match(word, found.start())
            text = word[found.start() : at]
            is_glued = _GLUED.search(word[max(found.start() - 1, 0) : found.start()] + word[at : at + 1])
            may_miss = "[" in text and not text.endswith(("[@]}", "[*]}"))  # an element, if there is none
            may_miss |= bool(used and used[1] in self._maybe_unset and self._is_assigned(used[1]))
            if is_glued and may_miss:
                pieces[-1] = list(dict.fromkeys((*pieces[-1], "")))
        return [*pieces, [word[at:]]]

    def _suffixed(self, name: str, suffix: str, depth: int) -> list[str]:
        """Return the values of `$name[1,4]:h`: as bash reads it, with the suffix as it stands, and as zsh does."""
        as_text = [value + one for value in self._value(name) for one in self.of(suffix, depth)]
        key, modifiers = zsh_values.parted(suffix)
        values = self._at(name, key, depth) if key else self._value(name)
        return list(dict.fromkeys((*as_text[:MOST_VALUES], *zsh_values.changed(values, modifiers))))

    def _at(self, name: str, key: str, depth: int) -> list[str]:
        """Return the values of an element, or in zsh of some characters."""
        keys = self.of(key, depth)
        values = self._value(name)
        if name == MAPFILE and not self._is_assigned(name):
            return [*values, *keys]
        if len(keys) * len(values) > MOST_VALUES:
            return [MADE]
        found = [*values, *(zsh_values.sliced(value, one) for value in values for one in keys)]
        words = (text for value in values for text in (f" {value}", f"{value} "))  # of several, the first and the last
        return list(dict.fromkeys((*found, *(words if "," in key else ()))))

    def _braced(self, text: str, depth: int) -> list[str]:  # noqa: C901 - one branch for each form
        """Return the values of a ${…} expression."""
        if text.startswith(substitutions.SPLIT):
            values = self._braced(text[1:], depth)
            split = ["".join(one.split()) for one in values if one and one.split() != [one]]
            return list(dict.fromkeys((*values, *split, *([UNKNOWN] if split else ()))))
        flags = _FLAGS.match(text)
        bare = text[flags.end() :] if flags else text
        if flags and flags[1] and depth > 0:
            return self._flagged(flags[1], bare, depth)
        if flags and "~" in flags[0]:
            return [one for value in self._braced(bare, depth) for one in (value, zsh_values.globbed(value))]
        if bare.startswith("${") and depth > 0 and (end := _closing(bare, 2)) > 0:
            return self._changed(self._braced(bare[2:end], depth - 1), bare[end + 1 :], depth)
        if depth > 0 and (found := _NAMELESS.fullmatch(bare)):
            return [one for value in self.of(found[1], depth) for one in (value, zsh_values.globbed(value))]
        found = _BRACED.fullmatch(bare)
        if found is None or depth <= 0:
            return [UNKNOWN]
        indirect, name, subscript, operation = found.groups()
        if name == "PWD" and not operation:
            return ["$PWD"]
        is_list = name in {"@", "*"} or subscript in {"[@]", "[*]"}
        values = self._value(name)
        if indirect and is_list:
            values = [*self._known.get(name + KEYS, ()), *self._before.get(name + KEYS, ()), UNKNOWN]
        elif indirect:
            values = [value for one in values for value in self._value(one.partition("[")[0])]
        if subscript == "[*]" and "IFS" in self._known:
            values = [*values, UNKNOWN]
        elif subscript and not is_list:
            values = self._at(name, subscript[1:-1], depth - 1)
        if not operation:
            return values
        if found := _DEFAULTING.fullmatch(operation):
            other = self.of(_QUOTED.sub(r"\1", found[2]), depth)
            if found[1] == "=":
                self._note(name, other)
            if found[1] in "+?":
                return [*other, ""] if found[1] == "+" else values
            is_unset = values == [UNKNOWN] and not self._is_assigned(name)
            return list(dict.fromkeys([*(() if is_unset and any(other) else values), *filter(None, other)])) or [""]
        if (end := zsh_values.suffix(operation, 0)) and end == len(operation) and not self._is_assigned(operation[1:2]):
            modifiers = zsh_values.parted(operation)[1]
            return list(dict.fromkeys((*values, *zsh_values.changed(values, modifiers))))
        made = self._changed(values, operation, depth)
        return list(dict.fromkeys([*values, *made, UNKNOWN] if is_list else made))

    def _changed(self, values: list[str], operation: str, depth: int) -> list[str]:
        """Return what an operation makes of values."""
        if not operation:
            return values
        if (found := zsh_values.parted(operation)) and zsh_values.suffix(operation, 0) == len(operation):
            parts = [zsh_values.sliced(value, found[0]) for value in values] if found[0] else []
            return list(dict.fromkeys(zsh_values.changed([*values, *parts], found[1])))
        given = self.of(operation, depth)
        if len(given) * len(values) > MOST_VALUES:
            return [MADE]
        return list(dict.fromkeys(text for value in values for one in given for text in _operated(value, one)))

    def _flagged(self, flags: str, text: str, depth: int) -> list[str]:
        """Return the values of `${(FLAGS)…}` in zsh."""
        values = self._braced(text, depth)
        if "P" in flags:
            values = [*values, *(value for one in values for value in self._value(one) if one.isidentifier())]
        if "e" in flags:
            values = [value for one in values for value in self.of(one, depth)]
        values = [made for value in values for made in (value, *zsh_values.in_cases(value, flags))]
        fragments = " ".join(values).split()
        is_split = "s::" in flags  # into characters
        is_made = not set(flags).isdisjoint("jsoOF") or ":-" in text
        is_made = is_made and is_composable([*fragments, *("".join(fragments) if is_split else ())])
        is_made |= "%" in flags and any("%" in value for value in values)  # as in a prompt
        return [*dict.fromkeys(values), *([MADE] if is_made else ())]


def is_composable(fragments: Iterable[str]) -> bool:
    """Return whether a protected name can be composed from texts."""
    texts = {text.casefold() for text in fragments if text}
    for name in NAMES:
        reached = {0}
        for at in range(len(name)):
            if at in reached:
                reached |= {at + len(text) for text in texts if name.startswith(text, at)}
        if len(name) in reached:
            return True
    return False


def _closing(word: str, at: int) -> int:
    """Return where the brace opened before a position ends; -1 if it does not."""
    depth = 1
    for found in re.compile(r"\$\{|\}").finditer(word, at):
        depth += 1 if found[0] == "${" else -1
        if not depth:
            return found.start()
    return -1


def _maybe_unset(commands: Sequence[Simple]) -> set[str]:
    """Return the variables that may not be set yet where they are used."""
    found: set[str] = set()
    is_set: set[str] = set()
    depth = 0  # of blocks, which may or may not run
    for one in commands:
        words = one.marked or one.words
        found |= {name for word in words if "$" in word for name in _USED.findall(word)} - is_set
        depth += sum(word in OPENING for word in words[:2]) - sum(word in ENDING for word in words[:1])
        start = int(words[:1] != () and words[0] in ASSIGNING)
        found |= {match[1] for word in words if (match := ASSIGNMENT.match(word)) and match[2]} - is_set
        assigned = [ASSIGNMENT.match(word) for word in words[start:] if not (start and word.startswith("-"))]
        if words[:1] == ("for",):
            is_set.update(words[1:2])
        elif words[:1] == ("unset",):
            is_set.difference_update(words)
        elif depth <= 0 and len(one.scope) == 1 and one.before.strip() in {"", ";"} and all(assigned):
            is_set.update(match[1] for match in assigned if match)
    return found


def _attributed(value: str, letters: set[str]) -> str:
    """Return what becomes of a value by the attributes of its variable."""
    if any(mark in value for mark in (UNKNOWN, MADE, "$")) or not value.isascii():
        return UNKNOWN
    if "i" in letters:
        return value if value.isdecimal() else UNKNOWN
    if letters - ATTRIBUTES:
        return MADE
    changes = {"l": str.lower, "u": str.upper, "c": str.capitalize}
    return next((change(value) for letter, change in changes.items() if letter in letters), value)


def _operated(value: str, operation: str) -> list[str]:  # noqa: C901 - one branch for each operation
    """Return the results of a parameter operation on a value; what is not listed here is MADE."""
    if MADE in value or MADE in operation:
        return [MADE]
    if UNKNOWN in value or "$" in value:
        return [UNKNOWN]
    if operation.startswith(substitutions.FORMATTING):
        given = operation.removeprefix(substitutions.FORMATTING)
        return [substitutions.formatted(value, given.split(substitutions.BETWEEN))]
    if operation == substitutions.DECODING:
        return list(dict.fromkeys(substitutions.echoed(value, shell) for shell in substitutions.SHELLS[1:]))
    if UNKNOWN in operation:
        return [MADE if operation[0] == ":" else UNKNOWN]
    reading_time.check()
    if len(value) > LONGEST_VALUE or len(operation) > LONGEST_VALUE:
        return [MADE]
    if "*" in operation and len(value) > LONGEST_MATCHED:
        return [MADE]
    if found := _SLICE.fullmatch(operation):
        return [_sliced(value, int(found[1] or 0), operation.count(":") > 1, int(found[2] or 0))]
    if operation in {",,", "@L", "^^", "@U", ",", "^", "@u"}:
        first, rest = (value[:1], value[1:]) if operation in {",", "^", "@u"} else (value, "")
        return [(first.lower() if operation[-1] in ",L" else first.upper()) + rest] if value.isascii() else [MADE]
    if operation == "@E":
        return [unescaped(value)]
    if operation == "@Q":
        return ["'" + value.replace("'", r"'\''") + "'"]
    if operation == "@P" and "\\" not in value and "`" not in value:
        return [value]
    if operation.startswith("/"):
        return _replaced(value, operation[1:])
    if operation[:1] in {"#", "%"}:
        return _cut(value, operation)
    return [MADE]


def _sliced(value: str, offset: int, has_length: bool, length: int) -> str:
    start = offset if offset >= 0 else offset + len(value)
    end = len(value) if not has_length else start + length if length >= 0 else len(value) + length
    return value[start : max(end, start)] if start >= 0 else ""


def _regex(pattern: str) -> "re.Pattern[str] | None":
    """Translate the pattern of a parameter operation; None if it is not computed."""
    made, at = "", 0
    if pattern.count("*") > MOST_STARS or any(mark in pattern for mark in "({"):
        return None
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "\\":
            made += re.escape(pattern[at : at + 1])
            at += 1
        elif char in "*?":
            made += ".*" if char == "*" else "."
        elif char == "[":
            found = _SET.match(pattern, at - 1)
            if found is None:
                return None
            made += f"[{'^' if found[1] else ''}{re.sub(r'([]^&~|])', _ESCAPED, found[2])}]"
            at = found.end()
        else:
            made += re.escape(char)
    try:
        return re.compile(made, re.DOTALL)
    except re.error:
        return None


def _replaced(value: str, operation: str) -> list[str]:
    is_every = operation.startswith("/")
    body = operation.removeprefix("/")
    cut = _SLASH.search(body)
    pattern, new = (body[: cut.start()], body[cut.end() :]) if cut else (body, "")
    found = _regex(pattern)
    if found is None or found.fullmatch("") or (pattern[0] in "#%" and not is_every):
        return [MADE]
    new = _QUOTED.sub(r"\1", new)
    count = 0 if is_every else 1
    plain = found.sub(lambda _: new, value, count=count)
    return [plain, found.sub(lambda match: new.replace("&", match[0]), value, count=count)]  # before bash 5.2, and now


def _cut(value: str, operation: str) -> list[str]:
    """Remove a prefix (#) or a suffix (%): the shortest match, or the longest if the mark is doubled."""
    mark, is_longest = operation[0], operation[:2] == operation[0] * 2
    found = _regex(operation[1 + is_longest :])
    if found is None:
        return [MADE]
    lengths = range(len(value), -1, -1) if is_longest else range(len(value) + 1)
    for length in lengths:
        end = len(value) - length
        if found.fullmatch(value[:length] if mark == "#" else value[end:]):
            return [value[length:] if mark == "#" else value[:end]]
    return [value]
