"""A line that starts a server from npm, pasted after `install`, is called with the next command.

`make clients` runs this, because npx fetches the server from a registry.
"""

import os

import pytest

import command_line

pytestmark = pytest.mark.skipif(
    not os.environ.get("ANYPLUG_CLIENTS"), reason="ANYPLUG_CLIENTS names no folder with the clients"
)


PATIENCE_S = 300.0  # twice the package is fetched, which takes as long as the network


def test_a_pasted_npx_line_is_installed_and_tried(monkeypatch):
    monkeypatch.setattr(command_line, "PATIENCE_S", PATIENCE_S)
    line = ("npx", "-y", "@modelcontextprotocol/server-everything")
    done = command_line.ok("install", "--yes", *line)
    assert "It asks for:" in done.err
    assert "without an exact version" in done.err
    assert command_line.ok("call", "mcp.everything.echo", "message=hi", "--yes").out == "Echo: hi\n"
    command_line.ok("remove", "everything", "--yes", "--purge")
    assert command_line.ok("try", " ".join(line), "echo", "message=hi", "--yes").out == "Echo: hi\n"
