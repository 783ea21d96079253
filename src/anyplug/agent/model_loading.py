"""Make the model that a conversation chose. Raises what `provider_errors` explains."""

from collections.abc import Mapping
from typing import Any

import anyio.to_thread
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class

from anyplug.agent import demo_model
from anyplug.agent.model_choice import DEMO, OPENAI_LIKE, ModelChoice
from anyplug.catalog.catalog import Catalog

KEYS = {"google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"), "google-gla": ("GOOGLE_API_KEY", "GEMINI_API_KEY")}
KEYLESS = frozenset({"ollama", "bedrock", "google-vertex", "vllm", "litellm"})  # local or with other credentials
NO_KEY = "none"  # local servers require some key, and accept any


class KeyMissing(Exception):
    """A provider's key is not there."""

    def __init__(self, provider: str, variable: str) -> None:
        super().__init__(f"{provider} needs a key")
        self.provider = provider
        self.variable = variable


class ProviderUnknown(Exception):
    """No provider has that name."""


async def load(choice: ModelChoice, environment: Mapping[str, str], catalog: Catalog) -> Model:
    """Make a model; importing its provider takes seconds, so that is done in a thread."""
    if choice.provider == DEMO:
        return demo_model.model()
    return await anyio.to_thread.run_sync(_make, choice, environment)


def _make(choice: ModelChoice, environment: Mapping[str, str]) -> Model:
    if choice.base_url and choice.provider in {OPENAI_LIKE, "ollama", "vllm", "litellm"}:
        from pydantic_ai.models.openai import OpenAIChatModel  # seconds, as every provider
        from pydantic_ai.providers.openai import OpenAIProvider

        key = environment.get("OPENAI_API_KEY") or NO_KEY
        return OpenAIChatModel(choice.name, provider=OpenAIProvider(base_url=choice.base_url, api_key=key))

    def provider_of(name: str) -> Provider[Any]:
        try:
            made = infer_provider_class(name)
        except ValueError as error:
            raise ProviderUnknown(name) from error
        variable = next((one for one in variables(name) if environment.get(one)), "")
        if variable:
            options: dict[str, Any] = {"api_key": environment[variable]}
            if choice.base_url:
                options["base_url"] = choice.base_url
            if name == "anthropic" and (url := choice.base_url or environment.get("ANTHROPIC_BASE_URL")):
                options["base_url"] = url
            return made(**options)
        if name in KEYLESS:
            return made()
        raise KeyMissing(name, variables(name)[0])

    return infer_model(f"{choice.provider}:{choice.name}", provider_of)


def variables(provider: str) -> tuple[str, ...]:
    """Return the variables that may have a provider's key."""
    plain = provider.removesuffix("-chat").removesuffix("-responses")
    return KEYS.get(plain, (f"{plain.upper().replace('-', '_')}_API_KEY",))
