"""A long run of a real daemon with agents attached, while faults are injected: `make soak`.

    python tests/soak/soak.py --minutes 10 --seed 1

It checks that every call ends in exactly one answer, its own, and in exactly one audit record; that nothing is left at
the end: no process, file, descriptor or thread; that memory does not grow; that nothing keeps the event loop; and that
the audit chain verifies. It prints what was tried and what was violated, and exits with 1 if anything was.
"""

import argparse
import json
import os
import queue
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from typing import Any

sys.path[:0] = [os.path.dirname(os.path.dirname(os.path.abspath(__file__))), os.path.dirname(__file__)]

import processes
import soak_plugins
from anyplug.audit.audit_log import digest_of
from anyplug.runtime.processes.guard import TOKEN_VARIABLE

AGENTS = 4
AT_ONCE = 6  # calls of each agent
FAULT_S = 1.5  # between two faults
MISBEHAVING = 0.04  # share of calls that ask the plugin for a fault
ANSWER_S = 90.0  # without an answer by then, a call has none
WARM_S = 60.0  # after which memory is first measured
GROWTH = 1.10
SLACK = 20 << 20  # bytes that an allocator keeps back after the largest message, which has 16 MiB
PROGRAM = [sys.executable, "-P", "-m", "anyplug"]
ANSWERS = {
    "unavailable", "overloaded", "not_approved", "crashed", "timed_out", "cancelled", "denied", "not_found",
    "too_large", "bad_output", "tool_error", "not_executable", "store_failed", "disabled",
}  # fmt: skip
LOST = -32000  # the daemon ended while the call ran; whether it is recorded is known only to the audit


class Soak:
    """One run."""

    def __init__(self, seconds: float, seed: int) -> None:
        self.random = random.Random(seed)
        self.until = time.monotonic() + seconds
        self.seconds = seconds
        self.root = tempfile.mkdtemp(prefix="soak-")
        self.home = os.path.join(self.root, "home")
        self.project = os.path.join(self.root, "project")
        self.token = f"soak-{os.getpid()}-{seed}"
        user = os.path.join(self.root, "user")
        for folder in (self.home, self.project, user):
            os.makedirs(folder)
        self.environment = {
            **os.environ, "ANYPLUG_HOME": self.home, "HOME": user, "CI": "1", TOKEN_VARIABLE: self.token,
            "ANYPLUG_WATCHDOG_MS": "100", "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        }  # fmt: skip
        self.tried: Counter[str] = Counter()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.violations: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.sent: dict[str, bool] = {}  # the digests of arguments, and whether the call's end is known
        self.lock = threading.Lock()
        self.memory: list[int] = []
        self.descriptors: list[int] = []
        self.threads: list[int] = []
        self.pid = 0

    def violated(self, what: str, example: str = "") -> None:
        with self.lock:
            self.violations[what] += 1
            self.examples.setdefault(what, example[:600])

    def command(self, *words: str) -> str:
        """Run a command; commands may fail while a fault lasts."""
        done = subprocess.run(
            [*PROGRAM, *words], capture_output=True, env=self.environment, cwd=self.project, timeout=120, check=False
        )
        if b"Traceback" in done.stderr:
            self.violated("a command ended with a traceback", done.stderr.decode(errors="replace")[-600:])
        return done.stdout.decode(errors="replace")

    def status(self) -> dict[str, Any]:
        try:
            said: dict[str, Any] = json.loads(self.command("status", "--json") or "{}")
        except ValueError:
            return {}
        return said

    def run(self) -> int:
        try:
            self.prepare()
            agents = [Agent(self, number) for number in range(AGENTS)]
            injector = threading.Thread(target=self.inject)
            for thread in (*agents, injector):
                thread.start()
            for thread in (*agents, injector):
                thread.join()
            self.check()
        finally:
            for pid in processes.carrying(self.token):
                _try(os.kill, pid, signal.SIGKILL)
            shutil.rmtree(self.root, ignore_errors=True)
        self.report()
        return 1 if self.violations else 0

    def prepare(self) -> None:
        with open(os.path.join(self.home, "settings.toml"), "w", encoding="utf-8") as file:
            file.write(soak_plugins.SETTINGS)
        for path in soak_plugins.write(os.path.join(self.root, "sources")).values():
            said = self.command("install", path, "--yes", "--always")
            assert "is approved" in said, said
        self.command("serve", "--detach", "--http", "127.0.0.1:0")
        self.pid = self.status()["pid"]

    # Faults

    def inject(self) -> None:
        """Inject faults at a fixed rate, each kind as often as any other. The host is killed only in the first half."""
        kinds = [self.kill, self.stop, self.edit, self.revoke, self.reload, self.policy, self.full_disk, self.few_files,
                 self.lock_database]  # fmt: skip
        begun, next_kill = time.monotonic(), time.monotonic() + self.seconds / 8
        measured = 0.0
        while time.monotonic() < self.until - 5:
            time.sleep(FAULT_S)
            if time.monotonic() > next_kill and time.monotonic() - begun < self.seconds / 2:
                next_kill = time.monotonic() + max(15.0, self.seconds / 8)
                self.kill_host()
                measured = time.monotonic()
                continue
            fault = self.random.choice(kinds)
            fault()
            self.tried[fault.__name__.replace("_", " ")] += 1
            if time.monotonic() - max(measured, begun) > WARM_S:
                self.measure()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        if pid := self._signal(signal.SIGSTOP):
            time.sleep(1)
            _try(os.kill, pid, signal.SIGCONT)

    def _signal(self, number: int) -> int:
        """Send a signal to a long-running plugin."""
        name = self.random.choice(soak_plugins.STAYING)
        words = {"zot": "run.py", "mcp": "server.py", "workbench": "workbench"}[name]
        found = [pid for pid, command in processes.carrying(self.token).items() if words in command and pid != self.pid]
        if not found:
            return 0
        pid = self.random.choice(found)
        _try(os.kill, pid, number)
        return pid

    def edit(self) -> None:
        name = self.random.choice(list(soak_plugins.TOOLS))
        folder = os.path.join(self.home, "plugins", name)
        file = next(file for file in ("run", "run.py", "server.py", "index.js", "act/run")
                    if os.path.isfile(os.path.join(folder, file)))  # fmt: skip
        with open(os.path.join(folder, file), "a", encoding="utf-8") as text:
            text.write("\n")
        time.sleep(0.3)
        self.command("approve", name, "--yes", "--always")

    def revoke(self) -> None:
        name = self.random.choice(list(soak_plugins.TOOLS))
        self.command("revoke", name)
        self.command("approve", name, "--yes", "--always")

    def reload(self) -> None:
        self.command("reload")

    def policy(self) -> None:
        folder = os.path.join(self.project, ".cupcake", "policies", "opencode")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "soak.rego")
        rule = (
            'package cupcake.policies.opencode.soak\nimport rego.v1\ndeny contains {"rule_id": "S", "reason": "soak", '
        )
        rule += '"severity": "HIGH"} if input.tool_input.text == "never"\n'
        with open(path, "w", encoding="utf-8") as file:
            file.write(rule)
        time.sleep(0.5)
        shutil.rmtree(os.path.join(self.project, ".cupcake"))

    def full_disk(self) -> None:
        """Let the daemon write to no file for a second: as with a full disk, each write fails."""
        self._limit(resource.RLIMIT_FSIZE, 0)

    def few_files(self) -> None:
        self._limit(resource.RLIMIT_NOFILE, 16)

    def _limit(self, which: int, soft: int) -> None:
        pid = self.pid
        try:
            before = resource.prlimit(pid, which)
            resource.prlimit(pid, which, (soft, before[1]))
        except OSError:
            return
        time.sleep(0.7)
        _try(resource.prlimit, pid, which, before)

    def lock_database(self) -> None:
        import sqlite3
        from contextlib import closing

        with closing(sqlite3.connect(os.path.join(self.home, "anyplug.db"), timeout=1)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
                time.sleep(1)
                other.execute("ROLLBACK")
            except sqlite3.Error:
                pass

    def kill_host(self) -> None:
        before = self.status()
        _try(os.kill, self.pid, signal.SIGKILL)
        self.tried["kill host"] += 1
        end = time.monotonic() + 60
        while time.monotonic() < end:
            now = self.status()
            if now.get("up") and now["pid"] != self.pid:
                self.pid = now["pid"]
                if now["url"] != before.get("url"):
                    self.violated("a killed host did not come back with its address", f"{before} {now}")
                self.memory, self.descriptors, self.threads = [], [], []
                return
            time.sleep(0.2)
        self.violated("no host came back after one was killed")

    def measure(self) -> None:
        """Note what the daemon uses."""
        try:
            with open(f"/proc/{self.pid}/statm", encoding="ascii") as file:
                self.memory.append(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
            self.descriptors.append(len(os.listdir(f"/proc/{self.pid}/fd")))
            self.threads.append(len(os.listdir(f"/proc/{self.pid}/task")))
        except OSError:
            pass

    # Checks

    def check(self) -> None:
        time.sleep(3)
        if len(self.memory) >= 8:
            quarter = len(self.memory) // 4
            first, last = (sorted(part)[len(part) // 2] for part in (self.memory[:quarter], self.memory[-quarter:]))
            self.tried[f"memory: {first >> 20} MiB after a minute, {last >> 20} MiB at the end"] += 1
            if last > first * GROWTH + SLACK:
                self.violated("memory grew by more than a tenth", f"{self.memory}")
        self._check_records()
        self.command("stop")
        left = {}
        if not processes.until(lambda: not processes.carrying(self.token)):
            left = processes.carrying(self.token)
            self.violated("processes are left", str(left))
        for folder in ("scratch", "journal", "run"):
            path = os.path.join(self.home, folder)
            names = [name for name in (os.listdir(path) if os.path.isdir(path) else []) if name != "lock"]
            if names:
                self.violated(f"files are left in {folder}", str(names))
        if "chain is intact" not in (said := self.command("audit", "--verify")):
            self.violated("the audit chain does not verify", said)
        log = os.path.join(self.home, "logs", "resident.log")
        with open(log, encoding="utf-8", errors="replace") as file:
            text = file.read()
        for stall in text.split("[watchdog] ")[1:]:
            self.violated("something kept the event loop for 100 ms", stall)
        if "Traceback" in text:
            self.violated("the daemon logged a traceback", text[text.index("Traceback") :])

    def _check_records(self) -> None:
        """Compare the audit with the calls that were sent."""
        self.command("audit", "--verify")  # commits what waits
        try:
            records = json.loads(self.command("audit", "--kind", "call", "--json"))
        except ValueError:
            self.violated("the audit cannot be read")
            return
        seen = Counter(record["arguments"] for record in records)
        self.tried["records"] = len(records)
        for digest, is_known in self.sent.items():
            if seen[digest] > 1:
                self.violated("a call has more than one record", digest)
            elif is_known and not seen[digest]:
                self.violated("a call has no record", digest)

    def report(self) -> None:
        print(f"\nsoak: {self.seconds / 60:.1f} minutes, {AGENTS} agents, {len(self.sent)} calls\n")
        print("| tried | how often |\n|---|---|")
        for what, count in sorted(self.tried.items()):
            print(f"| {what} | {count} |")
        print("\n| format | outcome | calls |\n|---|---|---|")
        for (format, outcome), count in sorted(self.outcomes.items()):
            print(f"| {format} | {outcome} | {count} |")
        print("\n| violated | how often | first |\n|---|---|---|")
        for what, count in sorted(self.violations.items()):
            print(f"| {what} | {count} | {self.examples[what]!r} |")
        if not self.violations:
            print("| nothing | | |")


class Agent(threading.Thread):
    """An agent: a client of `anyplug mcp --resident` that calls tools, some at a time."""

    def __init__(self, soak: Soak, number: int) -> None:
        super().__init__(name=f"agent-{number}")
        self.soak = soak
        self.number = number
        self.random = random.Random(number)
        self.waiting: dict[int, tuple[str, str, float]] = {}
        self.answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.answered: set[int] = set()

    def run(self) -> None:
        process = subprocess.Popen(
            [*PROGRAM, "mcp", "--resident"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=self.soak.environment, cwd=self.soak.project,
        )  # fmt: skip
        assert process.stdin is not None
        reader = threading.Thread(target=self._read, args=(process.stdout,))
        reader.start()
        try:
            self._talk(process.stdin)
        except OSError as error:
            self.soak.violated("an agent's connection ended", str(error))
        finally:
            process.stdin.close()
            process.wait()
            reader.join()

    def _read(self, lines: Any) -> None:
        for line in lines:
            self.answers.put(json.loads(line))
        self.answers.put(None)

    def _talk(self, out: Any) -> None:
        def send(**message: Any) -> None:
            out.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            out.flush()

        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": self.name, "version": "1"}}
        send(id=0, method="initialize", params=hello)
        while (first := self.answers.get()) is not None and first.get("id") != 0:
            pass
        send(method="notifications/initialized")
        number = 0
        while time.monotonic() < self.soak.until or self.waiting:
            while len(self.waiting) < AT_ONCE and time.monotonic() < self.soak.until:
                number += 1
                format = self.random.choice(list(soak_plugins.TOOLS))
                kind = "fine"
                if self.random.random() < MISBEHAVING:
                    kind = self.random.choice(["hang", "exit", "flood", "garbage"])
                    self.soak.tried[f"call that should {kind}"] += 1
                text = f"{kind}-{self.number}-{number}-{self.random.getrandbits(64):x}"
                with self.soak.lock:
                    self.soak.sent[digest_of({"text": text})] = False
                self.waiting[number] = (format, text, time.monotonic())
                params = {"name": soak_plugins.TOOLS[format], "arguments": {"text": text}}
                send(id=number, method="tools/call", params=params)
            self._take()

    def _take(self) -> None:
        try:
            answer = self.answers.get(timeout=1)
        except queue.Empty:
            for number, (format, text, since) in [*self.waiting.items()]:
                if time.monotonic() - since > ANSWER_S:
                    self.soak.violated("a call got no answer", f"{format} {text}")
                    del self.waiting[number]
            return
        if answer is None:
            raise OSError("it ended")
        if "id" not in answer or "method" in answer:
            return
        if answer["id"] not in self.waiting:
            what = "a call got two answers" if answer["id"] in self.answered else "an answer that nobody asked for"
            self.soak.violated(what, str(answer))
            return
        format, text, _ = self.waiting.pop(answer["id"])
        self.answered.add(answer["id"])
        self._judge(format, text, answer)

    def _judge(self, format: str, text: str, answer: dict[str, Any]) -> None:
        if "error" in answer:
            outcome = "lost" if answer["error"].get("code") == LOST else f"error {answer['error'].get('code')}"
            if outcome != "lost":
                self.soak.violated("an unexpected protocol error", str(answer))
        else:
            result = answer["result"]
            said = " ".join(block.get("text", "") for block in result["content"])
            code = result.get("_meta", {}).get("anyplug/error", {}).get("code", "")
            outcome = code or "done"
            if not code and text not in said and text.startswith("fine"):
                self.soak.violated("a call got another one's answer", f"{text}: {said[:200]}")
            elif code and code not in ANSWERS:
                self.soak.violated("an unexpected code", f"{code}: {said[:200]}")
            was_refused = "cannot be recorded" in said or "decisions cannot be read" in said
            if was_refused:  # while the disk is full: nothing ran, and the refusal is not recorded either
                outcome = "denied: cannot be recorded"
            elif code == "denied":
                outcome = f"denied: {said[:60]}"
            with self.soak.lock:
                self.soak.sent[digest_of({"text": text})] = not was_refused
        with self.soak.lock:
            self.soak.outcomes[format, outcome] += 1


def _try(act: Any, *given: Any) -> None:
    try:
        act(*given)
    except OSError:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a daemon with agents and faults, and check what must hold.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"soak: seed {options.seed}", flush=True)
    return Soak(options.minutes * 60, options.seed).run()


if __name__ == "__main__":
    sys.exit(main())
