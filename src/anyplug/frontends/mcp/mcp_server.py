"""The MCP server on a host: for the SDK's own transports, such as HTTP, and for one connection on a byte stream.

An attachment is one connection in the older era and on streams. Over HTTP in the newer era, which has no sessions,
requests cannot be attributed to a client: each request stands alone, and no answer counts for more than one call,
unless `attachment_of` knows better.

Imports the SDK, which takes about a second.
"""

from typing import Any

import anyio
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.message import SessionMessage

from anyplug.call.consent import Attachment
from anyplug.catalog.profiles import View
from anyplug.frontends.mcp.fast_path import FastPath
from anyplug.frontends.mcp.handlers import Handlers
from anyplug.frontends.mcp.json_lines import Outlet, Reader, Writer, read
from anyplug.frontends.mcp.sdk_server import AttachmentOf, SdkServer
from anyplug.host.host import Host


def make_server(host: Host, view: View, *, attachment_of: AttachmentOf | None = None) -> Server[Any]:
    """Create a server for any number of connections; its lifespan follows the host's changes.

    `attachment_of` returns the attachment of a request without a session, or None if unknown. It should use the same
    view.
    """
    return SdkServer(Handlers(host, view), attachment_of).server


def initialization(server: Server[Any]) -> InitializationOptions:
    """Return what a client of the older era is told when it connects."""
    return server.create_initialization_options(
        NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
    )


async def serve_stream(
    host: Host,
    view: View,
    receive: Reader,
    send: Writer,
    *,
    attachment: Attachment | None = None,
    is_fast: bool = True,
) -> None:
    """Serve one connection, in the era that the client begins with, until its stream ends or nobody reads it.

    It is one attachment; calls still running at its end are cancelled. `is_fast=False` leaves everything to the SDK.
    """
    attachment = attachment or Attachment("mcp", shows_panels=False, is_model=True)
    attachment.view = view
    reception = SdkServer(Handlers(host, view), lambda _: attachment)
    reading = anyio.CancelScope()
    outlet = Outlet(send, reading.cancel)
    to_sdk, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    async with from_client, anyio.create_task_group() as tasks:
        tasks.start_soon(reception.server.run, from_client, outlet, initialization(reception.server))
        async with to_sdk:
            if not is_fast:
                with reading:
                    await read(receive, outlet, to_sdk)
                return
            async with FastPath(reception, attachment, outlet.send_bytes) as lane:
                with reading:
                    await read(receive, outlet, to_sdk, lane)
