"""A server and a client of the `mcp` SDK: `mcp_pair.py client` starts both, for any interpreter that has the SDK.

The client says when it is up; each line on its stdin then is how many calls to have in flight and how many each.
"""

import asyncio
import importlib
import sys

mcp = importlib.import_module("mcp")  # by name: what checks our types has no SDK

ARGUMENTS = {"name": "Alice", "count": 3}


def echo(name: str, count: int = 0) -> str:
    """Greets."""
    return f"Hello {name}"


def serve() -> None:
    server = importlib.import_module("mcp.server").MCPServer("echo")
    server.tool()(echo)
    server.run("stdio")


async def drive() -> None:
    server = mcp.StdioServerParameters(command=sys.executable, args=[__file__, "serve"])
    async with mcp.Client(mcp.stdio_client(server)) as client:

        async def work(calls: int) -> None:
            for _ in range(calls):
                result = await client.call_tool("echo", ARGUMENTS)
                assert not result.is_error, result

        await work(1)
        print("up", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            at_once, each = map(int, line.split())
            await asyncio.gather(*[work(each) for _ in range(at_once)])
            print("done", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        asyncio.run(drive())
