"""Explain errors of model providers: one line, and what to do."""

import json

from pydantic_ai import exceptions

from anyplug.agent.model_choice import HOW, ModelChoice
from anyplug.agent.model_loading import KeyMissing, ProviderUnknown, variables
from anyplug.model.types import Failure
from anyplug.model.untrusted_text import for_people

LONGEST = 200  # characters of a provider's own words
AGAIN = "send it again in a moment; `/model` changes the model"
DEMO = "`/model demo` continues offline"
LIBRARIES = ("openai", "anthropic", "pydantic", "google", "groq", "mistral", "cohere", "boto", "huggingface")
CUT = ("incomplete", "peer closed", "remoteprotocol", "readerror", "reset by peer")  # words of a broken connection
DEEPEST = 6  # causes of an error

# By the kind of error, the most specific first: the code, the message and the hint. {model}, {provider}, {name}, {key},
# and {also}, which is the provider's own words.
TABLE: tuple[tuple[tuple[type[BaseException], ...], str, str, str], ...] = (
    (
        (exceptions.ModelContextWindowExceededError,),
        "too_large",
        "the conversation is too long for {model}",
        "`/new` starts a new, shorter one",
    ),
    (
        (exceptions.ModelAuthenticationError,),
        "denied",
        "{provider} refused the key for {model}{also}",
        f"check {{key}}; {DEMO}",
    ),
    ((exceptions.ModelNotFoundError,), "not_found", "{provider} has no model '{name}'{also}", f"{HOW}; {DEMO}"),
    (
        (exceptions.ModelQuotaExceededError,),
        "overloaded",
        "the quota of {provider} is used up{also}",
        f"check your account; {DEMO}",
    ),
    ((exceptions.ModelRateLimitError,), "overloaded", "{provider} limits the rate of requests{also}", AGAIN),
    (
        (exceptions.ModelTimeoutError, exceptions.ModelRequestTimeout, TimeoutError),
        "timed_out",
        "{model} did not answer in time",
        AGAIN,
    ),
    (
        (exceptions.ModelServerError, exceptions.ModelUnavailableError),
        "unavailable",
        "{provider} has an internal problem{also}",
        AGAIN,
    ),
    (
        (exceptions.ContentFilterError,),
        "denied",
        "{provider} refused to answer: its content filter",
        "say it differently",
    ),
    ((exceptions.ModelAPIError,), "unavailable", "{model} failed{also}", AGAIN),
    ((exceptions.UserError,), "usage", "{model} cannot be used{also}", HOW),
    ((exceptions.UnexpectedModelBehavior,), "bad_output", "the answer of {model} cannot be used{also}", AGAIN),
    ((ProviderUnknown,), "usage", "'{provider}' is not a provider", HOW),
)


def failure_of(error: BaseException, choice: ModelChoice, *, tells_all: bool = True) -> Failure:
    """Explain an error; one that has nothing to do with a provider is raised again.

    Without `tells_all` the provider's own words are left out: they may repeat what was redacted.
    """
    if isinstance(error, KeyMissing):
        store = f"set {error.variable}, or store it with `anyplug secret chat {error.variable}`"
        return Failure("config_missing", f"{error.provider} needs a key, and there is none", f"{store}; {DEMO}")
    if isinstance(error, ImportError):
        extra = for_people(choice.provider, LONGEST)
        install = f"`pip install 'pydantic-ai-slim[{extra}]'` installs it"
        return Failure("unavailable", f"the library of {extra} is not installed", f"{install}; {DEMO}")
    if _is_connection(error):
        return _unreachable(choice, error)
    said = _said(error) if tells_all else ""
    facts = {
        "model": choice.text,
        "provider": choice.provider,
        "name": choice.name,
        "key": variables(choice.provider)[0],
        "also": f": {said}" if said else "",
    }
    for kinds, code, message, hint in TABLE:
        if isinstance(error, kinds):
            return Failure(code, message.format(**facts), hint.format(**facts))
    if type(error).__module__.startswith(LIBRARIES):
        return Failure("unavailable", f"{choice.text} failed{facts['also'] or f': {type(error).__name__}'}", AGAIN)
    raise error


def _is_connection(error: BaseException) -> bool:
    if isinstance(error, exceptions.ModelTimeoutError | TimeoutError):
        return False
    is_transport = type(error).__module__.startswith(("httpx", "httpcore", "anyio", "ssl")) or isinstance(
        error, OSError
    )
    return is_transport or isinstance(error, exceptions.ModelConnectionError)


def _unreachable(choice: ModelChoice, error: BaseException) -> Failure:
    where = choice.base_url or choice.provider
    if any(word in _chain(error) for word in CUT):
        return Failure("unavailable", f"{where} broke off its answer", AGAIN)
    hint = "start the server, or check its address" if choice.base_url else "check the network"
    return Failure("unavailable", f"{where} cannot be reached", f"{hint}; `/model` changes the model")


def _chain(error: BaseException | None) -> str:
    """Return all that is known of an error and its causes, in lower case."""
    told = []
    for _ in range(DEEPEST):
        if error is None:
            break
        told.append(f"{type(error).__name__} {error}")
        error = error.__cause__ or error.__context__
    return " ".join(told).lower()


def _said(error: BaseException) -> str:
    """Return the provider's own words, in one line."""
    body = getattr(error, "body", None)
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError:
            return for_people(body, LONGEST)
    while isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        return for_people(body["message"], LONGEST)
    return "" if isinstance(error, exceptions.ModelHTTPError) else for_people(str(error).partition("\n")[0], LONGEST)
