"""File arguments of a call: their paths below /tmp/NAME take their place, and the files go there."""

from typing import Any

from anyplug.model.errors import InvalidArguments
from anyplug.model.types import Call
from anyplug.runtime.processes.program import Input

LARGEST_INPUT = 25 << 20  # bytes of all files of one call


def is_file(value: Any) -> bool:
    """Return whether an argument is a file: exactly a name and base64 data."""
    return (
        isinstance(value, dict)
        and set(value) == {"filename", "data"}
        and all(isinstance(v, str) for v in value.values())
    )


def read(call: Call, folder: str) -> tuple[dict[str, Any], tuple[Input, ...]]:
    """Return the arguments, with files replaced by their paths in a folder, and the files; raises InvalidArguments."""
    import base64  # takes 6 ms to import, and only calls need it

    arguments, inputs, total = dict(call.arguments), {}, 0
    for name, value in call.arguments.items():
        if not is_file(value):
            continue
        filename = value["filename"]
        if not filename or filename in {".", ".."} or "/" in filename or "\0" in filename:
            raise InvalidArguments(call.tool.name, [f'Invalid filename in file parameter "{name}"'])
        if filename in inputs:
            raise InvalidArguments(call.tool.name, [f'Two file parameters have the filename "{filename}"'])
        try:
            data = base64.b64decode(value["data"])
        except ValueError as error:
            raise InvalidArguments(
                call.tool.name, [f'The data of file parameter "{name}" is not base64: {error}']
            ) from error
        total += len(data)
        if total > LARGEST_INPUT:
            raise InvalidArguments(
                call.tool.name, [f"Input files exceed the maximum allowed size ({LARGEST_INPUT >> 20} MiB)"]
            )
        inputs[filename] = Input(name, filename, data)
        arguments[name] = f"{folder}/{filename}"
    return arguments, tuple(inputs.values())
