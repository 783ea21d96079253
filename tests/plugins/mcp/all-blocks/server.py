"""Answers with every kind of block."""
from rpc import TOOL, answer, calls

CONTENT = [
    {"type": "text", "text": "words", "annotations": {"audience": ["user"], "priority": 1}},
    {"type": "image", "mimeType": "image/png", "data": "iVBORw0="},
    {"type": "audio", "mimeType": "audio/wav", "data": "UklGRg=="},
    {"type": "resource", "resource": {"uri": "note://1", "mimeType": "text/plain", "text": "a note"}},
    {"type": "resource", "resource": {"uri": "blob://1", "mimeType": "application/zip", "blob": "UEsDBA=="}},
    {"type": "resource_link", "uri": "file:///tmp/x.txt", "name": "x.txt", "description": "a file", "mimeType": "text/x"},
]
OUTPUT = {"type": "object", "properties": {"degrees": {"type": "number"}}, "required": ["degrees"]}
for call in calls(tools=[{**TOOL, "outputSchema": OUTPUT}]):
    degrees = call["params"]["arguments"].get("degrees", 21)
    answer(call, content=CONTENT, structuredContent={"degrees": degrees}, _meta={"trace": "abc"})
