"""The JSON form of a call's result, for programs and in the list of jobs."""

from typing import Any

import msgspec

from anyplug.model.types import Result


def result_shape(result: Result) -> dict[str, Any]:
    """Return the JSON form of a call's result."""
    return {
        "tool": result.tool,
        "plugin": result.plugin,
        "format": result.format,
        "is_error": result.is_error,
        "content": [msgspec.to_builtins(block) for block in result.content],
        "text": result.text,
        "structured": result.structured,
        "metadata": result.metadata,
        "error": msgspec.to_builtins(result.error),
        "duration_ms": result.duration_ms,
    }
