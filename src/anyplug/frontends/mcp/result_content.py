"""Results and outcomes as MCP messages. Plain dicts with the protocol's own keys; imports no SDK."""

import os
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from anyplug.call.slash_commands import CommandOutcome
from anyplug.model import hints, schema
from anyplug.model.types import Audio, Block, Failure, File, Image, Resource, Result, Text
from anyplug.model.untrusted_text import for_models

INLINE_BYTES = 65_536  # a file up to this size is embedded; a larger one would fill an agent's context
ERROR, METADATA, QUESTION = "anyplug/error", "anyplug/metadata", "anyplug/question"  # our keys in `_meta`
UNKNOWN_TYPE = "application/octet-stream"
MOST_BROKEN = 3  # violations of its own schema that are listed
Wire = dict[str, Any]


def tool_result(result: Result, output_schema: dict[str, Any] | None, *, is_modern: bool) -> Wire:
    """Convert a call's result. Content is passed on unchanged; our errors tell what to do, and carry their code."""
    content = [_block(block) for block in result.content]
    error = _told(result.error) if result.error is not None else None
    structured, is_error = result.structured, result.is_error
    content += [{"type": "text", "text": f"[anyplug] {remark}"} for remark in result.remarks]
    if output_schema is not None and structured is None and "kept" in result.metadata:
        is_error = True  # clients reject an answer without the structured form, unless it is an error
    elif output_schema is not None and not is_error and (broken := schema.violations(output_schema, structured)):
        # Clients reject the whole answer if it violates the declared schema, unless it is an error.
        why = f"the result violates the tool's own schema: {'; '.join(broken[:MOST_BROKEN])}"
        error, is_error = Failure("bad_output", why, "the tool's output is above, unchanged"), True
    if error is not None and error.code != "tool_error":
        content += [{"type": "text", "text": line} for line in _explained(error, result)]
    elif error is not None:
        content = content or [{"type": "text", "text": error.message}]
        content += [{"type": "text", "text": f"hint: {error.hint}"}] if error.hint else []
    meta: Wire = {ERROR: _failure(error)} if error is not None else {}
    if result.metadata:
        meta[METADATA] = result.metadata
    return {
        "content": content,
        **({"structuredContent": structured} if _may_go(structured, is_modern) else {}),
        "isError": is_error,
        **({"_meta": meta} if meta else {}),
        "resultType": "complete",
    }


def text_result(text: str, structured: Wire | None = None) -> Wire:
    """Build an answer of our own."""
    return {
        "content": [{"type": "text", "text": text}],
        **({"structuredContent": structured} if structured is not None else {}),
        "isError": False,
        "resultType": "complete",
    }


def refusal(error: Failure, metadata: Wire | None = None) -> Wire:
    """Build the answer for a call that did not reach a host."""
    result = Result(content=(Text(error.message),), is_error=True, error=error, metadata=metadata or {})
    return tool_result(result, None, is_modern=False)


def prompt_result(outcome: CommandOutcome) -> Wire:
    """Convert a slash command's outcome: text to send is the user's, text to show is not."""
    about = outcome.description or f"{outcome.command} of plugin {outcome.plugin}: {outcome.action}"
    if outcome.messages:
        messages = [{"role": one.role, "content": _block(one.content)} for one in outcome.messages]
        return {"description": about, "messages": messages, "resultType": "complete"}
    said = for_models(outcome.text) or f"{outcome.command} ran and returned nothing."
    role = "user" if outcome.action in {"prompt", "insert"} else "assistant"
    return {
        "description": about,
        "messages": [{"role": role, "content": {"type": "text", "text": said}}],
        "resultType": "complete",
    }


def resource_result(result: Result, uri: str, named: Callable[[str], str]) -> Wire:
    """Convert what a resource holds; `named` says under which URI the client gets a content."""
    contents = []
    for block in result.content:
        if isinstance(block, Resource):
            kind = {"mimeType": for_models(block.mime_type)} if block.mime_type else {}
            contents.append(
                {"uri": named(block.uri), **kind, **({"blob": block.data} if block.data else {"text": block.text})}
            )
    contents += [{"uri": uri, "mimeType": "text/plain", "text": f"[anyplug] {remark}"} for remark in result.remarks]
    return {"contents": contents, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def failure_data(error: Failure) -> Wire:
    """Return an error as the `data` of a JSON-RPC error."""
    return _failure(_told(error))


def _told(error: Failure) -> Failure:
    """Return an error for an agent, which cannot type the commands of its hint."""
    return msgspec.structs.replace(error, hint=hints.for_agents(error.hint))


def _failure(error: Failure) -> Wire:
    return {"code": error.code, "message": error.message, "hint": error.hint}


def _explained(error: Failure, result: Result) -> list[str]:
    """Describe an error in words, without what the content already contains."""
    said = any(isinstance(block, Text) and error.message in block.text for block in result.content)
    hint = f"hint: {error.hint}\n" if error.hint else ""
    return [f"{'' if said else error.message + chr(10)}{hint}({error.code})"]


def _may_go(structured: Any, is_modern: bool) -> bool:
    """Return whether a structured result can be sent: the older era supports only objects."""
    return isinstance(structured, dict) or (is_modern and structured is not None)


def _block(block: Block) -> Wire:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Image():
            return {"type": "image", "data": block.data, "mimeType": block.mime_type}
        case Audio():
            return {"type": "audio", "data": block.data, "mimeType": block.mime_type}
        case Resource():
            return _resource(block)
        case File():
            return _file(block)


def _resource(block: Resource) -> Wire:
    kind = {"mimeType": block.mime_type} if block.mime_type else {}
    if block.data:
        return {"type": "resource", "resource": {"uri": block.uri, **kind, "blob": block.data}}
    if block.text:
        return {"type": "resource", "resource": {"uri": block.uri, **kind, "text": block.text}}
    about = {"description": block.description} if block.description else {}
    return {"type": "resource_link", "uri": block.uri, "name": block.name or block.uri, **kind, **about}


def _file(block: File) -> Wire:
    """Convert a file: embedded if it is small, otherwise as a link."""
    uri, kind = f"file://{quote(block.path)}", {"mimeType": block.mime_type or UNKNOWN_TYPE}
    try:
        size = os.stat(block.path).st_size
        if size <= INLINE_BYTES:
            with open(block.path, "rb") as file:
                return {"type": "resource", "resource": {"uri": uri, **kind, **_held(file.read(INLINE_BYTES))}}
    except OSError:
        return {"type": "text", "text": f"the file {block.path} can no longer be read"}
    return {"type": "resource_link", "uri": uri, "name": block.name, **kind, "size": size}


def _held(data: bytes) -> Wire:
    from base64 import b64encode  # takes 6 ms to import, and few tools return files

    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"blob": b64encode(data).decode()}


def encoded(message: Wire) -> bytes:
    """Encode a message as a line; one that cannot be encoded becomes an error, so that nobody waits for it."""
    try:
        return msgspec.json.encode(message) + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        failed = {"code": -32603, "message": f"the answer cannot be written as JSON: {error}"}
        return msgspec.json.encode({"jsonrpc": "2.0", "id": message.get("id"), "error": failed}) + b"\n"
