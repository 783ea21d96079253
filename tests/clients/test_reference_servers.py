"""The published reference servers of MCP through us, compared with talking to them directly."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from pydantic import FileUrl

import plugin_folders
from command_line import ok
from mcp_clients import OURS

CLIENTS = os.environ.get("ANYPLUG_CLIENTS", "")
PACKAGES = os.path.join(os.path.abspath(CLIENTS), "node_modules", "@modelcontextprotocol")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        not CLIENTS or not os.path.exists(os.path.join(PACKAGES, "server-everything")),
        reason="ANYPLUG_CLIENTS names no folder with the reference servers",
    ),
]
CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "everything": [
        ("echo", {"message": "hi"}),
        ("get-sum", {"a": 2, "b": 3}),
        ("get-tiny-image", {}),
        ("get-annotated-message", {"messageType": "error", "includeImage": True}),
        ("get-resource-links", {"count": 2}),
        ("get-structured-content", {"location": "Chicago"}),
        ("trigger-elicitation-request", {}),
        ("trigger-sampling-request", {"prompt": "x", "maxTokens": 10}),
        ("echo", {}),
    ],
    "filesystem": [
        ("list_allowed_directories", {}),
        ("write_file", {"path": "FOLDER/a.txt", "content": "one\ntwo\n"}),
        ("read_text_file", {"path": "FOLDER/a.txt"}),
        ("edit_file", {"path": "FOLDER/a.txt", "edits": [{"oldText": "two", "newText": "2"}]}),
        ("list_directory", {"path": "FOLDER"}),
        ("read_text_file", {"path": "/etc/shadow"}),
    ],
    "memory": [
        ("create_entities", {"entities": [{"name": "Ada", "entityType": "person", "observations": ["first"]}]}),
        ("search_nodes", {"query": "Ada"}),
        ("delete_entities", {"entityNames": ["Ada"]}),
        ("read_graph", {}),
    ],
    "sequential-thinking": [
        ("sequentialthinking", {"thought": "t", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}),
    ],
}


def program(server: str) -> str:
    folder = os.path.join(PACKAGES, f"server-{server}")
    manifest = json.loads(Path(folder, "package.json").read_text())
    return os.path.join(folder, next(iter(manifest["bin"].values())))


async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    fields = getattr(params, "requested_schema", None) or {}
    if "answer" in fields.get("properties", {}):  # our own question, about the one to the model
        return types.ElicitResult(action="accept", content={"answer": "session"})
    return types.ElicitResult(action="decline")


async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    said = types.TextContent(type="text", text="From the model.")
    return types.CreateMessageResult(role="assistant", model="m", content=said, stop_reason="endTurn")


async def everything(connected: Client, prefix: str, server: str, folder: str) -> dict[str, Any]:
    """Use all that a server offers; give what came, without what we add."""
    tools = {
        one.name.removeprefix(prefix): (one.input_schema.get("properties"), one.output_schema)
        for one in await listed(connected, prefix, server)
    }
    while server == "filesystem":  # it asks for our folders once it is initialized, and until then has only its own
        folders = await connected.call_tool(f"{prefix}list_allowed_directories", {})
        if os.getcwd() in folders.content[0].text:
            break
        await anyio.sleep(0.05)
    can = connected.server_capabilities
    found: dict[str, Any] = {"tools": tools}
    for name, given in CALLS[server]:
        arguments = json.loads(json.dumps(given).replace("FOLDER", folder))
        answer = await connected.call_tool(f"{prefix}{name}", arguments)
        blocks = [block.model_dump(exclude_none=True, exclude={"meta", "annotations"}) for block in answer.content]
        key = f"{name} {len(found)}"
        found[key] = (answer.is_error, answer.structured_content, blocks if not answer.is_error else None)
    if can.resources is not None:
        resources = (await connected.list_resources()).resources
        templates = (await connected.list_resource_templates()).resource_templates
        found["resources"] = sorted((str(one.uri), one.name) for one in resources)
        found["templates"] = sorted((one.uri_template, one.name) for one in templates)
        if server == "everything":
            found["held"] = [
                [one.model_dump(exclude={"meta"}) for one in (await connected.read_resource(str(each.uri))).contents]
                for each in resources
            ]
    if server == "everything":
        prompts = [one for one in (await connected.list_prompts()).prompts if one.name.startswith(prefix)]
        found["prompts"] = sorted((one.name.removeprefix(prefix), len(one.arguments or ())) for one in prompts)
        weather = await connected.get_prompt(f"{prefix}args-prompt", {"city": "Oslo", "state": "x y"})
        found["weather"] = [one.model_dump(exclude_none=True) for one in weather.messages]
    return found


async def listed(connected: Client, prefix: str, server: str) -> list[types.Tool]:
    """List the tools; the first server adds some once it knows what the client can do."""
    late = {f"{prefix}get-roots-list", f"{prefix}simulate-research-query"} if server == "everything" else set()
    while True:
        found = (await connected.list_tools()).tools
        if late <= {one.name for one in found}:
            return [one for one in found if one.name not in OURS]
        await anyio.sleep(0.05)


@pytest.mark.exercises(
    "@modelcontextprotocol/server-everything",
    "tools", "failures", "images", "resources", "prompts", "elicitation", "sampling",
)  # fmt: skip
@pytest.mark.exercises("@modelcontextprotocol/server-filesystem", "tools", "failures")
@pytest.mark.exercises("@modelcontextprotocol/server-memory", "tools")
@pytest.mark.exercises("@modelcontextprotocol/server-sequential-thinking", "tools")
@pytest.mark.parametrize("server", CALLS)
async def test_a_reference_server_passes_through_whole(server: str, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    node = shutil.which("node")
    assert node is not None
    words = [program(server), *([str(folder)] if server == "filesystem" else [])]
    kept = {"MEMORY_FILE_PATH": str(home / "plugins" / server / "memory.jsonl")}  # where a plugin may write
    servers = {server: {"command": node, "args": words, "env": kept if server == "memory" else {}}}
    plugin_folders.write(str(home / "plugins" / server / "mcp.json"), json.dumps({"mcpServers": servers}))
    asked = [f"filesystem:write:{folder}", f"filesystem:read:{os.getcwd()}"]  # it leaves out what it cannot see
    grants = [word for one in asked for word in ("--grant", one)] if server == "filesystem" else []
    ok("approve", server, "--yes", "--follow", "--always", *grants)

    async def roots(context: Any) -> types.ListRootsResult:
        """Name the folders that anyplug names."""
        named = [os.getcwd(), str(folder)] if server == "filesystem" else [os.getcwd()]
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(f"file://{one}")) for one in named])

    options: dict[str, Any] = {
        "mode": "legacy",
        "elicitation_callback": elicit,
        "sampling_callback": sample,
        "list_roots_callback": roots,
    }
    memory = {"MEMORY_FILE_PATH": str(tmp_path / "direct.jsonl")}
    direct = StdioServerParameters(command=node, args=words, env={**os.environ, **memory})
    ours = StdioServerParameters(command=sys.executable, args=["-m", "anyplug", "mcp"], env=dict(os.environ))
    async with Client(direct, **options) as connected:
        expected = await everything(connected, "", server, str(folder))
    shutil.rmtree(folder)
    folder.mkdir()
    async with Client(ours, **options) as connected:
        prefix = f"mcp_{server}_"
        got = await everything(connected, prefix, server, str(folder))
    assert got["tools"].keys() == expected["tools"].keys()
    assert {key: got[key] for key in expected} == expected
