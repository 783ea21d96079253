"""Pass on plugins' questions while their tools run, to the user or the model of the client that called.

The plugin is named in every question. Imports the SDK.
"""

from typing import Any

import anyio
import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from anyplug.frontends.mcp.consent_elicitation import ANSWER_S
from anyplug.frontends.mcp.handlers import PluginsCaller
from anyplug.model.errors import Denied, Unavailable
from anyplug.model.types import Elicitation, Elicited, Sampling

SAMPLE_S = 300.0  # for a client's model to answer, and for its user to agree


def plugins_caller(session: ServerSession, request: types.RequestId | None) -> PluginsCaller:
    """Return how a client of the older era is asked, by what it said that it can do."""
    about = ServerMessageMetadata(related_request_id=request)
    can = session.client_capabilities or types.ClientCapabilities()

    async def elicit(asked: Elicitation) -> Elicited:
        can_show = can.elicitation
        message = f"[Plugin: {asked.plugin}] {asked.message}"
        params: types.ElicitRequestParams
        if asked.url:
            if can_show is None or can_show.url is None:
                raise Denied("host", f"plugin '{asked.plugin}' wants a page opened, which this client cannot")
            params = types.ElicitRequestURLParams(message=message, url=asked.url, elicitation_id=f"anyplug-{id(asked)}")
        else:
            params = types.ElicitRequestFormParams(message=message, requested_schema=asked.schema or {})
        try:
            with anyio.fail_after(ANSWER_S):
                answer = await session.send_request(
                    types.ElicitRequest(params=params), types.ElicitResult, metadata=about
                )
        except (MCPError, ValidationError, TimeoutError) as error:
            raise Denied("host", f"the client could not ask its user: {reason(error)}") from error
        return Elicited(answer.action, dict(answer.content or {}))

    async def sample(asked: Sampling) -> dict[str, Any]:
        try:
            params = types.CreateMessageRequestParams.model_validate(asked.params, by_name=False)
            with anyio.fail_after(SAMPLE_S):
                shape = types.CreateMessageResultWithTools if params.tools else types.CreateMessageResult
                answer = await session.send_request(types.CreateMessageRequest(params=params), shape, metadata=about)
        except (MCPError, ValidationError, TimeoutError) as error:
            raise Unavailable(f"the client's model did not answer: {reason(error)}") from error
        said: dict[str, Any] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        return said

    return PluginsCaller(elicit if can.elicitation is not None else None, sample if can.sampling is not None else None)


def reason(error: Exception) -> str:
    """Return why a client has no answer for us, without the names that the SDK has for things."""
    if isinstance(error, ValidationError):
        return "its answer is invalid"
    return str(error).partition("\n")[0] or "no answer"
