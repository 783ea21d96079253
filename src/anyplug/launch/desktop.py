"""The desktop's clipboard and notifications, for plugins that were granted them.

The kernel knows neither, and the programs that reach them also reach everything else of the desktop. So a plugin finds
programs of ours under the usual names (`xclip`, `wl-copy`, `pbcopy`, `notify-send`, ...) in its PATH. Each leaves its
request in a folder that the plugin can write, and rings a bell: a pipe that only this process listens to. We read the
request as any file of a plugin, run the machine's own program for it, and write the answer to the folder.

    ID.args   the program's name and its arguments, each ended by a NUL        ID.in    its stdin
    ID.out    the answer: stdout      ID.err    stderr     ID.code    the exit code, written last
"""

import contextlib
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from anyplug.home import untrusted_files
from anyplug.model.late_patterns import late
from anyplug.model.untrusted_text import for_people

CLIPBOARD, NOTIFICATIONS = "clipboard", "notifications"
READERS, WRITERS = ("pbpaste", "wl-paste"), ("pbcopy", "wl-copy")
BOTH = ("xclip", "xsel")  # which of the two, the options say
NOTIFIERS = ("notify-send", "terminal-notifier", "osascript")
NAMES = {CLIPBOARD: (*READERS, *WRITERS, *BOTH), NOTIFICATIONS: NOTIFIERS}
VARIABLE = "ANYPLUG_CLIPBOARD"  # tells our stand-in for Electron that the clipboard is there

PREFIX = "desktop-"  # of the folders below
LARGEST_TEXT = 1 << 20  # bytes of a clipboard
LONGEST_TITLE, LONGEST_BODY = 200, 2_000  # characters of a notification
MOST_SHOWN, MINUTE_S = 20, 60.0  # notifications of one plugin, and in how long
BREATH_S = 0.01  # between reads of the bell: a plugin that rings all the time must not keep the host busy
PROGRAM_S = 5.0  # for the machine's program
LINE = 4096  # bytes that a pipe takes at once
ID = late(r"[A-Za-z0-9_.]{1,40}")
BY_SCRIPT = late(r'display notification "((?:[^"\\]|\\.)*)"(?: with title "((?:[^"\\]|\\.)*)")?')
WITH_VALUE = frozenset(  # options of `notify-send` that take the next word
    {"-u", "-t", "-a", "-i", "-c", "-h", "-r", "-A", "-n",
     "--urgency", "--expire-time", "--app-name", "--icon", "--category", "--hint", "--replace-id", "--action"}
)  # fmt: skip

# Waits for at most 10 s, in steps of a twentieth.
SCRIPT = """#!/bin/sh
# Written by anyplug: it asks the host, which was granted to do this for the plugin.
desk={folder}
name=${{0##*/}}
mine=$(mktemp "$desk/XXXXXXXXXX") || exit 1
trap 'rm -f "$mine" "$mine".*' EXIT
reads=yes
case $name in pbpaste|wl-paste|notify-send|terminal-notifier|osascript) reads= ;; esac
[ "$name" = wl-copy ] && [ $# -gt 0 ] && reads=
for word; do case $word in -o*|--output|-c|--clear) reads= ;; esac; done
[ -n "$reads" ] && cat > "$mine.in"
printf '%s\\0' "$name" "$@" > "$mine.args"
printf '%s\\n' "${{mine##*/}}" > "$desk/bell"
tries=0
until [ -e "$mine.code" ]; do
  tries=$((tries + 1))
  [ $tries -gt 200 ] && {{ echo "$name: the host does not answer" >&2; exit 1; }}
  sleep 0.05
done
cat "$mine.out"
cat "$mine.err" >&2
read -r code < "$mine.code"
exit "$code"
"""


class Ways(NamedTuple):
    """The programs that can do something, best first."""

    what: str
    tries: list[tuple[str, ...]]
    cure: str


Find = Callable[[Mapping[str, str], tuple[str, ...]], Ways]


class Refused(Exception):
    """A request that cannot be carried out. Tells why."""


class Desktops:
    """The desks of all plugins. `close` when done."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        """`variables` are the user's: the desktop is found through them."""
        self._variables = variables
        self._desks: dict[str, Desk] = {}
        self._lock = threading.Lock()

    def environment(self, plugin: str, folder: str, granted: Sequence[str], path: str) -> dict[str, str]:
        """Return the variables through which a plugin finds what it was granted; `folder` is one that it can write.

        Raises OSError.
        """
        kinds = [kind for kind in NAMES if kind in granted]
        with self._lock:
            desk = self._desks.get(folder)
            if desk is None and kinds:
                desk = self._desks[folder] = Desk(plugin, folder, self._variables)
        if desk is None:
            return {}
        desk.serve(kinds)  # also none: what was granted before must not be answered any more
        if not kinds:
            return {}
        return {"PATH": f"{desk.programs}:{path}", **({VARIABLE: desk.programs} if CLIPBOARD in kinds else {})}

    def close(self) -> None:
        """Stop answering."""
        for desk in self._desks.values():
            desk.close()


class Desk:
    """Answers the requests of one plugin, in a thread."""

    def __init__(self, plugin: str, folder: str, variables: Mapping[str, str]) -> None:
        self._plugin = plugin
        self._variables = variables
        self._kinds: tuple[str, ...] = ()
        self._is_closing = False
        self._shown: list[float] = []  # when the last notifications were
        _tidy(folder)
        name = f"{PREFIX}{os.getpid()}-{os.urandom(4).hex()}"  # several hosts may run the same plugin
        self._folder = os.path.join(folder, name)
        self.programs = os.path.join(self._folder, "bin")
        # By descriptors, because the plugin could put links in place of these folders at any moment.
        with untrusted_files.hold(folder) as around:
            os.mkdir(name, 0o700, dir_fd=around.fd)
            self._held = around.folder(name)
        os.mkdir("bin", 0o700, dir_fd=self._held.fd)
        self._bin = self._held.folder("bin")
        os.mkfifo("bell", 0o600, dir_fd=self._held.fd)
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC  # also to write, so that it never ends
        self._bell = os.open("bell", flags, dir_fd=self._held.fd)
        self._thread = threading.Thread(target=self._listen, name=f"desktop of {plugin}", daemon=True)
        self._thread.start()

    def serve(self, kinds: Sequence[str]) -> None:
        """Offer the programs of these permissions, and answer no others; raises OSError."""
        self._kinds = tuple(kinds)
        wanted = {name for kind in kinds for name in NAMES[kind]}
        for name in {name for names in NAMES.values() for name in names} - wanted:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._bin.fd)
        for name in wanted:
            with contextlib.suppress(FileExistsError), os.fdopen(self._bin.create(name, 0o755), "wb") as file:
                file.write(SCRIPT.format(folder=shlex.quote(self._folder)).encode())

    def close(self) -> None:
        """Stop answering, and remove what was left."""
        self._is_closing = True
        os.set_blocking(self._bell, False)
        with contextlib.suppress(BlockingIOError):  # if it is full, nobody waits for it
            os.write(self._bell, b"\n")
        self._thread.join(PROGRAM_S)
        if not self._thread.is_alive():
            os.close(self._bell)
            self._bin.close()
            self._held.close()
        with contextlib.suppress(OSError):
            untrusted_files.remove(self._folder)

    def _listen(self) -> None:
        rest = b""
        while not self._is_closing:
            try:
                rest += os.read(self._bell, LINE)
            except BlockingIOError:
                return
            *lines, rest = rest.split(b"\n")
            rest = rest[-LINE:]
            time.sleep(BREATH_S)
            for line in lines:
                name = line.decode(errors="replace")
                if ID.fullmatch(name) and not self._is_closing:
                    with contextlib.suppress(OSError):  # it took its own request away
                        self._answer(name)

    def _answer(self, name: str) -> None:
        words = self._held.read(f"{name}.args", LARGEST_TEXT).decode(errors="replace").split("\0")[:-1]
        try:
            given = self._held.read(f"{name}.in", LARGEST_TEXT)
        except FileNotFoundError:
            given = b""
        except untrusted_files.TooMuch as error:
            return self._leave(name, b"", f"the text is too large: {error.strerror}")
        try:
            self._leave(name, self._done(words, given), "")
        except Refused as why:
            self._leave(name, b"", str(why))

    def _leave(self, name: str, out: bytes, why: str) -> None:
        said = f"anyplug: {why}\n" if why else ""
        for suffix, data in (("out", out), ("err", said.encode()), ("code.new", b"1\n" if why else b"0\n")):
            with os.fdopen(self._held.create(f"{name}.{suffix}"), "wb") as file:
                file.write(data)
        os.rename(f"{name}.code.new", f"{name}.code", src_dir_fd=self._held.fd, dst_dir_fd=self._held.fd)

    def _done(self, words: list[str], given: bytes) -> bytes:
        """Do what a request asks for; return what it prints. Raises Refused."""
        asked = next((kind for kind in self._kinds if words and words[0] in NAMES[kind]), "")
        if not asked:
            raise Refused("that was not granted")
        program, *options = words
        if asked == NOTIFICATIONS:
            title, body = _notification(program, options)
            self._count_notification()
            lines = "\n".join(for_people(line, LONGEST_BODY) for line in body[:LONGEST_BODY].splitlines())
            return self._run(_notifier, (for_people(f"{self._plugin}: {title}", LONGEST_TITLE), _plain(lines)), b"")
        if program in READERS or any(word.startswith("-o") or word == "--output" for word in options):
            return self._run(_reader, (), b"")
        if program == "wl-copy" and (texts := [word for word in options if not word.startswith("-")]):
            given = " ".join(texts).encode()
        return self._run(_writer, (), given)

    def _count_notification(self) -> None:
        """Raise Refused if the plugin showed many in the last minute."""
        now = time.monotonic()
        self._shown = [at for at in self._shown if now - at < MINUTE_S]
        if len(self._shown) >= MOST_SHOWN:
            raise Refused(f"it showed {MOST_SHOWN} notifications in the last minute; try again later")
        self._shown.append(now)

    def _run(self, find: Find, texts: tuple[str, ...], given: bytes) -> bytes:
        import shutil  # with three compressors; few plugins use the desktop

        search_path = self._variables.get("PATH", os.defpath)
        found = find(self._variables, texts)
        usable = [words for words in found.tries if shutil.which(words[0], path=search_path)]
        if not usable:
            raise Refused(f"this machine has no program for {found.what}; install {found.cure}")
        why = ""
        for words in usable:
            program = shutil.which(words[0], path=search_path) or words[0]
            try:
                done = subprocess.run(
                    [program, *words[1:]],
                    input=given,
                    # `xclip` stays behind to serve what was copied, and would hold a pipe open.
                    stdout=subprocess.PIPE if find is _reader else subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=dict(self._variables),
                    timeout=PROGRAM_S,
                    check=False,
                    start_new_session=True,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                why = f"{words[0]} failed: {error}"
                continue
            if done.returncode == 0:
                return (done.stdout or b"")[:LARGEST_TEXT]
            why = f"{words[0]} failed with exit code {done.returncode}; is a desktop running?"
        raise Refused(why)


def _tidy(folder: str) -> None:
    """Remove what killed hosts left in a plugin's folder."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            pid = entry.name.removeprefix(PREFIX).partition("-")[0]
            if entry.name.startswith(PREFIX) and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                with contextlib.suppress(OSError):
                    untrusted_files.remove(entry.path)


def _ordered(
    variables: Mapping[str, str], wayland: tuple[str, ...], others: list[tuple[str, ...]]
) -> list[tuple[str, ...]]:
    return [wayland, *others] if variables.get("WAYLAND_DISPLAY") else [*others, wayland]


def _reader(variables: Mapping[str, str], _: tuple[str, ...]) -> Ways:
    x = [("xclip", "-selection", "clipboard", "-out"), ("xsel", "--clipboard", "--output"), ("pbpaste",)]
    return Ways("the clipboard", _ordered(variables, ("wl-paste", "--no-newline"), x), "xclip, xsel or wl-clipboard")


def _writer(variables: Mapping[str, str], _: tuple[str, ...]) -> Ways:
    x = [("xclip", "-selection", "clipboard"), ("xsel", "--clipboard", "--input"), ("pbcopy",)]
    return Ways("the clipboard", _ordered(variables, ("wl-copy",), x), "xclip, xsel or wl-clipboard")


def _notifier(_: Mapping[str, str], texts: tuple[str, ...]) -> Ways:
    title, body = texts
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in (body, title)]
    script = 'display notification "{}" with title "{}"'.format(*quoted)
    tries = [("notify-send", "--app-name", "anyplug", "--", title, body), ("osascript", "-e", script)]
    return Ways("notifications", tries, "libnotify (notify-send)")


def _notification(program: str, options: list[str]) -> tuple[str, str]:
    """Return the title and the text of a notification; raises Refused."""
    if program == "osascript":
        found = BY_SCRIPT.search(" ".join(options))
        if found is None:
            raise Refused('osascript can only run: display notification "TEXT" with title "TITLE"')
        body, title = (re.sub(r"\\(.)", r"\1", text or "") for text in found.groups())
        return title, body
    if program == "terminal-notifier":
        named = dict(zip(options[::2], options[1::2], strict=False))
        return named.get("-title", ""), named.get("-message", "")
    texts: list[str] = []
    words = iter(options)
    for word in words:
        if word == "--":
            texts += words
        elif word in WITH_VALUE:
            next(words, "")
        elif not word.startswith("-"):
            texts.append(word)
    if not texts:
        raise Refused("notify-send needs a text: notify-send TITLE [TEXT]")
    return texts[0], "\n".join(texts[1:])


def _plain(text: str) -> str:
    """Escape what desktops read as markup, such as links and pictures from elsewhere."""
    return text.replace("&", "&amp;").replace("<", "&lt;") if "<" in text else text


def permission_for(name: str) -> str:
    """Return the permission that makes a program of this name available; empty if there is none."""
    return next((kind for kind, names in NAMES.items() if name in names), "")
