"""What people paste: names of repositories, web pages, command lines, configurations of other clients."""

import msgspec
import pytest

from anyplug.manage import pasted_names, pasted_servers
from anyplug.model.errors import InstallError
from rows import each_row

HUB = "https://github.com"


@each_row(
    ("text", "location", "ref", "subdir", "rest"),
    [
        ("ada/tools", f"{HUB}/ada/tools", "", "", ""),
        ("ada/tools@v1.2", f"{HUB}/ada/tools", "v1.2", "", ""),
        ("github:ada/tools", f"{HUB}/ada/tools", "", "", ""),
        ("github:ada/tools/plugins/kit@v1", f"{HUB}/ada/tools", "v1", "plugins/kit", ""),
        ("github:ada/tools#feature/x", f"{HUB}/ada/tools", "feature/x", "", ""),
        ("gitlab:ada/tools.git", "https://gitlab.com/ada/tools", "", "", ""),
        ("github.com/ada/tools", f"{HUB}/ada/tools", "", "", ""),
        ("www.github.com/ada/tools/", f"{HUB}/ada/tools", "", "", ""),
        (f"{HUB}/ada/tools?tab=readme-ov-file#use", f"{HUB}/ada/tools", "", "", ""),
        (f"{HUB}/ada/tools.git", f"{HUB}/ada/tools", "", "", ""),
        (f"{HUB}/ada/tools/tree/main/plugins/kit", f"{HUB}/ada/tools", "", "", "main/plugins/kit"),
        (f"{HUB}/ada/tools/blob/main/kit/plugin.json", f"{HUB}/ada/tools", "", "", "main/kit"),
        ("https://gitlab.com/a/b/c/-/tree/v1/kit", "https://gitlab.com/a/b/c", "", "", "v1/kit"),
        ("https://codeberg.org/a/b/src/branch/main/kit", "https://codeberg.org/a/b", "", "", "main/kit"),
        ("https://example.org/plugins.git", "https://example.org/plugins.git", "", "", ""),
        ("git+https://h.org/a/b.git@v2#subdirectory=kit", "https://h.org/a/b.git", "v2", "kit", ""),
        ("git+ssh://git@h.org/a/b.git", "ssh://git@h.org/a/b.git", "", "", ""),
        ("git@github.com:ada/tools.git", "git@github.com:ada/tools.git", "", "", ""),
        ("https://h.org/kit-1.0.tar.gz", "https://h.org/kit-1.0.tar.gz", "", "", ""),
        ("./ada/tools", "./ada/tools", "", "", ""),
        ("~/tools", "~/tools", "", "", ""),
        ("a/b/c", f"{HUB}/a/b", "", "c", ""),
        ("dist/kit.zip", "dist/kit.zip", "", "", ""),
        ("nohost:ada/tools", "nohost:ada/tools", "", "", ""),
    ],
)
def test_names_of_sources(text, location, ref, subdir, rest):
    named = pasted_names.read(text)
    assert (named.source.location, named.source.ref, named.source.subdir, named.rest) == (location, ref, subdir, rest)


def test_a_folder_that_exists_is_itself(tmp_path, monkeypatch):
    (tmp_path / "ada" / "tools").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert pasted_names.read("ada/tools").source.location == "ada/tools"


@each_row(
    ("line", "name", "command"),
    [
        ("npx -y @scope/server-everything a b", "everything", ["npx", "-y", "@scope/server-everything", "a", "b"]),
        ("$ npx @scope/mcp-server-git@1.2.3", "git", ["npx", "@scope/mcp-server-git@1.2.3"]),
        ("uvx --from weather-kit==1.0 weather", "weather-kit", ["uvx", "--from", "weather-kit==1.0", "weather"]),
        ("uv tool run weather-mcp", "weather", ["uv", "tool", "run", "weather-mcp"]),
        ("docker run -i --rm -e KEY mcp/fetch:1", "fetch", ["docker", "run", "-i", "--rm", "-e", "KEY", "mcp/fetch:1"]),
        ("pnpm dlx some-mcp", "some", ["pnpm", "dlx", "some-mcp"]),
        ("node ./dist/notes.js --port 1", "notes", ["node", "./dist/notes.js", "--port", "1"]),
        ("claude mcp add --scope user kit -- npx -y kit-mcp", "kit", ["npx", "-y", "kit-mcp"]),
        ("claude mcp add kit npx kit-mcp --flag", "kit", ["npx", "kit-mcp", "--flag"]),
        ("claude mcp add -e A=1 -e B=2 kit npx -- -y kit-mcp", "kit", ["npx", "-y", "kit-mcp"]),
        ("gemini mcp add --trust --timeout 5 kit node /srv/kit.js", "kit", ["node", "/srv/kit.js"]),
    ],
)
def test_command_lines(line, name, command):
    pasted = pasted_servers.of_command(line.split())
    [(server, entry)] = msgspec.json.decode(pasted.source.servers)["mcpServers"].items()
    assert (pasted.source.name, server, [entry["command"], *entry["args"]]) == (name, name, command)


@each_row(
    ("text", "names"),
    [
        ('{"mcpServers": {"a": {"command": "x"}, "b": {"url": "https://h.org/mcp"}}}', ["a", "b"]),
        ('{"servers": {"a": {"command": "x"}}, "inputs": []}', ["a"]),
        ('{"mcp": {"servers": {"a": {"command": "x"}}}}', ["a"]),
        ('{"mcp": {"a": {"type": "local", "command": ["x", "y"], "enabled": true}}}', ["a"]),
        ('{"context_servers": {"a": {"command": {"path": "x", "args": []}}}}', ["a"]),
        ('"a": {"command": "x",},', ["a"]),
        ('// copied\n{"a": {"command": "x"}}', ["a"]),
        ('{"command": "npx", "args": ["-y", "@s/server-kit"]}', ["kit"]),
        ('{"name": "a", "command": "x"}', ["a"]),
        ('{"url": "https://mcp.example.org/mcp"}', ["example"]),
        ('{"url": "http://127.0.0.1:8000/mcp"}', ["server"]),
        ('{"url": "http://[::1]:8000/mcp"}', ["server"]),
        ('```json\n{"a": {"command": "x"}}\n```', ["a"]),
        ('[mcp_servers.a]\ncommand = "x"\nargs = ["y"]\n', ["a"]),
        ('{"mcpServers": [{"name": "a", "command": "x"}, {"command": "npx", "args": ["kit-mcp"]}]}', ["a", "kit"]),
        ("mcpServers:\n  - name: a\n    command: npx\n    args: [-y, x]\n", ["a"]),
        (
            "extensions:\n  a:\n    cmd: uvx\n    args: [x]\n    type: stdio\n  b:\n    uri: https://h.org/mcp\n",
            ["a", "b"],
        ),
    ],
)
def test_snippets_of_every_client(text, names):
    assert [pasted.source.name for pasted in pasted_servers.of_snippet(text)] == names


@each_row(
    ("line", "name", "entry"),
    [
        (
            "claude mcp add -t http kit https://h.org/mcp --header X-Org:ada",
            "kit",
            {"url": "https://h.org/mcp", "type": "http", "headers": {"X-Org": "ada"}},
        ),
        (
            "codex mcp add --url https://h.org/mcp --bearer-token-env-var KIT_TOKEN kit",
            "kit",
            {"url": "https://h.org/mcp", "headers": {"Authorization": "Bearer ${KIT_TOKEN}"}},
        ),
        ('claude mcp add-json -s user kit {"command":"kit-mcp"}', "kit", {"command": "kit-mcp"}),
        (
            'code --add-mcp {"name":"kit","command":"kit-mcp","args":["-v"]}',
            "kit",
            {"command": "kit-mcp", "args": ["-v"]},
        ),
    ],
)
def test_commands_that_add_a_server_to_a_client(line, name, entry):
    pasted = pasted_servers.of_command(line.split())
    assert pasted.source.name == name
    assert msgspec.json.decode(pasted.source.servers)["mcpServers"] == {name: entry}


@each_row(
    "line", ["npx", "npx -y", "uvx --from", "bunx --", "claude mcp add", "claude mcp add-json kit", "code --add-mcp"]
)
def test_a_command_that_starts_nothing_is_refused_with_the_form(line):
    with pytest.raises(InstallError) as refused:
        pasted_servers.of_command(line.split())
    assert refused.value.hint


@each_row("text", ["", "hello", "{}", '{"mcpServers": {}}', '{"a": 1}', "[1]", '{"a": {"command": 5}}'])
def test_what_names_no_server_is_refused_with_the_form(text):
    with pytest.raises(InstallError) as refused:
        pasted_servers.of_snippet(text)
    assert refused.value.hint


KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


def test_secrets_are_taken_out_and_placeholders_become_references():
    [pasted] = pasted_servers.of_snippet(
        msgspec.json.encode(
            {
                "mcpServers": {
                    "kit": {
                        "command": "npx",
                        "args": [
                            "kit",
                            "--api-key",
                            KEY,
                            f"--token={KEY}",
                            "-e",
                            f"DB_PASSWORD={KEY}",
                            "--dir",
                            "/tmp",
                        ],
                        "env": {"API_KEY": KEY, "OTHER_TOKEN": "<your token>", "MODE": "fast"},
                    }
                }
            }
        ).decode()
    )
    assert KEY not in pasted.source.servers
    assert KEY not in pasted.source.location
    assert pasted.secrets == {"API_KEY": KEY, "TOKEN": KEY, "DB_PASSWORD": KEY}
    entry = msgspec.json.decode(pasted.source.servers)["mcpServers"]["kit"]
    assert entry["env"] == {"API_KEY": "${API_KEY}", "OTHER_TOKEN": "${OTHER_TOKEN}", "MODE": "fast"}
    assert entry["args"][-2:] == ["--dir", "/tmp"]
    [pasted] = pasted_servers.of_snippet(
        f'{{"kit": {{"url": "https://h.org/mcp?key={KEY}", "headers": {{"Authorization": "Bearer {KEY}"}}}}}}'
    )
    assert KEY not in pasted.source.servers
    assert pasted.secrets == {"KIT_KEY": KEY, "KIT_TOKEN": KEY}


@each_row(
    ("given", "entry"),
    [
        ({"command": "x", "env": {"API_KEY": "${input:my-api-key}"}}, {"env": {"API_KEY": "${API_KEY}"}}),
        ({"command": "x", "env": {"AUTH": "Bearer ${input:my-key}"}}, {"env": {"AUTH": "Bearer ${MY_KEY}"}}),
        ({"command": "x", "args": ["--dir", "${input:my-dir}/y"]}, {"args": ["--dir", "${MY_DIR}/y"]}),
        ({"command": "x", "env": {"API_KEY": "{env:MY_KEY}"}}, {"env": {"API_KEY": "${MY_KEY}"}}),
        ({"command": "x", "env": {"API_KEY": "{file:~/.key}"}}, {"env": {"API_KEY": "${API_KEY}"}}),
        (
            {"command": "x", "env": {"API_KEY": "$MY_KEY", "B": "%MY_B%"}},
            {"env": {"API_KEY": "${MY_KEY}", "B": "${MY_B}"}},
        ),
        ({"command": "x", "env": {"A": "${{ secrets.MY_KEY }}"}}, {"env": {"A": "${MY_KEY}"}}),
        ({"command": "x", "env": {"A": "${env:MY_KEY}"}}, {"env": {"A": "${env:MY_KEY}"}}),
        ({"command": "x", "env": {"TEAM": "<team id>"}}, {"env": {"TEAM": "${TEAM}"}}),
        ({"command": "x", "env_vars": ["MY_KEY"]}, {"env": {"MY_KEY": "${MY_KEY}"}}),
        (
            {"url": "https://h.org/mcp?team=a%20b", "env_http_headers": {"X-Key": "MY_KEY"}},
            {"url": "https://h.org/mcp?team=a%20b", "headers": {"X-Key": "${MY_KEY}"}},
        ),
        ({"url": "https://h.org/mcp", "type": "streamable_http"}, {"type": "streamable-http"}),
        ({"command": "cmd", "args": ["/c", "npx", "-y", "x"]}, {"command": "npx", "args": ["-y", "x"]}),
    ],
)
def test_what_other_clients_write_becomes_ours(given, entry):
    [pasted] = pasted_servers.of_snippet(msgspec.json.encode({"mcpServers": {"kit": given}}).decode())
    found = msgspec.json.decode(pasted.source.servers)["mcpServers"]["kit"]
    assert {field: found.get(field) for field in entry} == entry
    assert pasted.secrets == {}


@each_row(
    ("word", "written"),
    [
        ([f"Authorization: Bearer {KEY}"], ["Authorization: Bearer ${KIT_TOKEN}"]),
        (["--header", f"X-Api-Key:{KEY}"], ["--header", "X-Api-Key:${KIT_X_API_KEY}"]),
        ([f"--header=Authorization: Bearer {KEY}"], ["--header=Authorization: Bearer ${KIT_TOKEN}"]),
        ([f"https://h.org/sse?a=b&apiKey={KEY}"], ["https://h.org/sse?a=b&apiKey=${KIT_APIKEY}"]),
        ([f"postgresql://ada:{KEY}@localhost/db"], ["postgresql://ada:${KIT_PASSWORD}@localhost/db"]),
        ([KEY], ["${KIT_SECRET}"]),
        (["-k", KEY], ["-k", "${K}"]),
        (["--key", KEY, "--key", f"{KEY}9"], ["--key", "${KEY}", "--key", "${KEY_2}"]),
    ],
)
def test_secrets_anywhere_on_a_command_line_are_taken_out(word, written):
    pasted = pasted_servers.of_command(["npx", "-y", "kit", *word])
    assert msgspec.json.decode(pasted.source.servers)["mcpServers"]["kit"]["args"] == ["-y", "kit", *written]
    assert KEY in pasted.secrets.values()
    assert KEY not in pasted.source.location


def test_broken_json_is_told_where_it_breaks():
    with pytest.raises(InstallError, match="not valid JSON: line 2"):
        pasted_servers.of_snippet('{"mcpServers": {\n"a": {"command": "x" "args": []}}}')
