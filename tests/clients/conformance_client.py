"""The host as a client, as the MCP conformance suite starts it: `conformance_client.py URL`."""

import asyncio
import json
import os
import sys
import tempfile

from anyplug import Elicitation, Elicited, Host

PATIENCE_S = 20.0


async def elicit(asked: Elicitation) -> Elicited:
    """Accept a form with its defaults, as a person who only confirms it."""
    fields = (asked.schema or {}).get("properties", {})
    return Elicited("accept", {name: field["default"] for name, field in fields.items() if "default" in field})


async def main(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "suite"))
        with open(os.path.join(folder, "suite", "mcp.json"), "w", encoding="utf-8") as file:
            json.dump({"mcpServers": {"suite": {"url": url}}}, file)
        plugin = os.path.join(folder, "suite")
        async with Host(plugins=[plugin], roots=[], home=os.path.join(folder, "home"), elicit=elicit) as host:
            given = {"add_numbers": {"a": 5, "b": 3}}
            for tool in host.tools:
                name = tool.own_name.removeprefix("suite.")
                async with asyncio.timeout(PATIENCE_S):
                    result = await host.call(tool.name, given.get(name, {}))
                print(tool.name, result.text, result.error)
            for problem in host.problems:
                print(problem.message, file=sys.stderr)


asyncio.run(main(sys.argv[-1]))
