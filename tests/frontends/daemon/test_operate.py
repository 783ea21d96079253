"""What operators rely on: the unit, settings read again on SIGHUP, a log of requests, a `stop` that waits."""

import json
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import command_line
import daemons
import plugin_folders
import processes


@pytest.mark.parametrize("user", ["", "daemon"])
def test_the_unit_is_one_that_systemd_accepts(user, tmp_path, monkeypatch):
    words = ["serve", "--systemd", "--http", "127.0.0.1:8000", *(["--user", user] if user else [])]
    text = command_line.ok("--home", f"{tmp_path}/a home", *words).out
    assert "NoNewPrivileges=yes" in text
    assert f"--home '{tmp_path}/a home' serve --http 127.0.0.1:8000" in text
    assert ("ProtectSystem=strict" in text) == bool(user)
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    path = plugin_folders.write(f"{tmp_path}/anyplug.service", text)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    manager = [] if user else ["--user"]
    done = subprocess.run(["systemd-analyze", "verify", *manager, path], capture_output=True, text=True, check=False)
    assert "anyplug.service" not in done.stderr, done.stderr


def test_sighup_reads_settings_and_plugins_again_and_requests_are_logged(tmp_path):
    home, log = Path(command_line.home()), tmp_path / "access.log"
    plugin_folders.write(f"{home}/settings.toml", f'[http]\naccess_log = "{log}"\n')
    with daemons.resident("--http", "127.0.0.1:0", start_new_session=True) as process:
        url = command_line.ok("status", "--json").json["url"]
        for path in ("/health", "/mcp?key=secret"):
            try:
                urllib.request.urlopen(f"{url}{path}", timeout=20).read()
            except urllib.error.HTTPError as error:
                error.close()
        assert processes.until(lambda: log.exists() and log.read_text().count("\n") == 2)
        first, second = map(json.loads, log.read_text().splitlines())
        assert (first["method"], first["path"], first["client"]) == ("GET", "/health", "127.0.0.1")
        assert (second["path"], second["status"]) == ("/mcp", 401)
        assert "secret" not in log.read_text()
        assert log.stat().st_mode & 0o777 == 0o600

        plugin_folders.write(f"{home}/settings.toml", f'[http]\naccess_log = "{log}.2"\n')
        command_line.ok("install", plugin_folders.cyclop(tmp_path, "late"), "--yes")
        process.send_signal(signal.SIGHUP)
        assert processes.until(lambda: command_line.run("call", "late").code == 0)
        urllib.request.urlopen(f"{url}/health", timeout=20).read()
        assert processes.until(Path(f"{log}.2").exists)
        assert log.read_text().count("\n") == 2
        assert process.poll() is None
        command_line.ok("stop")
        assert not Path(f"/proc/{process.pid}/stat").exists() or process.poll() is not None
