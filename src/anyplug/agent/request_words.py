"""Split a plain request into words and values that are recognised by their form. Pure."""

import json
import re
from typing import Any

import msgspec

URL = re.compile(r"\b(?:https?|ftp|file)://[^\s\"'<>]+[^\s\"'<>.,;:!?)]")
DOMAIN = re.compile(
    r"\b(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|app|edu|gov|info|test|example)\b(?:/[^\s\"'<>,;]*)?", re.IGNORECASE
)
EMAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
PATH = re.compile(r"(?<![\w/])(?:~|\.{1,2})?/(?:[\w.@+-]+/?)+|\b[\w-]+(?:/[\w.-]+)+|\b[\w-]+\.[A-Za-z]\w{0,4}\b(?!\()")
PHONE = re.compile(r"(?<!\w)\+\d(?:[ ()-]?\d){6,14}(?!\w)")
QUOTED = re.compile(r"\"([^\"]*)\"|“([^”]*)”|`([^`]*)`|(?<!\w)'([^']*)'(?!\w)")
PAIR = re.compile(r"(?<![\w.])([A-Za-z_][\w.-]*)(?:=|\s=\s)(\"[^\"]*\"|'[^']*'|\[[^\]]*\]|\{[^}]*\}|[^\s]+)")
NUMBER = re.compile(r"(?<![\w.#-])(?:(-?\d+(?:,\d{3})*(?:\.\d+)?)(?![\w-]|\.\d)|(\d+)(?:st|nd|rd|th)\b)", re.IGNORECASE)
DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?Z?)?\b")
TIME = re.compile(r"\b\d{1,2}:\d{2}(?::\d{2})?\b")
SQL = re.compile(
    r"\b(?:select\s.+?\sfrom|insert\s+into|update\s+\w+\s+set|delete\s+from|create\s+table|drop\s+table)\s\S.*",
    re.IGNORECASE | re.DOTALL,
)
PROGRAMS = (  # that people name when they want a shell command run
    "ls cat pwd echo git grep rg find head tail wc sort uniq sed awk diff du df ps date whoami uname env which tree "
    "mkdir touch cp mv rm chmod tar make python python3 pip uv pytest node npm npx go cargo gcc sh bash curl wget"
)
COMMAND = re.compile(
    r"^\W*(?:please\s+)?(?:run|execute)\s+(?:the\s+)?(?:(?:shell\s+)?command\s+(?P<any>\S.*)|"
    rf"(?:in\s+(?:the\s+)?shell:?\s+)?(?P<known>(?:{'|'.join(PROGRAMS.split())})(?:\s.*)?)$)"
    rf"|^\W*(?P<told>(?:{'|'.join(PROGRAMS.split())})\s.*?)\s+in\s+(?:the|a)\s+(?:shell|terminal)\W*$"
    r"|^\W*(?P<bare>(?:ls|pwd|whoami|uname|cat|grep|echo)\b.*)$",
    re.IGNORECASE | re.DOTALL,
)
HERE = re.compile(
    r"\b(?:(?:in|of|from)\s+)?(?:here|(?:this|(?:the\s+|my\s+)?(?:current|working))\s+(?:folder|directory|dir|project))\b",
    re.IGNORECASE,
)
COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b")
WORD = re.compile(r"[^\W_]+(?:'[a-z]+)?")
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

STOP = frozenset(
    [
        "a",
        "an",
        "the",
        "my",
        "your",
        "me",
        "i",
        "you",
        "we",
        "us",
        "it",
        "its",
        "this",
        "that",
        "these",
        "those",
        "is",
        "are",
        "was",
        "be",
        "been",
        "am",
        "do",
        "does",
        "did",
        "can",
        "could",
        "would",
        "should",
        "will",
        "please",
        "of",
        "in",
        "on",
        "at",
        "to",
        "for",
        "from",
        "with",
        "by",
        "as",
        "and",
        "or",
        "not",
        "into",
        "onto",
        "about",
        "some",
        "any",
        "all",
        "now",
        "just",
        "here",
        "there",
        "what",
        "which",
        "who",
        "how",
        "s",
        "t",
        "let",
        "want",
        "like",
        "need",
        "give",
        "got",
        "has",
        "have",
        "tool",
        "plugin",
        "using",
        "use",
        "call",
        "run",
        "thing",
    ]
)
# Words that people use for each other when they ask a program for something; the first of each stands for all.
ACTIONS = (
    "add create new insert save keep store append put make remember write",
    "remove delete erase drop clear discard forget rm",
    "list show display view print see enumerate tell",
    "get fetch read retrieve lookup load",
    "find search look locate grep query",
    "count number many tally",
    "change edit update modify alter",
    "convert turn transform",
    "send post submit",
    "compute calculate evaluate calc",
    "begin start launch set",
    "stop end halt",
    "complete finish done tick check",
)
THINGS = (
    "mail email",
    "picture image photo",
    "folder directory dir",
    "summary summarize summarise",
    "distance far",
    "event appointment meeting",
    "definition define mean",
    "price cost",
)
SAME = {word: group.split()[0] for group in (*ACTIONS, *THINGS) for word in group.split()}
VERBS = frozenset(word for group in ACTIONS for word in group.split())


# By the form of a value: what parameters of that form are called.
FORMS = {
    "url": ("url", "link", "uri", "website", "site", "webpage", "address", "host", "hostname", "domain"),
    "email": ("email", "recipient", "mail", "to"),
    "phone": ("phone", "telephone", "mobile", "tel", "recipient", "to"),
    "path": ("path", "file", "filename", "directory", "folder", "dir"),
    "date": ("date", "day", "deadline", "due", "when", "since", "until", "start", "end", "from", "to"),
    "time": ("time", "when", "at"),
    "colour": ("color", "colour", "hex"),
    "expression": ("expression", "formula", "calculation"),
    "sql": ("sql", "query", "statement"),
    "command": ("command", "cmd"),
}
EXPRESSION = re.compile(r"[-(]*\d[\d\s.+*/%^()eE-]*[+*/%^-]\s*[\d(][\d\s.+*/%^()-]*")


class Value(msgspec.Struct, frozen=True):
    """A value that is recognised by its form, and where it is."""

    kind: str  # sql, command, url, email, phone, path, quoted, number, date, time, colour
    text: str
    begin: int
    end: int


ENDINGS = (("ies", "y"), ("ing", ""), ("ied", "y"), ("ed", ""), ("es", ""), ("s", ""), ("er", ""))
SHORTEST = 3  # letters of a word without its ending


def stem(word: str) -> str:
    """Return a word without its usual endings."""
    word = word.lower().removesuffix("'s")
    for ending, put in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= SHORTEST and not word.endswith("ss"):
            bare = word.removesuffix(ending) + put
            if len(bare) > SHORTEST and bare[-1] == bare[-2] and bare[-1] not in "lsz":
                bare = bare[:-1]
            word = bare
            break
    return word[:-1] if word.endswith("e") and len(word) > SHORTEST else word


MEANINGS = {stem(word): stem(first) for word, first in SAME.items()}
VERB_STEMS = frozenset(map(stem, VERBS))
UNDOING = frozenset(map(stem, ("remove", "stop")))  # nobody says one of these for another verb
LOOKING = frozenset(map(stem, ("list", "get", "find", "count", "compute")))  # people say one for the other


def meaning(stemmed: str) -> str:
    """Return what a stem stands for."""
    return MEANINGS.get(stemmed, stemmed)


def words(text: str) -> list[str]:
    """Return the stems of a text's words, also of parts of names."""
    return [stem(found) for found in WORD.findall(CAMEL.sub(" ", text))]


def telling(text: str) -> list[str]:
    """Return the stems of those words that say something."""
    plain = (found for found in WORD.findall(CAMEL.sub(" ", text)))
    return [stem(word) for word in plain if word.lower() not in STOP]


def values(text: str) -> list[Value]:
    """Find the values of a request, none inside another."""
    found: list[Value] = []

    def take(kind: str, pattern: re.Pattern[str]) -> None:
        for match in pattern.finditer(text):
            if not any(value.begin < match.end() and match.start() < value.end for value in found):
                inner = next((group for group in match.groups() if group is not None), match[0])
                found.append(Value(kind, unquoted(inner) if kind == "command" else inner, match.start(), match.end()))

    for kind, pattern in (
        ("sql", SQL),
        ("command", COMMAND),
        ("quoted", QUOTED),
        ("url", URL),
        ("email", EMAIL),
        ("url", DOMAIN),
        ("phone", PHONE),
        ("date", DATE),
        ("time", TIME),
        ("colour", COLOUR),
        ("path", PATH),
        ("number", NUMBER),
    ):
        take(kind, pattern)
    if not any(value.kind in {"path", "command"} for value in found):
        found += [Value("path", ".", here.start(), here.end()) for here in HERE.finditer(text)]
    return sorted(found, key=lambda value: value.begin)


def pairs(text: str) -> tuple[dict[str, str], str]:
    """Return what is written `key=value`, and the text without it."""
    given = {match[1]: unquoted(match[2]) for match in PAIR.finditer(text) if "://" not in match[1]}
    return given, PAIR.sub(" ", text) if given else text


def json_object(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return a JSON object in a text, and the text without it."""
    begin, end = text.find("{"), text.rfind("}")
    if 0 <= begin < end:
        try:
            read = json.loads(text[begin : end + 1])
        except ValueError:
            return None, text
        if isinstance(read, dict):
            return read, f"{text[:begin]} {text[end + 1 :]}"
    return None, text


def unquoted(text: str) -> str:
    """Remove the quotes around a text."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'`" else text
