"""A one-shot call through `Host.call`, against a bare `posix_spawn` of the same program on the same three pipes.

Unconfined, as the bare one is: `confined_calls` says what confinement adds.
"""

import os
import shutil
import subprocess
import sys

from anyplug import Host
from bench import plugins
from bench.measure import Plan, Row, medians

AIM_C = 1.25
AIM_PYTHON = 1.05
CHUNK = 65_536  # bytes
ARGUMENTS = {"name": "Alice", "count": 3}
REQUEST = b'{"tool":"echo","input":{"name":"Alice","count":3},"context":{"plugin_dir":"/a/b","data_dir":"/a/c"}}\n'

C_SOURCE = r"""
#include <unistd.h>
static const char answer[] = "{\"result\":\"ok\",\"is_error\":false}";
int main(void) {
    char request[65536];
    while (read(0, request, sizeof request) > 0) {}
    return write(1, answer, sizeof answer - 1) < 0;
}
"""

PYTHON_SOURCE = """#!{python}
import json
import sys

request = json.load(sys.stdin)
print(json.dumps({{"result": "Hello " + request["input"]["name"], "is_error": False}}))
"""


async def rows(folder: str, plan: Plan) -> list[Row]:
    """Measure a program that starts at once, and one that takes its time."""
    root, home = os.path.join(folder, "plugins"), os.path.join(folder, "home")
    what, program = small_program(folder)
    small = plugins.write(root, "small", program)
    script = plugins.write(root, "script", PYTHON_SOURCE.format(python=sys.executable))
    plugins.approve_all(home, [root])
    plugins.do_not_confine(home)
    async with Host(roots=[root], home=home, watch=False) as host:
        return [
            await _compare(host, what, small, plan.calls, AIM_C),
            await _compare(host, "a Python script", script, plan.scripts, AIM_PYTHON),
        ]


async def _compare(host: Host, what: str, folder: str, rounds: int, aim: float) -> Row:
    tool, program = os.path.basename(folder), os.path.join(folder, "main")

    async def call() -> None:
        result = await host.call(tool, ARGUMENTS)
        assert not result.is_error, result

    measured, baseline = await medians(rounds, call, lambda: _spawn(program))
    return Row(what=f"call of {what}", against="bare posix_spawn", measured=measured, baseline=baseline, aim=aim)


def small_program(folder: str) -> tuple[str, bytes | str]:
    """Compile a program that starts as fast as any; where there is no compiler, a shell and cat have to do."""
    compiler = shutil.which("cc")
    if compiler is None:
        return "a shell script", plugins.SCRIPT
    source, binary = os.path.join(folder, "small.c"), os.path.join(folder, "small")
    with open(source, "w", encoding="utf-8") as file:
        file.write(C_SOURCE)
    for how in (["-static"], []):  # some systems have no static libc
        compiled = subprocess.run([compiler, "-O2", *how, "-o", binary, source], check=False, capture_output=True)
        if compiled.returncode == 0:
            with open(binary, "rb") as built:
                return "a C program", built.read()
    return "a shell script", plugins.SCRIPT


def _spawn(program: str) -> None:
    """Do the least that runs a program on three pipes: no bounds, no guard, no record."""
    child_in, stdin = os.pipe()
    stdout, child_out = os.pipe()
    stderr, child_err = os.pipe()
    pid = os.posix_spawn(
        program,
        [program],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, child_in, 0),
            (os.POSIX_SPAWN_DUP2, child_out, 1),
            (os.POSIX_SPAWN_DUP2, child_err, 2),
        ],
        setsid=True,
    )
    for fd in (child_in, child_out, child_err):
        os.close(fd)
    os.write(stdin, REQUEST)
    os.close(stdin)
    for fd in (stdout, stderr):
        while os.read(fd, CHUNK):
            pass
        os.close(fd)
    os.waitpid(pid, 0)
