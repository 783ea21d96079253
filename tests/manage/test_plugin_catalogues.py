"""Searching catalogues that a person configured: an index here, one in git, a marketplace, a registry on loopback."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from test_installer import commit, git

import command_line
import plugin_folders
from foreign_folders import write

SERVERS = [
    {
        "server": {
            "name": "io.example/weather",
            "description": "Weather for agents",
            "version": "1.2.0",
            "packages": [
                {"registryType": "nuget", "identifier": "Weather"},
                {
                    "registryType": "npm",
                    "identifier": "@example/weather",
                    "version": "1.2.0",
                    "transport": {"type": "stdio"},
                    "packageArguments": [{"type": "named", "name": "--unit", "default": "metric"}],
                },
            ],
        },
        "_meta": {},
    },
    {
        "name": "io.example/weather-py",
        "packages": [{"registry_type": "pypi", "identifier": "weather", "version": "2.0"}],
    },
    {
        "server": {
            "name": "io.example/weather-web",
            "remotes": [{"type": "streamable-http", "url": "https://w.org/mcp"}],
        }
    },
    {"server": {"name": "io.example/weather-old", "packages": [{"registryType": "oci", "identifier": "-v/:/x"}]}},
]


class Registry(BaseHTTPRequestHandler):
    """The API of an MCP registry, two servers on each page."""

    asked: ClassVar[list[str]] = []

    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)
        self.asked.append(self.path)
        at = int(query.get("cursor", ["0"])[0])
        more = {"nextCursor": str(at + 2)} if at + 2 < len(SERVERS) else {}
        body = json.dumps({"servers": SERVERS[at : at + 2], "metadata": {"count": 2, **more}}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        """Stay silent."""


@pytest.fixture
def registry():
    Registry.asked = []
    server = HTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.claim("catalogue-decides-nothing")
def test_all_kinds_of_catalogues_are_searched_and_a_dead_one_hides_none(registry, tmp_path):
    done = command_line.fails(2, "search", "weather")
    assert "no catalogue is configured" in done.err

    plugin_folders.cyclop(tmp_path / "team/plugins", "weather-kit")
    entries = [
        {"name": "weather-kit", "description": "Weather of the team", "source": "./plugins/weather-kit"},
        {"name": "clock", "description": "Time", "keywords": ["weather"], "source": "ada/clock"},
        {"name": "calendar", "description": "Days"},
        {"name": "eager", "description": "weather", "source": "ada/eager --yes --always"},
        {"name": "keen", "description": "weather", "source": "--allow-unconfined ada/keen"},
        {"name": "runner", "description": "weather", "source": "npx -y weather-runner"},
    ]
    write(tmp_path / "team", {"anyplug-index.json": {"plugins": entries}})
    git(tmp_path / "team", "init", "--quiet")
    commit(tmp_path / "team")
    market = {"name": "m", "plugins": [{"name": "weather-talk", "source": "./x", "description": "Small talk"}]}
    market["plugins"].append({"name": "--yes", "source": "./x", "description": "weather"})
    write(tmp_path / "market", {".claude-plugin/marketplace.json": market})
    settings = f"""
[catalogues]
here = "{tmp_path}/team/anyplug-index.json"
git = "file://{tmp_path}/team"
market = "{tmp_path}/market"
mcp = "registry:{registry}"
dead = "registry:http://127.0.0.1:1"
"""
    plugin_folders.write(f"{command_line.home()}/settings.toml", settings)
    done = command_line.run("search", "Weather")
    assert done.code == 1
    assert "catalogue 'dead': cannot fetch" in done.err
    assert "anyplug install npx -y @example/weather@1.2.0 --unit metric" in done.out
    assert "its catalogue does not say how" in done.out  # an option is no image
    found = command_line.run("search", "weather", "--json").json
    assert {(one["catalogue"], one["name"]): one["install"] for one in found} == {
        ("here", "weather-kit"): [f"{tmp_path}/team/plugins/weather-kit"],
        ("here", "clock"): ["ada/clock"],
        **{(where, name): [] for where in ("here", "git") for name in ("eager", "keen")},
        **{(where, "runner"): ["npx", "-y", "weather-runner"] for where in ("here", "git")},
        ("market", "--yes"): [],
        ("git", "weather-kit"): [f"file://{tmp_path}/team", "--subdir", "plugins/weather-kit"],
        ("git", "clock"): ["ada/clock"],
        ("market", "weather-talk"): [f"{tmp_path}/market", "weather-talk"],
        ("mcp", "io.example/weather"): ["npx", "-y", "@example/weather@1.2.0", "--unit", "metric"],
        ("mcp", "io.example/weather-py"): ["uvx", "--from", "weather==2.0", "weather"],
        ("mcp", "io.example/weather-web"): ["https://w.org/mcp"],
        ("mcp", "io.example/weather-old"): [],
    }
    assert "/v0/servers?search=weather&limit=100&cursor=2" in Registry.asked
    [one] = command_line.ok("search", "weather-kit", "--catalogue", "git", "--json").json
    command_line.ok("install", *one["install"], "--yes")
    assert "Nothing was found" in command_line.ok("search", "nothing", "--catalogue", "here").out
