"""What a fleet's admin does: credentials for its members, decisions about plugins; and what anybody may look at."""

import base64
import os
from collections.abc import Sequence
from contextlib import suppress

import anyio.to_thread
import msgspec

from anyplug.catalog.approvals import definition
from anyplug.fleet import bundles, credentials, fleet_secrets, fleet_trust, stores
from anyplug.fleet.credentials import ROLES, Credentials, Member, Role
from anyplug.fleet.directory import Directory
from anyplug.fleet.fleet_trust import Trust
from anyplug.fleet.messages import Approved, Offered, Policies, Withdrawn, approval_key
from anyplug.fleet.nats_link import FleetError, Link
from anyplug.fleet.overview import FleetView, view_of
from anyplug.fleet.server_config import server_config
from anyplug.model.errors import ConfigError, PluginNotFound, UsageError
from anyplug.model.types import Plugin

MEMBERS = "members.json"  # the certificates of all members, so that their files may be moved away
SERVER = "fleet.conf"
PRIVATE = 0o600


def write_credentials(folder: str, wanted: Sequence[tuple[Role, str]], prefix: str) -> list[str]:
    """Create the members that are missing, and the configuration of the server; return the files that were written.

    Raises ConfigError and UsageError.
    """
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
        self.directory = Directory(link, lambda: None)

    async def read(self) -> None:
        """Read what is announced and decided. Raises FleetError."""
        await self.trust.read()
        await self.directory.read()

    def offered(self, name: str, digest: str = "") -> Offered:
        """Return the plugin of that name which workers offer. Raises PluginNotFound and UsageError."""
        found: dict[str, Offered] = {}
        for seen in self.directory.workers.values():
            for one in self.directory.offered_by(seen):
                if one.name == name and one.digest.startswith(digest):
                    found[one.approval_key] = one
        if not found:
            raise PluginNotFound(name, [])
        if len(found) > 1:
            digests = ", ".join(sorted(one.digest[:12] for one in found.values()))
            raise UsageError(f"workers offer different versions of '{name}'", f"pass --digest with one of {digests}")
        return next(iter(found.values()))

    def workers_of(self, offered: Offered) -> list[str]:
        """Return the names of the workers that have a plugin."""
        return sorted(seen.said.name for seen in self.directory.offering(offered.approval_key))

    async def approve(self, offered: Offered, granted: tuple[str, ...], *, always: bool) -> int:
        """Approve a plugin for the whole fleet; return the number of the decision. Raises FleetError."""
        decision = Approved(
            serial=0,
            name=offered.name,
            format=offered.format,
            digest=offered.digest,
            definition=offered.definition,
            asked=offered.permissions,
            granted=granted,
            always=always,
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
        return await fleet_trust.decide(self.link, self.link.own, decision)

    def view(self) -> FleetView:
        """Return the fleet as it is now."""
        return view_of(self.link.url, self.trust, self.directory)
