"""Open a conversation on a host: a new one, or one that was stored."""

import os
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from anyplug.agent import conversation_store
from anyplug.agent.conversation_store import ConversationStore
from anyplug.agent.live_conversation import LiveConversation
from anyplug.agent.model_choice import ModelChoice, choose
from anyplug.agent.notice_routing import floor_of
from anyplug.formats.shared.contract import Greeting

if TYPE_CHECKING:
    from anyplug.catalog.catalog import Catalog
    from anyplug.host.host import Host
    from anyplug.launch.surroundings import Users

ID_BYTES = 8  # of a conversation's random id


def beginning(
    catalog: "Catalog",
    *,
    model: str = "",
    base_url: str = "",
    resume: str = "",
    cwd: str = "",
    environment: Mapping[str, str] | None = None,
) -> Greeting:
    """Return the greeting for a host that is opened for one conversation: its plugins are told of exactly that.

    Raises UsageError, ConversationNotFound, StoreError and SecretsUnusable.
    """
    settings, project = catalog.settings.chat, os.path.realpath(cwd or os.getcwd())
    known = model_keys(catalog, os.environ if environment is None else environment)
    name, stored_model = secrets.token_hex(ID_BYTES), ""
    if resume:
        stored = ConversationStore(catalog.store, settings.keep).find(resume, project)
        name, stored_model = stored.id, stored.model
    choice = choose(model or stored_model, base_url, settings, known)
    return greeting_of(choice, project, name)


def greeting_of(choice: ModelChoice, cwd: str, name: str = "") -> Greeting:
    """Return the greeting for a host that is opened for one conversation; `name` is its id, else a new one."""
    name = name or secrets.token_hex(ID_BYTES)
    return Greeting(provider=choice.provider, model=choice.name or choice.provider, cwd=cwd, session_id=name)


@asynccontextmanager
async def open_conversation(
    host: "Host",
    *,
    model: str = "",
    resume: str = "",
    kind: str = "chat",
    base_url: str = "",
    environment: Mapping[str, str] | None = None,
    users: "Users | None" = None,
    yes: bool = False,
    asks: bool = True,
) -> AsyncIterator[LiveConversation]:
    """Open a conversation, and close it at the end of the block.

    `resume` is the id of a stored one, how it begins, or `last`. `environment` has the keys of providers, instead of
    this process's own; `users` is the caller's for plugins, if it differs from the host's. `yes` answers the tier 2
    question; without `asks`, nobody can be asked. Raises UsageError, ConversationNotFound and StoreError.
    """
    settings, greeting = host.catalog.settings.chat, host.greeting
    cwd = os.path.realpath(greeting.cwd or os.getcwd())
    store = ConversationStore(host.catalog.store, settings.keep)
    variables = os.environ if environment is None else environment
    known = model_keys(host.catalog, variables)
    floor = floor_of(host)
    if resume:
        stored = store.find(resume, cwd)
        choice = choose(model or stored.model, base_url, settings, known)
    else:
        choice = choose(model, base_url, settings, known)
        is_greeted = bool(greeting.model) and not floor.greeted
        name = greeting.session_id if is_greeted else secrets.token_hex(ID_BYTES)
        stored = conversation_store.new(name, cwd, choice.text)
    await host.offer_workspace()
    tasks = anyio.create_task_group()
    await tasks.__aenter__()
    talk = LiveConversation(
        host,
        floor,
        tasks,
        store,
        stored=stored,
        choice=choice,
        kind=kind,
        environment=known,
        yes=yes,
        asks=asks,
    )
    talk.attachment.users = users
    talk.open()
    try:
        yield talk
    finally:
        with anyio.CancelScope(shield=True):
            await talk.cancel()
            await talk.release_model()
        talk.close()
        tasks.cancel_scope.cancel()
        # The body's own error must not be passed to the tasks: it would come back inside a group.
        await tasks.__aexit__(None, None, None)


def model_keys(catalog: "Catalog", environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with the keys that are stored for models; what is set wins. Raises SecretsUnusable."""
    from anyplug.agent.model_keys import stored_keys  # imports the vault, which few conversations need at first

    return {**stored_keys(catalog.secrets), **environment}
