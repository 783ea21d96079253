"""Hosts that are killed while a plugin of theirs is up."""

import subprocess
import sys

import processes

SCRIPT = """
import anyio
from anyplug.host.host import Host

async def main():
    async with Host([{folder!r}], roots=[], watch=False) as host:
        print(host.peers.up[0].session.pid, flush=True)
        await anyio.sleep(600)

anyio.run(main)
"""


def leaves_nothing(folder: str, number: int, child: str) -> None:
    """Kill a host with this plugin: neither the plugin's process nor this child of it lives on."""
    process = subprocess.Popen([sys.executable, "-c", SCRIPT.format(folder=folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert processes.is_running(pid)
    process.send_signal(number)
    process.wait()
    process.stdout.close()
    command = child.replace(" ", "\0").encode()
    assert processes.until(lambda: not processes.is_running(pid))
    assert processes.until(
        lambda: not processes.processes(lambda one: command in processes.read(f"/proc/{one}/cmdline"))
    )
