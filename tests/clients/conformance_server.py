# ruff: noqa: C901 - one case for each thing that the suite asks for
"""What the MCP conformance suite asks of a server, as an MCP server in plain Python, on stdin and stdout."""

import json
import sys
import time

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
PAUSE_S = 0.05  # between messages, as the suite wants it
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
EMBEDDED = {
    "uri": "test://embedded-resource",
    "mimeType": "text/plain",
    "text": "This is an embedded resource content.",
}
MIXED = {"uri": "test://mixed-content-resource", "mimeType": "application/json", "text": '{"test":"data","value":123}'}
SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
TITLED = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)]
OPTIONS = ["option1", "option2", "option3"]
FORMS = {
    "test_elicitation_sep1034_defaults": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
    "test_elicitation_sep1330_enums": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": TITLED},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
    },
}
CONTENT = {
    "test_simple_text": [{"type": "text", "text": "This is a simple text response for testing."}],
    "test_image_content": [IMAGE],
    "test_audio_content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    "test_embedded_resource": [{"type": "resource", "resource": EMBEDDED}],
    "test_multiple_content_types": [
        {"type": "text", "text": "Multiple content types test:"},
        IMAGE,
        {"type": "resource", "resource": MIXED},
    ],
}
ASKING = {"test_sampling": "prompt", "test_elicitation": "message"}
OTHERS = ["test_tool_with_logging", "test_tool_with_progress", "test_error_handling", *FORMS]
PROMPTS = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
}
CAPABILITIES = {"tools": {}, "prompts": {}, "completions": {}, "logging": {}, "resources": {"subscribe": True}}


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def ask(method, params):
    """Ask the client, and wait for its answer; other messages are answered meanwhile."""
    send(id=f"ask-{method}", method=method, params=params)
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == f"ask-{method}" and "method" not in message:
            return message
        handle(message)
    sys.exit()


def text(said, **more):
    return {"content": [{"type": "text", "text": said}], **more}


def call(name, given, meta):
    if name in CONTENT:
        return {"content": CONTENT[name]}
    if name == "test_error_handling":
        return text("This tool intentionally returns an error for testing", isError=True)
    if name == "test_tool_with_logging":
        for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            send(method="notifications/message", params={"level": "info", "data": said})
            time.sleep(PAUSE_S)
        return text("logged")
    if name == "test_tool_with_progress":
        for done in (0, 50, 100):
            if "progressToken" in meta:
                params = {"progressToken": meta["progressToken"], "progress": done, "total": 100}
                send(method="notifications/progress", params=params)
            time.sleep(PAUSE_S)
        return text("done")
    if name == "test_sampling":
        message = {"role": "user", "content": {"type": "text", "text": given["prompt"]}}
        answer = ask("sampling/createMessage", {"messages": [message], "maxTokens": 100})
        if "error" in answer:
            return text(answer["error"]["message"], isError=True)
        return text(f"LLM response: {answer['result']['content']['text']}")
    if name in FORMS or name == "test_elicitation":
        fields = FORMS.get(name, {"username": {"type": "string"}, "email": {"type": "string"}})
        schema = {"type": "object", "properties": fields, "required": [] if name in FORMS else list(fields)}
        answer = ask("elicitation/create", {"message": given.get("message", "Please."), "requestedSchema": schema})
        said = answer.get("result", {})
        return text(f"Elicitation completed: action={said.get('action')}, content={json.dumps(said.get('content'))}")
    return text(f"no tool {name}", isError=True)


def tools():
    plain = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in [*CONTENT, *OTHERS]]
    asking = [
        {"name": name, "description": name, "inputSchema": {
            "type": "object", "properties": {key: {"type": "string"}}, "required": [key]}}
        for name, key in ASKING.items()
    ]  # fmt: skip
    schema = {"name": "json_schema_2020_12_tool", "description": "2020-12", "inputSchema": SCHEMA_2020}
    return [*plain, *asking, schema]


def read(uri):
    if uri == "test://static-binary":
        return {"uri": uri, "mimeType": "image/png", "blob": PNG}
    if uri.startswith("test://template/"):
        number = uri.split("/")[3]
        held = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
        return {"uri": uri, "mimeType": "application/json", "text": json.dumps(held)}
    return {"uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource."}


def prompt(name, given):
    said = {"type": "text", "text": "This is a simple prompt for testing."}
    contents = [said]
    if name == "test_prompt_with_arguments":
        contents = [{"type": "text", "text": f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"}]
    elif name == "test_prompt_with_image":
        contents = [IMAGE, {"type": "text", "text": "Please analyze the image above."}]
    elif name == "test_prompt_with_embedded_resource":
        held = {"uri": given["resourceUri"], "mimeType": "text/plain", "text": "Embedded resource content for testing."}
        contents = [
            {"type": "resource", "resource": held},
            {"type": "text", "text": "Please process the embedded resource above."},
        ]
    return [{"role": "user", "content": one} for one in contents]


def answer(method, given):
    match method:
        case "initialize":
            about = {"name": "conformance", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": about}
        case "tools/list":
            return {"tools": tools()}
        case "tools/call":
            return call(given["name"], given.get("arguments") or {}, given.get("_meta") or {})
        case "resources/list":
            named = {"static-text": "text/plain", "static-binary": "image/png", "watched-resource": "text/plain"}
            return {"resources": [
                {"uri": f"test://{name}", "name": name, "description": name, "mimeType": kind}
                for name, kind in named.items()
            ]}  # fmt: skip
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": "test://template/{id}/data", "name": "template"}]}
        case "resources/read":
            return {"contents": [read(given["uri"])]}
        case "prompts/list":
            return {"prompts": [
                {"name": name, "description": name, "arguments": [{"name": one, "required": True} for one in names]}
                for name, names in PROMPTS.items()
            ]}  # fmt: skip
        case "prompts/get":
            return {"messages": prompt(given["name"], given.get("arguments") or {})}
        case "completion/complete":
            return {"completion": {"values": ["paris", "park", "party"], "total": 150, "hasMore": False}}
        case _:
            return {}


def handle(message):
    if "id" in message and "method" in message:
        send(id=message["id"], result=answer(message["method"], message.get("params") or {}))


for line in sys.stdin:
    handle(json.loads(line))
