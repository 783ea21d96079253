"""The formats whose plugins stay up, each with the class for one run of such a plugin."""

from collections.abc import Callable

from anyplug.formats.mcp.format import NAME as MCP
from anyplug.formats.mcp.peer import Server
from anyplug.formats.shared.contract import Peer, PeerListener, Terms
from anyplug.formats.workbench.format import NAME as WORKBENCH
from anyplug.formats.workbench.peer import NodePlugin
from anyplug.formats.zot.format import NAME as ZOT
from anyplug.formats.zot.peer import Extension
from anyplug.model.types import Plugin

PEERS: dict[str, Callable[[Plugin, Terms, PeerListener], Peer]] = {
    ZOT: Extension,
    MCP: Server,
    WORKBENCH: NodePlugin,
}
