"""Choose a conversation's model: from `--model`, the settings, the available keys, else `demo`.

Imports nothing heavy: `model_loading` makes the model.
"""

import os
from collections.abc import Mapping

import msgspec

from anyplug.home.settings import ChatSettings
from anyplug.model.errors import UsageError

DEMO = "demo"
OPENAI_LIKE = "openai"  # whatever speaks its chat completions protocol
# By the variable of a provider's key: the model that is used if nobody names one.
USUAL = {"ANTHROPIC_API_KEY": "anthropic:claude-sonnet-5-5", "OPENAI_API_KEY": "openai:gpt-5.4-mini"}
HOW = "a model is written provider:name, such as anthropic:claude-sonnet-5-5, or openai:NAME@http://localhost:11434/v1"


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A model, by name."""

    provider: str
    name: str = ""
    base_url: str = ""  # of an OpenAI-compatible server

    @property
    def text(self) -> str:
        """The model as `--model` takes it."""
        if self.provider == DEMO:
            return DEMO
        return f"{self.provider}:{self.name}" + (f"@{self.base_url}" if self.base_url else "")


def parse(text: str, base_url: str = "") -> ModelChoice:
    """Read a model's name as people write it. Raises UsageError."""
    text, _, named_url = text.strip().partition("@http")
    base_url = f"http{named_url}" if named_url else base_url
    if text == DEMO:
        return ModelChoice(provider=DEMO)
    provider, colon, name = text.partition(":")
    if not colon:
        provider, name = (OPENAI_LIKE, text) if base_url else ("", text)
    if not provider or not name:
        raise UsageError(f"'{text}' is not a model", HOW)
    if base_url and not base_url.startswith(("http://", "https://")):
        raise UsageError(f"'{base_url}' is not the address of a model server", "it begins with http:// or https://")
    return ModelChoice(provider=provider, name=name, base_url=base_url)


def choose(
    given: str, base_url: str, settings: ChatSettings, environment: Mapping[str, str] | None = None
) -> ModelChoice:
    """Choose a conversation's model. Raises UsageError if the named one is invalid."""
    variables = os.environ if environment is None else environment
    base_url = base_url or settings.base_url
    if given or settings.model:
        return parse(given or settings.model, base_url)
    return next((parse(usual) for key, usual in USUAL.items() if variables.get(key)), ModelChoice(provider=DEMO))
