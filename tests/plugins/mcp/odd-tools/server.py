"""Lists tools that cannot be used beside one that can."""
from rpc import TOOL, calls, say

tools = [
    {"description": "has no name", "inputSchema": {"type": "object"}},
    {**TOOL, "name": ""},
    {**TOOL, "name": 7},
    {**TOOL, "name": "bell\u0007"},
    "a string",
    {**TOOL, "name": "no-schema", "inputSchema": None},
    {**TOOL, "name": "list-schema", "inputSchema": []},
    {"name": "act", "inputSchema": {"properties": {"x": {}}}, "annotations": "none", "icons": 3, "title": "Act now"},
    {**TOOL, "description": "comes second"},
]
for call in calls(tools=tools):
    say(call)
