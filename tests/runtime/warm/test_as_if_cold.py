"""A script cannot tell whether its interpreter was started ahead: a corpus of scripts that look, run both ways."""

import os
import re
import sys
from pathlib import Path

import anyio
import msgspec
import observing_scripts
import pytest

from anyplug.runtime.processes import run_once, toolchain
from anyplug.runtime.processes.direct_spawn import DirectSpawn
from anyplug.runtime.processes.guard import Guard
from anyplug.runtime.processes.program import Program
from anyplug.runtime.sandbox import escape_test
from anyplug.runtime.sandbox.spawner_client import ConfinedSpawn
from anyplug.runtime.warm import interpreters
from anyplug.runtime.warm.gate_folder import GATES
from anyplug.runtime.warm.interpreters import Interpreter
from anyplug.runtime.warm.waiting import Waiting
from random_examples import LONG_FORM

pytestmark = pytest.mark.anyio

PLENTY = 1 << 22
STDIN = b'first line\nsecond {"line": 2}\n\xc3\xa4'
RUN_AT_ONCE, WAIT_AT_ONCE = 3, 8
PYTHON = os.path.realpath(sys.executable)
NODE, UV = toolchain.find_node(), toolchain.find_uv()
PAUSE_S = 0.4  # for which one waits at least, so that what depends on the time shows
SHADOW = re.compile(r"(?:#|//) shadow: (.+)")
ENDINGS = {"esm": "mjs", "cjs": "cjs"}
UV_HEADER = "# /// script\n# requires-python = '>=3.8'\n# dependencies = []\n# ///\n"
IS_LONG = bool(os.environ.get(LONG_FORM))
OF_UV = {  # the header is in the place of what shadows or names an encoding, and uv reads only UTF-8
    name: UV_HEADER + source for name, source in observing_scripts.PYTHON.items() if not source.startswith("# ")
}
BESIDE = {  # what shadows or is imported
    ".py": "WHERE = 'beside the script'\n",
    ".js": "exports.WHERE = 'beside the script'\n",
    ".mjs": "export default 'beside the script'\n",
    ".json": '{"WHERE": "beside the script"}\n',
}
FEW = 9  # of which one is compared in the short form


class Corpus:
    """Runs scripts both ways, and collects in what they differ."""

    def __init__(self, folder, spawn, **environment):
        self.folder, self.spawn = folder, spawn
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TZ": "Asia/Kolkata"} | environment
        self.differing = []
        self.compared = 0
        self._running, self._waiting = anyio.Semaphore(RUN_AT_ONCE), anyio.Semaphore(WAIT_AT_ONCE)

    def program(self, name, first_line, source):
        place = self.folder / "".join(letter if letter.isalnum() else "-" for letter in name)
        place.mkdir(parents=True)
        script = place / f"run.{ENDINGS.get(name.partition(' ')[0], 'py')}"
        script.write_bytes(f"#!{first_line}\n{source}\n".encode("latin-1" if "latin-1" in source else "utf-8"))
        script.chmod(0o755)
        if found := SHADOW.match(source):
            shadow = place / found[1]
            shadow.parent.mkdir(parents=True, exist_ok=True)
            shadow.write_text(BESIDE[shadow.suffix])
        return Program(
            argv=(str(script),),
            cwd=str(place),
            env=self.environment,
            stdin=STDIN,
            timeout_s=60.0,
            max_stdout=PLENTY,
            max_stderr=PLENTY,
        )

    async def compare(self, name, first_line, source):
        program = self.program(name, first_line, source)
        by = interpreters.examine(program)
        assert isinstance(by, Interpreter), (name, by)
        async with self._waiting:
            async with self._running:
                if by.by_uv:
                    await run_once.run(program, self.spawn)  # the first makes the environment
                cold = await run_once.run(program, self.spawn)
                waiting = Waiting(program, by, self.spawn)
                assert await waiting.settled(), (name, waiting.fault)
            await anyio.sleep(PAUSE_S)
            async with self._running:
                warm = await run_once.run(program, self.spawn, waiting=waiting)
        assert waiting.is_gone
        self.compared += 1
        if without_numbers(cold) != without_numbers(warm):
            self.differing.append(f"--- {name}\ncold {cold}\nwarm {warm}")

    async def compare_all(self, kind, first_line, scripts):
        async with anyio.create_task_group() as tasks:
            for name, source in scripts.items():
                tasks.start_soon(self.compare, f"{kind} {name}", first_line, source)
        assert self.compared
        assert not self.differing, "\n".join([f"{len(self.differing)} of {self.compared} differ", *self.differing])


def without_numbers(finished):
    """Leave out process numbers and addresses, which no two runs share."""
    seen = [finished.stdout, finished.stderr]
    for pattern, new in (
        (rb"0x[0-9a-f]{6,}", b"0x"),
        (rb"(?<=pid=)\d+|(?<=\()\d{3,}(?=\))|(?<=Thread, started )\d+|(?<=\(node:)\d+", b"N"),
        (rb"(?<=Thread )\d+|\b\d{13,}\b", b"N"),
    ):
        seen = [re.sub(pattern, new, part) for part in seen]
    return (finished.ending, finished.exit_code, *seen)


def in_short(scripts):
    """Leave out most scripts, unless the long form is wanted: those that come first are compared elsewhere, too."""
    return scripts if IS_LONG else dict([*scripts.items()][::FEW])


@pytest.fixture
async def guard():
    with_all = Guard()
    yield with_all
    await anyio.to_thread.run_sync(with_all.close)


@pytest.fixture
def corpus(tmp_path, guard):
    """Make a corpus that is run without a sandbox."""
    return lambda **environment: Corpus(tmp_path, DirectSpawn(guard), **environment, **guard.environment)


@pytest.fixture
def confined_corpus(guard):
    """Make a corpus that is run in the sandbox of a plugin without grants."""
    with escape_test.scene() as scene:
        for name, path in (("node", NODE), ("uv", UV)):
            if path is not None:
                os.symlink(path, os.path.join(scene.place.home, "bin", name))
        profile = scene.profile()
        spawn = ConfinedSpawn(guard, msgspec.structs.replace(profile, readable=(*profile.readable, GATES)))
        own = {
            "HOME": scene.place.data,
            "PATH": f"{scene.place.home}/bin:{os.environ['PATH']}",
            "UV_CACHE_DIR": scene.place.cache,
            "UV_OFFLINE": "1",
            "UV_PYTHON": PYTHON,
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_NO_CONFIG": "1",
        }
        yield Corpus(Path(scene.place.plugin), spawn, **own, **guard.environment)
        spawn.close()


async def test_python_scripts_see_the_same(corpus):
    await corpus().compare_all("python", PYTHON, observing_scripts.PYTHON)


async def test_python_scripts_see_the_same_with_bytecode_and_modules_elsewhere(corpus, tmp_path):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "textwrap.py").write_text("print('not the usual one')\n")
    elsewhere = {"PYTHONPYCACHEPREFIX": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path / "modules"), "LAST": "1"}
    some = ("path", "what is cached of modules", "environment", "environment of a child", "own module")
    scripts = {name: observing_scripts.PYTHON[name] for name in some}
    await corpus(**elsewhere).compare_all("python", PYTHON, scripts | {"textwrap": "import textwrap"})


async def test_python_scripts_see_the_same_with_flags_and_virtual_environments(corpus, tmp_path):
    made = corpus(PYTHONPYCACHEPREFIX=str(tmp_path / "cache"))
    for name, (flags, source) in observing_scripts.FLAGS.items():
        await made.compare_all(f"flags {name}", f"/usr/bin/env -S {PYTHON} {flags}", {"": source})
    await anyio.run_process([PYTHON, "-m", "venv", "--without-pip", str(tmp_path / "venv")])
    own = tmp_path / "venv" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    (own / "extra.pth").write_text("import sys; sys.extra = 1\n")
    (own / "sitecustomize.py").write_text("import sys\nsys.customized = [*sys.modules]\n")
    some = ("argv", "path", "modules", "cached finders", "sitecustomize", "sysconfig", "traceback")
    scripts = {name: observing_scripts.PYTHON[name] for name in some}
    scripts |= {"pth": "import sys\nprint(sys.extra, sys.customized)"}
    await made.compare_all("venv", str(tmp_path / "venv" / "bin" / "python"), scripts)


@pytest.mark.skipif(NODE is None, reason="no Node here")
async def test_node_scripts_and_modules_see_the_same(corpus):
    await corpus().compare_all("cjs", NODE, observing_scripts.CJS)
    await corpus(NODE_OPTIONS="--no-deprecation").compare_all("esm", NODE, observing_scripts.ESM)


@pytest.mark.skipif(UV is None, reason="no uv here")
async def test_scripts_that_uv_runs_see_the_same(corpus, tmp_path):
    settings = {"UV_CACHE_DIR": str(tmp_path / "uv"), "UV_PYTHON": PYTHON, "UV_NO_CONFIG": "1"}
    made = corpus(**settings, PATH=f"{os.path.dirname(UV)}:{os.environ['PATH']}")
    await made.compare_all("uv", "/usr/bin/env -S uv run --script", in_short(OF_UV))


async def test_scripts_in_the_sandbox_see_the_same(confined_corpus):
    await confined_corpus.compare_all("python", PYTHON, in_short(observing_scripts.PYTHON))
    if NODE is not None:
        await confined_corpus.compare_all("cjs", NODE, in_short(observing_scripts.CJS))
        await confined_corpus.compare_all("esm", NODE, in_short(observing_scripts.ESM))
    if UV is not None:
        await confined_corpus.compare_all("uv", "/usr/bin/env -S uv run --script", in_short(OF_UV))
