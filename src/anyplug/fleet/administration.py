"""What a fleet's admin does: credentials for its members, decisions about plugins; and what anybody may look at."""

import base64
import os
import time
from collections.abc import Sequence
from contextlib import suppress

import anyio
import anyio.to_thread
import msgspec

from anyplug.catalog.approvals import definition
from anyplug.fleet import approved_tools, bundles, credentials, fleet_secrets, fleet_trust, stores
from anyplug.fleet.credentials import ROLES, Credentials, Member, Role
from anyplug.fleet.directory import Directory
from anyplug.fleet.fleet_trust import Trust
from anyplug.fleet.messages import BEAT_S, Approved, Offered, Policies, Withdrawn, approval_key
from anyplug.fleet.nats_link import FleetError, Link
from anyplug.fleet.overview import FleetView, view_of
from anyplug.fleet.server_config import server_config
from anyplug.model.errors import ConfigError, PluginNotFound, UsageError
from anyplug.model.hints import typed
from anyplug.model.late_patterns import late
from anyplug.model.types import Plugin

MEMBERS = "members.json"  # the certificates of all members, so that their files may be moved away
SERVER = "fleet.conf"
PRIVATE = 0o600
_MEMBER_NAME = late(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # also that of its file
REPORTS_S = 30.0  # for workers to start a plugin that was just approved, and to describe its tools
LOOK_S = 0.25  # between two looks for that
SETTLES_S = BEAT_S + 0.5  # after which a worker has described what its plugin reported meanwhile


def write_credentials(folder: str, wanted: Sequence[tuple[Role, str]], prefix: str) -> list[str]:
    """Create the members that are missing, and the configuration of the server; return the files that were written.

    Raises ConfigError and UsageError.
    """
    for _, name in wanted:
        if not _MEMBER_NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot be the name of a member", "use letters, digits, dots, - and _")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    admin_file = os.path.join(folder, "admin.creds")
    written = []
    certificates = _certificates(folder)
    if os.path.exists(admin_file):
        admin = credentials.read(admin_file)
    elif certificates:
        raise ConfigError(f"{admin_file} is missing", "restore the admin's credentials: only they can admit members")
    else:
        admin = credentials.new_admin()
        certificates.append(admin.certificate)
        written.append(_write(admin_file, admin.text()))
    known = {member.name: member for member in _members(certificates, admin)}
    files = {name.casefold(): name for name in known}
    for _, name in wanted:
        if (other := files.setdefault(name.casefold(), name)) != name:
            raise UsageError(f"'{name}' and '{other}' would have the same file", "give each member a different name")
    for role, name in wanted:
        if name in known:
            if known[name].role != role:
                raise UsageError(f"'{name}' is already a {known[name].role}", "give each member a different name")
            continue
        made = admin.admit(role, name)
        certificates.append(made.certificate)
        written.append(_write(os.path.join(folder, f"{name}.creds"), made.text()))
        known[name] = made.member
    listed = msgspec.json.encode([base64.b64encode(one).decode() for one in certificates])
    _write(os.path.join(folder, MEMBERS), listed.decode())
    members = sorted(known.values(), key=lambda member: (ROLES.index(member.role), member.name))
    written.append(_write(os.path.join(folder, SERVER), server_config(members, prefix)))
    return written


def _certificates(folder: str) -> list[bytes]:
    try:
        with open(os.path.join(folder, MEMBERS), "rb") as file:
            return [base64.b64decode(one) for one in msgspec.json.decode(file.read(), type=list[str])]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot read {os.path.join(folder, MEMBERS)}: {error}", "restore it from a backup"
        ) from error


def _members(certificates: list[bytes], admin: Credentials) -> list[Member]:
    try:
        return [credentials.verified_member(one, admin.member.admin) for one in certificates]
    except credentials.NotMember as error:
        raise ConfigError(f"{MEMBERS} is invalid: {error}", "restore it from a backup") from error


def _write(path: str, text: str) -> str:
    with suppress(FileNotFoundError):
        os.unlink(path)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "w", encoding="utf-8") as file:
        file.write(text)
    return path


class Seat:
    """The place of somebody who looks at a fleet, or decides about it."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.trust = Trust(link, lambda: None)
        self.directory = Directory(link, self.trust, lambda: None, for_admin=True)

    async def read(self) -> None:
        """Read what is announced and decided. Raises FleetError."""
        await self.trust.read()
        await self.directory.read()

    def offered(self, name: str, digest: str = "", worker: str = "") -> Offered:
        """Return the plugin of that name which workers offer, with all its tools; `worker`: as this one describes it.

        Raises PluginNotFound and UsageError.
        """
        found: dict[str, list[tuple[str, Offered]]] = {}
        for seen in sorted(self.directory.workers.values(), key=lambda seen: seen.said.name):
            for one in self.directory.described_by(seen):
                whole = one.whole
                if whole is None or whole.name != name or not whole.digest.startswith(digest):
                    continue
                if worker in {"", seen.said.name} and _is_possible(whole):
                    whole = msgspec.structs.replace(whole, tools=approved_tools.proposed(whole), held=())
                    found.setdefault(whole.approval_key, []).append((seen.said.name, whole))
        if not found:
            raise PluginNotFound(name, [])
        if len(found) > 1:
            digests = ", ".join(sorted({one.digest[:12] for several in found.values() for _, one in several}))
            where = ", ".join(sorted({typed("--worker", place) for several in found.values() for place, _ in several}))
            raise UsageError(
                f"workers offer different versions of '{name}'", f"pass --digest with one of {digests}, or {where}"
            )
        [several] = found.values()
        several = [(place, one) for place, one in several if one.tools] or several[:1]
        if len({tuple(sorted(approved_tools.digests(one.tools).items())) for _, one in several}) > 1:
            where = " or ".join(typed("--worker", place) for place, _ in several)
            raise UsageError(
                f"workers describe the tools of '{name}' differently", f"pass {where} to see and approve its tools"
            )
        return several[0][1]

    async def reported(self, offered: Offered, worker: str = "") -> Offered:
        """Return a plugin with the tools that it reports once it runs; wait for them a while, as it was just approved.

        Raises FleetError, PluginNotFound and UsageError.
        """
        before = offered
        with anyio.move_on_after(REPORTS_S):
            while True:
                await anyio.sleep(SETTLES_S if before.tools else LOOK_S)  # it may report them one after the other
                await self.read()
                now = self.offered(offered.name, offered.digest, worker)
                if now.tools and now.tools == before.tools:
                    return now
                before = now
        return offered

    def workers_of(self, offered: Offered) -> list[str]:
        """Return the names of the workers that have a plugin."""
        return sorted(seen.said.name for seen in self.directory.offering(offered.approval_key))

    async def approve(self, offered: Offered, granted: tuple[str, ...], *, always: bool) -> int:
        """Approve a plugin with its tools for the whole fleet; return the number of the decision. Raises FleetError.

        Tools that were approved before stay so: not all workers have to have all of them.
        """
        decision = Approved(
            serial=0,
            name=offered.name,
            format=offered.format,
            digest=offered.digest,
            definition=offered.definition,
            asked=offered.permissions,
            granted=granted,
            always=always,
            tools=approved_tools.digests(offered.tools),
            version=offered.version,
            description=offered.description,
        )
        before = self.trust.approvals.get(offered.approval_key)
        if before is not None:  # its files stay where they are
            decision = msgspec.structs.replace(decision, bundle=before.bundle, size=before.size)
        number = await self._decide(decision)
        if any(tool.is_async for tool in offered.tools):
            await stores.open_queue(self.link, offered.approval_key)
        return number

    async def publish(self, plugin: Plugin, digest: str, granted: tuple[str, ...], *, always: bool) -> int:
        """Store a plugin's files, and approve it for the whole fleet; return their size.

        Raises FleetError and InstallError.
        """
        data = await anyio.to_thread.run_sync(bundles.pack, plugin)
        decision = Approved(
            serial=0,
            name=plugin.name,
            format=plugin.format,
            digest=digest,
            definition=definition(plugin),
            asked=plugin.permissions,
            granted=granted,
            always=always,
            bundle=await bundles.publish(self.link, data),
            size=len(data),
            tools=approved_tools.digests(plugin.tools),
            version=plugin.version,
            description=plugin.description,
        )
        await self._decide(decision)
        if any(tool.is_async for tool in plugin.tools):
            await stores.open_queue(self.link, approval_key(digest, decision.definition))
        return len(data)

    async def revoke(self, name: str) -> list[Approved]:
        """Withdraw all approvals of plugins of that name; return them. Raises FleetError."""
        ended = [one for one in self.trust.approvals.values() if one.name == name and not one.is_revoked]
        for one in ended:
            await self._decide(msgspec.structs.replace(one, is_revoked=True))
        return ended

    async def withdraw(self, member: Member) -> None:
        """Exclude a member from the fleet. Raises FleetError."""
        await self._decide(Withdrawn(serial=0, key=member.key, name=member.name, at=0.0))

    async def publish_policies(self, policies: Policies) -> None:
        """Let all members apply policies from now on. Raises FleetError."""
        await self._decide(policies)

    async def store_secret(self, plugin: str, variable: str, value: str | None, workers: Sequence[str]) -> list[str]:
        """Store a secret for the workers of these names, else for all that offer the plugin; return their names.

        None removes it. Raises FleetError, UsageError and PluginNotFound.
        """
        self._need_admin()
        known: dict[str, str] = {}  # by name, as the certificates say it: an announcement could say any
        offering: set[str] = set()
        for seen in self.directory.workers.values():
            member = credentials.verified_member(seen.said.certificate, self.link.own.member.admin)
            if not self.trust.is_withdrawn(member.key):
                known[member.name] = member.key
                if any(one.name == plugin for one in self.directory.offered_by(seen)):
                    offering.add(member.name)
        if missing := sorted(set(workers) - known.keys()):
            there = ", ".join(sorted(known)) or "nobody"
            raise UsageError(f"no worker '{missing[0]}' is in the fleet now", f"these are: {there}")
        chosen = sorted(set(workers) or offering)
        if not chosen:
            raise PluginNotFound(plugin, [])
        for name in chosen:
            await fleet_secrets.store(self.link, known[name], plugin, variable, value)
        return chosen

    def _need_admin(self) -> None:
        own = self.link.own
        if own.member.role != "admin":
            raise FleetError(
                f"'{own.member.name}' is a {own.member.role} of the fleet, and cannot decide about it",
                "pass --credentials with the admin's file",
            )

    async def _decide(self, decision: Approved | Withdrawn | Policies) -> int:
        self._need_admin()
        if isinstance(decision, Approved) and not decision.is_revoked:
            await self.trust.read()
            decision = self._continued(decision)
        return await fleet_trust.decide(self.link, self.link.own, decision)

    def _continued(self, decision: Approved) -> Approved:
        """Return an approval with what earlier ones, which were not revoked, go on to say.

        The age of the first one decides whose tool has a name.
        """
        earlier = [
            one
            for one in self.trust.approvals.values()
            if (one.name, one.format, one.is_revoked) == (decision.name, decision.format, False)
        ]
        same = [one for one in earlier if _key_of(one) == _key_of(decision)]
        tools = {name: said for one in same for name, said in (one.tools or {}).items()}
        return msgspec.structs.replace(
            decision,
            tools={**tools, **decision.tools} if decision.tools is not None else None,
            since=min((one.since or one.at for one in earlier), default=time.time()),
        )

    def view(self) -> FleetView:
        """Return the fleet as it is now."""
        return view_of(self.link.url, self.trust, self.directory)


def _key_of(decision: Approved) -> str:
    return approval_key(decision.digest, decision.definition)


def _is_possible(described: Offered) -> bool:
    """Return whether the tools of a description are those of the definition, or reported by a running plugin."""
    return approved_tools.is_defined(described) or approved_tools.reports_tools(described.format)
