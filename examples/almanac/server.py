#!/usr/bin/env python3
"""An MCP server without dependencies: JSON-RPC, one message on each line, over stdin and stdout.

It answers `initialize`, `tools/list` and `tools/call`. All else is a method that it does not know.
"""

import datetime
import json
import sys

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
INVALID_PARAMS, METHOD_NOT_FOUND = -32602, -32601

NEW_MOON = datetime.date(2000, 1, 6)
MONTH = 29.530588  # days from one new moon to the next
PHASES = ("new", "waxing crescent", "first quarter", "waxing gibbous",
          "full", "waning gibbous", "last quarter", "waning crescent")

TOOLS = [
    {
        "name": "moon_phase",
        "title": "Phase of the moon",
        "description": "Say how the moon looks on a day, give or take one.",
        "inputSchema": {
            "type": "object",
            "properties": {"date": {"type": "string", "description": "like 2025-06-21"}},
            "required": ["date"],
        },
        "outputSchema": {
            "type": "object",
            "properties": {"phase": {"type": "string"}, "age_days": {"type": "number"}},
            "required": ["phase", "age_days"],
        },
    },
    {
        "name": "easter",
        "title": "Date of Easter",
        "description": "Say when Easter Sunday is in a year.",
        "inputSchema": {
            "type": "object",
            "properties": {"year": {"type": "integer", "minimum": 1583}},
            "required": ["year"],
        },
    },
]


class Refused(Exception):
    """What was asked cannot be answered; the code is one of JSON-RPC's."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def moon_phase(arguments):
    try:
        day = datetime.date.fromisoformat(arguments["date"])
    except (KeyError, TypeError, ValueError):
        return failure("date must be a day like 2025-06-21")
    age = (day - NEW_MOON).days % MONTH
    phase = PHASES[round(age / MONTH * len(PHASES)) % len(PHASES)]
    structured = {"phase": phase, "age_days": round(age, 1)}
    return {"content": text(f"{phase}, {age:.1f} days after new moon"), "structuredContent": structured}


def easter(arguments):
    year = arguments.get("year")
    if not isinstance(year, int) or year < 1583:
        raise Refused(INVALID_PARAMS, "year must be a whole number from 1583 on")
    century, rest = divmod(year, 100)
    shift = (19 * (year % 19) + century - century // 4 - (century - (century + 8) // 25 + 1) // 3 + 15) % 30
    week = (32 + 2 * (century % 4) + 2 * (rest // 4) - shift - rest % 4) % 7
    late = (year % 19 + 11 * shift + 22 * week) // 451
    month, day = divmod(shift + week - 7 * late + 114, 31)
    return {"content": text(datetime.date(year, month, day + 1).isoformat())}


def text(said):
    return [{"type": "text", "text": said}]


def failure(said):
    """A tool that fails says so in its result, so that a model can read why."""
    return {"content": text(said), "isError": True}


def answer(method, params):
    if method == "initialize":
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "almanac", "version": "1.0.0"},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        tool = {"moon_phase": moon_phase, "easter": easter}.get(params.get("name"))
        if tool is None:
            raise Refused(INVALID_PARAMS, f"there is no tool {params.get('name')!r}")
        return tool(params.get("arguments") or {})
    raise Refused(METHOD_NOT_FOUND, f"unknown method {method!r}")


def main():
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue  # a notification, or an answer to what we never asked
        reply = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            reply["result"] = answer(request["method"], request.get("params") or {})
        except Refused as refused:
            reply["error"] = {"code": refused.code, "message": str(refused)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
