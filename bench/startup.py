"""The command line's start, against an interpreter that does nothing."""

import os
import sys

from bench import plugins
from bench.measure import Plan, Row, medians

AIM_VERSION = 2.5
AIM_TOOLS = 5.0
AIM_CALL = 8.0
FEW = 10
BASELINE = "python -c pass"


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure `anyplug --version`, `anyplug tools` and `anyplug call`, none of which finds a daemon."""
    empty, used = os.path.join(folder, "empty"), os.path.join(folder, "used")
    home_plugins = plugins.write_many(os.path.join(used, "plugins"), FEW)
    plugins.approve_all(used, [home_plugins], always=True)
    anyplug = os.path.join(os.path.dirname(sys.executable), "anyplug")
    call = (used, anyplug, "call", "plugin_00000", "name=x")
    version, tools, tools_used, called, nothing = await medians(
        plan.starts,
        lambda: _run(empty, anyplug, "--version"),
        lambda: _run(empty, anyplug, "tools"),
        lambda: _run(used, anyplug, "tools"),
        lambda: _run(*call),
        lambda: _run(empty, sys.executable, "-c", "pass"),
    )
    return [
        Row(what="anyplug --version", against=BASELINE, measured=version, baseline=nothing, aim=AIM_VERSION),
        Row(what="anyplug tools, no plugins", against=BASELINE, measured=tools, baseline=nothing, aim=AIM_TOOLS),
        Row(
            what=f"anyplug tools, {FEW} approved",
            against=BASELINE,
            measured=tools_used,
            baseline=nothing,
            aim=AIM_TOOLS,
        ),
        Row(what="anyplug call, a shell script", against=BASELINE, measured=called, baseline=nothing, aim=AIM_CALL),
    ]


def _run(home: str, *argv: str) -> None:
    """Run a command to its end, with its output dropped."""
    pid = os.posix_spawn(
        argv[0],
        argv,
        {**os.environ, "ANYPLUG_HOME": home},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        ],
    )
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"{argv} ended with {os.waitstatus_to_exitcode(status)}"
