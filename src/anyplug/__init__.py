"""anyplug: one host that runs the plugins of every agent.

>>> async with Host(plugins=["examples/word-count"]) as host:
...     result = await host.call("word_count", {"text": "one two"})

Names are imported on first use, so that the command line pays only for what it needs.
"""

TYPE_CHECKING = False  # type checkers know the name, and `typing` takes 7 ms of a start
if TYPE_CHECKING:
    from typing import Any

    from anyplug.chains import ChainOutcome as ChainOutcome
    from anyplug.chains import Step as Step
    from anyplug.commands import CommandOutcome as CommandOutcome
    from anyplug.errors import AnyplugError as AnyplugError
    from anyplug.formats.contract import Greeting as Greeting
    from anyplug.gate import Answer as Answer
    from anyplug.gate import Ask as Ask
    from anyplug.gate import Attachment as Attachment
    from anyplug.gate import Question as Question
    from anyplug.host import Host as Host
    from anyplug.interception import Ruling as Ruling
    from anyplug.model import Audio as Audio
    from anyplug.model import Block as Block
    from anyplug.model import Command as Command
    from anyplug.model import Failure as Failure
    from anyplug.model import File as File
    from anyplug.model import Image as Image
    from anyplug.model import Plugin as Plugin
    from anyplug.model import Problem as Problem
    from anyplug.model import Resource as Resource
    from anyplug.model import Result as Result
    from anyplug.model import Text as Text
    from anyplug.model import Tool as Tool
    from anyplug.notices import Note as Note
    from anyplug.notices import NotesCleared as NotesCleared
    from anyplug.notices import Notice as Notice
    from anyplug.notices import PanelChanged as PanelChanged
    from anyplug.notices import SlashSubmitted as SlashSubmitted
    from anyplug.notices import SnapshotChanged as SnapshotChanged
    from anyplug.notices import Submitted as Submitted
    from anyplug.panels import Panel as Panel
    from anyplug.registry import Entry as Entry

__version__ = "0.1.0"

_EXPORTS = {
    "ChainOutcome": "anyplug.chains",
    "Step": "anyplug.chains",
    "CommandOutcome": "anyplug.commands",
    "AnyplugError": "anyplug.errors",
    "Greeting": "anyplug.formats.contract",
    "Answer": "anyplug.gate",
    "Ask": "anyplug.gate",
    "Attachment": "anyplug.gate",
    "Question": "anyplug.gate",
    "Host": "anyplug.host",
    "Ruling": "anyplug.interception",
    "Audio": "anyplug.model",
    "Block": "anyplug.model",
    "Command": "anyplug.model",
    "Failure": "anyplug.model",
    "File": "anyplug.model",
    "Image": "anyplug.model",
    "Plugin": "anyplug.model",
    "Problem": "anyplug.model",
    "Resource": "anyplug.model",
    "Result": "anyplug.model",
    "Text": "anyplug.model",
    "Tool": "anyplug.model",
    "Note": "anyplug.notices",
    "NotesCleared": "anyplug.notices",
    "Notice": "anyplug.notices",
    "PanelChanged": "anyplug.notices",
    "SlashSubmitted": "anyplug.notices",
    "SnapshotChanged": "anyplug.notices",
    "Submitted": "anyplug.notices",
    "Panel": "anyplug.panels",
    "Entry": "anyplug.registry",
}

__all__ = ["__version__", *_EXPORTS]  # noqa: PLE0604 - the keys are strings


def __getattr__(name: str) -> "Any":
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'anyplug' has no attribute {name!r}")
    from importlib import import_module  # only for those who use the library's names

    return getattr(import_module(module), name)
