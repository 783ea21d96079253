"""The chat's first frame against a bare Textual application, and how long keys take while an answer streams in.

In a real terminal, tmux: a frame counts when the terminal has it. Without tmux or Textual there are no rows.
"""

import os
import shutil
import statistics
import subprocess
import sys
import time
from typing import Self

from bench.measure import Plan, Row

AIM_FRAME = 1.2
AIM_KEY = 1.0  # of the 50 ms in which a key is to be painted
KEY_MS = 50.0
LOOK_S = 0.002
LONGEST_S = 60.0
PAUSE_S = 0.1  # between two keys
LETTERS = "αβγδεζηθικλμνξοπρστυφχψωΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩ"  # none of them is in the answer
BARE = """
from textual.app import App
from textual.widgets import Static, TextArea
class Bare(App):
    def compose(self):
        yield Static("first frame")
        yield TextArea()
Bare().run()
"""
STREAMING = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from anyplug.agent import conversation_events as said
from anyplug.frontends.chat.chat_app import ChatApp
from scripted_conversation import ANSWER, ScriptedConversation, ScriptedWorkspace
class Streaming(ScriptedConversation):
    async def send(self, text):
        self.say(said.UserMessage(text=text), said.TurnStarted(turn=1))
        whole = (ANSWER + "\\n\\n") * (100_000 // len(ANSWER) + 1)
        for at in range(0, 100_000, 40):
            self.say(said.TextDelta(turn=1, text=whole[at:at + 40]))
            await asyncio.sleep(0.004)
        self.say(said.AssistantMessage(turn=1, text=whole[:100_000]), said.TurnEnded(turn=1, stop="end"))
ChatApp(ScriptedWorkspace(Streaming())).run()
"""


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure the first frame, and keys."""
    if shutil.which("tmux") is None:
        return []
    home = os.path.join(folder, "chat-home")
    os.makedirs(home, exist_ok=True)
    anyplug = os.path.join(os.path.dirname(sys.executable), "anyplug")
    bare, chat = [], []
    for _ in range(max(5, plan.starts // 4)):  # in turns
        bare.append(_first_frame(folder, home, "first frame", sys.executable, "-c", BARE))
        chat.append(_first_frame(folder, home, "anyplug", anyplug, "chat"))
    tests = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests")
    idle = _keys(_Window(folder, home, sys.executable, "-c", BARE), "first frame")
    streaming = _keys(_Window(folder, home, sys.executable, "-c", STREAMING, tests), "Try one of these", "go", "Enter")
    key = "a key painted while 100 KB stream, p95"
    return [
        Row(
            what="anyplug chat, first frame",
            against="Textual, 2 widgets",
            measured=statistics.median(chat),
            baseline=statistics.median(bare),
            aim=AIM_FRAME,
        ),
        Row(what=key, against="50 ms", measured=streaming, baseline=KEY_MS, aim=AIM_KEY),
        Row(what=key, against="Textual, 2 widgets, idle", measured=streaming, baseline=idle),
    ]


class _Window:
    """A program in a window of a tmux server of its own."""

    def __init__(self, folder: str, home: str, *argv: str) -> None:
        self._socket = os.path.join(folder, f"tmux-{time.monotonic_ns()}")
        env = {**os.environ, "ANYPLUG_HOME": home, "TERM": "xterm-256color"}
        env.pop("TMUX", None)
        self._env = env
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", "100", "-y", "30", *argv)

    def tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *words], env=self._env, capture_output=True, text=True, check=True
        )
        return done.stdout

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", "t")

    def until(self, text: str) -> None:
        deadline = time.monotonic() + LONGEST_S
        while text not in self.screen:
            assert time.monotonic() < deadline, self.screen
            time.sleep(LOOK_S)

    def watched(self) -> "_Watched":
        command = ["tmux", "-S", self._socket, "-C", "attach-session", "-t", "t"]
        return _Watched(subprocess.Popen(command, env=self._env, stdin=subprocess.PIPE, stdout=subprocess.PIPE))

    def close(self) -> None:
        pid = int(self.tmux("display-message", "-p", "-t", "t", "#{pane_pid}"))
        self.tmux("kill-server")
        while os.path.exists(f"/proc/{pid}"):  # what it has started ends with it
            time.sleep(LOOK_S)


class _Watched:
    """The same window in tmux's control mode: keys in, and what the program prints out, without other processes."""

    def __init__(self, client: "subprocess.Popen[bytes]") -> None:
        self._client = client
        assert client.stdin is not None
        assert client.stdout is not None
        self._keys, self._printed = client.stdin, client.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.kill()
        self._client.wait()
        self._keys.close()
        self._printed.close()

    def press(self, letter: str) -> float:
        """Press a key; return the ms until the program has printed it."""
        begun = time.perf_counter()
        self._keys.write(f"send-keys -t t -l {letter}\n".encode())
        self._keys.flush()
        while letter.encode() not in self._printed.readline():
            pass
        return (time.perf_counter() - begun) * 1000


def _first_frame(folder: str, home: str, text: str, *argv: str) -> float:
    """Return the ms until the terminal shows a program's first frame."""
    begun = time.perf_counter()
    window = _Window(folder, home, *argv)
    try:
        window.until(text)
        return (time.perf_counter() - begun) * 1000
    finally:
        window.close()


def _keys(window: _Window, ready: str, *first: str) -> float:
    """Return the 95th percentile of the ms from a key to its letter among what the program prints."""
    try:
        window.until(ready)
        with window.watched() as watched:
            if first:
                window.tmux("send-keys", "-t", "t", *first)
                window.until("working")
            taken = []
            for letter in LETTERS:
                taken.append(watched.press(letter))
                time.sleep(PAUSE_S)
            assert not first or "working" in window.screen, "the answer ended before the keys did"
        return statistics.quantiles(taken, n=20)[-1]
    finally:
        window.close()
