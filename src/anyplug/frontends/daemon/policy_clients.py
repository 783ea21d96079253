"""Decide about agents' events by the policies of their projects, for "policy" clients."""

from typing import TYPE_CHECKING, Any

from anyplug.frontends.daemon import protocol
from anyplug.home.settings import Home
from anyplug.launch.signal_runner import SignalRuns
from anyplug.policy import bound_agents

if TYPE_CHECKING:  # with the compiler, only needed for policies
    from anyplug.policy.eval_requests import EvalRequests


class Decisions:
    """The policies of all projects, kept as long as the daemon runs. `close` when done."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._signals = SignalRuns(home)
        self._desk: EvalRequests | None = None
        self._stamp: Any = None

    async def answer(self, request: dict[str, Any], hello: protocol.Hello, pid: int) -> dict[str, Any]:
        """Decide about one event of a process. Raises ConfigError if the settings cannot be read."""
        stamp = self._home.settings_stamp()
        if self._desk is None or stamp != self._stamp:
            # Takes 50 ms to import, and only policies need it.
            from anyplug.frontends.policy_records import recorder
            from anyplug.policy.eval_requests import desk

            settings = self._home.read_settings()
            self._desk = desk(self._home.path, settings.policy, recorder(self._home, settings), self._signals)
            self._stamp = stamp
        return await self._desk.answer(
            request,
            cwd=hello.cwd,
            environment=hello.environment,
            heard=lambda: bound_agents.note(self._home.path, pid, hello.environment),
        )

    def close(self) -> None:
        """Kill what signals left running. Blocks: call it in a thread."""
        self._signals.close()
