"""People see what takes long, on a terminal and only there, and nothing of it is left when it is over."""

import os

import command_line
import plugin_folders

SLOW = "#!/bin/sh\nsleep 2\ncat\n"


def test_long_work_is_shown_on_a_terminal_and_gone_when_it_is_over():
    plugin = plugin_folders.stavrobot("here", "kit", SLOW)
    with command_line.Terminal("-e", plugin, "call", "kit.act", "text=x") as terminal:
        terminal.shows("running kit.act")
    drawn = terminal.raw.rpartition("running kit.act")[2]
    assert drawn.index("\r\x1b[K") < drawn.index("text")  # erased before the result
    assert "running" not in terminal.seen
    assert terminal.code == 0


def test_pipes_and_quiet_terminals_get_none_of_it():
    plugin = plugin_folders.stavrobot("here", "kit", SLOW)
    assert command_line.ok("-e", plugin, "call", "kit.act", "text=x").err == ""
    with command_line.Terminal("--quiet", "-e", plugin, "call", "kit.act", "text=x") as terminal:
        terminal.sees("text")
    assert "running" not in terminal.raw


def test_a_question_is_not_overwritten():
    plugin = plugin_folders.cyclop(
        os.path.join(command_line.home(), "plugins"),
        "writer",
        plugin_folders.python("print(json.dumps({'result': 'wrote'}))"),
        permissions=["filesystem:write"],
    )
    command_line.ok("approve", plugin, "--yes")
    with command_line.Terminal("call", "writer") as terminal:
        terminal.sees("[N]o:")
        terminal.stays_silent(1.0)
        terminal.types("y")
    assert terminal.code == 0
