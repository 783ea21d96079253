"""anyplug: one host that runs the plugins of every agent.

>>> async with Host(plugins=["examples/word-count"]) as host:
...     result = await host.call("word_count", {"text": "one two"})

Names are imported on first use, so that the command line pays only for what it needs.
"""

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 7 ms of a start
if TYPE_CHECKING:
    from typing import Any

    from anyplug.call.chains import BadChain as BadChain
    from anyplug.call.chains import ChainOutcome as ChainOutcome
    from anyplug.call.chains import Step as Step
    from anyplug.call.consent import Answer as Answer
    from anyplug.call.consent import Ask as Ask
    from anyplug.call.consent import Attachment as Attachment
    from anyplug.call.consent import Question as Question
    from anyplug.call.slash_commands import CommandOutcome as CommandOutcome
    from anyplug.catalog.catalog import Catalog as Catalog
    from anyplug.catalog.snapshot import Entry as Entry
    from anyplug.formats.shared.contract import Greeting as Greeting
    from anyplug.home.settings import find_home as find_home
    from anyplug.host.host import Host as Host
    from anyplug.host.sync_host import SyncHost as SyncHost
    from anyplug.model.errors import AnyplugError as AnyplugError
    from anyplug.model.types import Audio as Audio
    from anyplug.model.types import Block as Block
    from anyplug.model.types import Command as Command
    from anyplug.model.types import Elicitation as Elicitation
    from anyplug.model.types import Elicited as Elicited
    from anyplug.model.types import Failure as Failure
    from anyplug.model.types import File as File
    from anyplug.model.types import Image as Image
    from anyplug.model.types import Note as Note
    from anyplug.model.types import NotesCleared as NotesCleared
    from anyplug.model.types import Plugin as Plugin
    from anyplug.model.types import Problem as Problem
    from anyplug.model.types import Resource as Resource
    from anyplug.model.types import Result as Result
    from anyplug.model.types import Sampling as Sampling
    from anyplug.model.types import SlashSubmitted as SlashSubmitted
    from anyplug.model.types import Submitted as Submitted
    from anyplug.model.types import Text as Text
    from anyplug.model.types import Tool as Tool
    from anyplug.peers.guards import Ruling as Ruling
    from anyplug.peers.notices import Notice as Notice
    from anyplug.peers.notices import PanelChanged as PanelChanged
    from anyplug.peers.notices import SnapshotChanged as SnapshotChanged
    from anyplug.peers.panels import Panel as Panel

__version__ = "0.1.0"

_EXPORTS = {
    "BadChain": "anyplug.call.chains",
    "ChainOutcome": "anyplug.call.chains",
    "Step": "anyplug.call.chains",
    "CommandOutcome": "anyplug.call.slash_commands",
    "AnyplugError": "anyplug.model.errors",
    "Greeting": "anyplug.formats.shared.contract",
    "Answer": "anyplug.call.consent",
    "Ask": "anyplug.call.consent",
    "Attachment": "anyplug.call.consent",
    "Question": "anyplug.call.consent",
    "Host": "anyplug.host.host",
    "SyncHost": "anyplug.host.sync_host",
    "Ruling": "anyplug.peers.guards",
    "Audio": "anyplug.model.types",
    "Block": "anyplug.model.types",
    "Command": "anyplug.model.types",
    "Failure": "anyplug.model.types",
    "Elicitation": "anyplug.model.types",
    "Elicited": "anyplug.model.types",
    "File": "anyplug.model.types",
    "Image": "anyplug.model.types",
    "Plugin": "anyplug.model.types",
    "Problem": "anyplug.model.types",
    "Resource": "anyplug.model.types",
    "Result": "anyplug.model.types",
    "Sampling": "anyplug.model.types",
    "Text": "anyplug.model.types",
    "Tool": "anyplug.model.types",
    "Note": "anyplug.model.types",
    "NotesCleared": "anyplug.model.types",
    "Notice": "anyplug.peers.notices",
    "PanelChanged": "anyplug.peers.notices",
    "SlashSubmitted": "anyplug.model.types",
    "SnapshotChanged": "anyplug.peers.notices",
    "Submitted": "anyplug.model.types",
    "Panel": "anyplug.peers.panels",
    "Catalog": "anyplug.catalog.catalog",
    "Entry": "anyplug.catalog.snapshot",
    "find_home": "anyplug.home.settings",
}

__all__ = ["__version__", *_EXPORTS]  # noqa: PLE0604 - the keys are strings


def __getattr__(name: str) -> "Any":
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'anyplug' has no attribute {name!r}")
    from importlib import import_module  # only for those who use the library's names

    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
