"""The place of one process of a long-running plugin: its present process, and its history."""

import os
from typing import TYPE_CHECKING, Literal

import anyio
import msgspec

from anyplug.catalog.approvals import Rights
from anyplug.model.types import Offer, Plugin

if TYPE_CHECKING:
    from anyplug.formats.shared.contract import Peer
    from anyplug.model.errors import NotEnforceable
    from anyplug.runtime.session.session import Session

Health = Literal["idle", "running", "restarting", "given_up"]


class Wanted(msgspec.Struct, frozen=True):
    """A plugin that should be running, in its present form."""

    plugin: Plugin
    digest: str
    rights: Rights
    settings: tuple[object, ...] = ()  # kept from its start on
    at_once: bool = True  # False: only when first needed, if its offer is known


class Slot:
    """The slot of one process."""

    def __init__(self, wanted: Wanted, process: str, offer: Offer | None, replaced: "Slot | None") -> None:
        """`offer` is what this digest offered in its last run."""
        self.plugin = wanted.plugin
        self.digest = wanted.digest
        self.rights = wanted.rights
        self.settings = wanted.settings
        self.process = process
        self.is_known = offer is not None  # its offer, from this digest's own registrations
        self.has_said_all = offer is not None and offer.is_whole  # in this run or an earlier one
        # Its predecessor's, until it has registered its own.
        self.offer: Offer | None = offer or (replaced.offer if replaced else None)
        # What it or its predecessor has guarded so far.
        inherited = replaced.guarded if replaced else frozenset()
        self.guarded: frozenset[str] = frozenset(offer.intercepts) if offer else inherited
        self.over = anyio.Event()  # its task has ended, and with it the process
        # What must end first: a process that has not ended yet may itself wait for others.
        replaces = (replaced, *replaced.before) if replaced else ()
        self.before: tuple[Slot, ...] = tuple(place for place in replaces if not place.over.is_set())
        self.peer: Peer | None = None
        self.session: Session | None = None  # of the present run, else of the last one
        self.run = ""  # a name for the present run, else for the last one
        self.health: Health = "idle"
        self.reason = ""  # why it is not running
        self.refusal: NotEnforceable | None = None  # why it may not run
        self.restarts = 0
        self.crashes = 0  # in a row
        self.cool_downs = 0  # since it was given up
        self.answers = 0  # good ones, in this run
        self.came_up = False  # in its last run, if that has ended
        self.settled = anyio.Event()  # it is running, or the attempt to start it failed
        self.scope = anyio.CancelScope()  # of that task
        self.is_ending = False  # the process is gone and is not restarted by itself; the task has yet to notice

    @property
    def on_duty(self) -> "Peer | None":
        """The process to ask: the present one, else the one that it replaces and that has not ended yet."""
        return self.peer or next((place.peer for place in self.before if place.peer is not None), None)

    @property
    def may_offer_more(self) -> bool:
        """Whether it may yet register something unknown."""
        if self.peer is not None:
            return not self.peer.has_said_all
        is_new = self.offer is None or not self.offer.is_whole
        return is_new and self.health != "given_up" and not self.crashes

    @property
    def is_unused(self) -> bool:
        """Whether it was never started, because it was not needed."""
        return self.health == "idle" and not self.over.is_set()

    @property
    def is_coming_up(self) -> bool:
        """Whether it is starting for the first time, so that its future state is unknown."""
        return self.peer is None and self.health == "restarting" and not self.reason

    @property
    def is_coming_back(self) -> bool:
        """Whether it ran and ended, and is restarted: after a pause, or when it is next needed."""
        return self.peer is None and self.came_up and self.health in {"restarting", "idle"}

    @property
    def is_free(self) -> bool:
        """Whether everything that it replaces has ended."""
        return all(place.over.is_set() for place in self.before)

    @property
    def is_serving(self) -> bool:
        """Whether its process takes calls now."""
        peer = self.peer
        return (
            peer is not None
            and not self.is_ending
            and self.refusal is None
            and (peer.session is None or not peer.session.is_given_up)
        )

    @property
    def is_busy(self) -> bool:
        """Whether it has running calls, or anything else that somebody waits for."""
        peer = self.peer
        return peer is not None and (bool(peer.active) or (peer.session is not None and peer.session.is_asked))

    def is_for(self, wanted: Wanted) -> bool:
        """Return whether the right process runs here: the same code, with the same rights and settings."""
        return (self.digest, self.rights, self.settings) == (wanted.digest, wanted.rights, wanted.settings)

    @property
    def offer_now(self) -> Offer | None:
        """What it offers, with the reason if it was started but is not running."""
        if self.peer is not None or not self.reason:
            return self.offer
        return msgspec.structs.replace(self.offer or Offer(), fault=self.reason)

    def begin(self) -> None:
        """Mark it as starting, perhaps again."""
        if self.over.is_set():  # it ran before, and was not needed until now
            self.scope, self.over, self.settled = anyio.CancelScope(), anyio.Event(), anyio.Event()
        self.health = "restarting"

    def fill(self, peer: "Peer") -> None:
        """Put a running peer here."""
        self.peer, self.session, self.health, self.reason = peer, peer.session, "running", ""
        self.run = os.urandom(8).hex()

    def lose(self, peer: "Peer") -> None:
        """Remove the peer, which has just ended by itself."""
        self.peer, self.health, self.settled = None, "restarting", anyio.Event()
        self.is_ending = not peer.RESTARTS

    def empty(self) -> None:
        """Remove the peer, which was told to end and has."""
        self.health, self.reason, self.before = "idle", "it was stopped", ()
        self.over.set()
        self.settled.set()

    def take(self, offer: Offer) -> None:
        """Store what it offers now. What it guarded before it still guards, until it has registered everything."""
        self.offer, self.is_known = offer, True
        self.has_said_all = self.has_said_all or offer.is_whole
        guarded = frozenset(offer.intercepts)
        self.guarded = guarded if offer.is_whole else self.guarded | guarded

    def guards(self, event: str) -> bool:
        """Return whether it decides about an event; one that has never named any may decide about all."""
        return not self.guarded or event in self.guarded
