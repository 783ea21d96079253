"""FastMCP's proxy on stdio, in front of a server that is started by the words given; for an interpreter that has it."""

import importlib
import sys

fastmcp = importlib.import_module("fastmcp")  # by name: what checks our types has none
transports = importlib.import_module("fastmcp.client.transports")
servers = importlib.import_module("fastmcp.server")


def main() -> None:
    command, *words = sys.argv[1:]
    behind = transports.StdioTransport(command=command, args=words)
    servers.create_proxy(behind, name="proxy").run("stdio", show_banner=False, log_level="ERROR")


if __name__ == "__main__":
    main()
