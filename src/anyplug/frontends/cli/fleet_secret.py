"""`fleet secret`: store a value for a plugin's variable on workers, sealed so that only they can read it."""

from typing import TYPE_CHECKING

from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.secret import given_value
from anyplug.model import permissions
from anyplug.model.errors import UsageError

if TYPE_CHECKING:  # with the libraries for a fleet
    from collections.abc import Awaitable, Callable

    from anyplug.fleet.administration import Seat


def store(session: Session, with_seat: "Callable[[Session, Callable[[Seat], Awaitable[list[str]]]], list[str]]") -> int:
    """Store a secret for workers, or remove it."""
    options = session.options
    plugin, variable = options.what, options.variable
    if not variable:
        raise UsageError("`fleet secret` needs the name of a variable", f"`anyplug fleet secret {plugin} VARIABLE`")
    value = None if options.unset else given_value(variable, f"anyplug fleet secret {plugin}")
    granted: set[str] = set()

    async def work(seat: "Seat") -> list[str]:
        await seat.read()
        for one in seat.trust.approvals.values():
            if one.name == plugin and not one.is_revoked:
                granted.update(permissions.environment_names(one.granted))
        return await seat.store_secret(plugin, variable, value, options.worker)

    workers = with_seat(session, work)
    if session.options.json:
        done = "removed" if value is None else "stored"
        session.print_json({done: variable, "plugin": plugin, "workers": workers, "granted": variable in granted})
        return 0
    done = "removed from" if value is None else "sealed for"
    render.out(f"{variable} of {plugin} is {done} {', '.join(workers)}")
    if value is not None and variable not in granted:
        session.note(
            f"hint: the plugin gets it once `env:{variable}` is granted: pass --grant with all that it may have to "
            f"`anyplug fleet approve {plugin}`"
        )
    return 0
