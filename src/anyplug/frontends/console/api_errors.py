"""Errors as the API answers them: our codes, and the HTTP status that fits each."""

from typing import Any, Final

from anyplug.call.open_questions import AlreadyAnswered
from anyplug.frontends.console.question_shapes import answered_shape
from anyplug.model.errors import AnyplugError

STATUS: Final = {
    "usage": 400,
    "invalid_arguments": 400,
    "bad_config": 400,
    "bad_manifest": 400,
    "install_failed": 400,
    "config_missing": 400,
    "not_executable": 400,
    "denied": 403,
    "not_approved": 403,
    "disabled": 403,
    "not_enforceable": 403,
    "needs_answer": 403,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "overloaded": 429,
    "unavailable": 503,
    "lost": 503,
}
OTHERS: Final = 500
NO_SESSION: Final = 401


class Conflict(AnyplugError):
    """Something is not as the caller saw it."""

    code = "conflict"


class Busy(AnyplugError):
    """A call found no place among those that run or wait."""

    code = "overloaded"

    def __init__(self, message: str, hint: str, wait_s: int) -> None:
        super().__init__(message, hint)
        self.wait_s = wait_s


class OnlyPeople(AnyplugError):
    """A program asked for what only a person may decide."""

    code = "denied"

    def __init__(self) -> None:
        super().__init__(
            "only a person may decide this, in the console's own page; a token may not",
            "`anyplug ui` opens the console",
        )


class NotThePage(AnyplugError):
    """A cookie came without the key of the page that it belongs to."""

    code = "denied"

    def __init__(self) -> None:
        super().__init__("the request does not come from the page that `anyplug ui` opened", "run `anyplug ui` again")


class NothingHere(AnyplugError):
    """There is nothing at a path or of a name."""

    code = "not_found"


def status_of(error: AnyplugError) -> int:
    """Return the HTTP status of an error."""
    return NO_SESSION if isinstance(error, NotThePage) else STATUS.get(error.code, OTHERS)


def error_shape(error: AnyplugError) -> dict[str, Any]:
    """Return the body of an error answer."""
    shape: dict[str, Any] = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    if isinstance(error, Busy):
        shape["error"]["retry_after_s"] = error.wait_s
    if isinstance(error, AlreadyAnswered):
        shape["answered"] = answered_shape(error.answered)
    return shape
