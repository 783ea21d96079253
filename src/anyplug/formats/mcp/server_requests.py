"""Convert a server's requests to a person or a model while one of its tools runs. Imports the SDK's types."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import mcp_types as types
from pydantic import TypeAdapter, ValidationError

from anyplug.model.errors import BadOutput, CallError
from anyplug.model.types import Call, Elicitation, Sampling

REFUSED = -1  # the protocol's code for a person's no
Pausing = Callable[[Call], AbstractContextManager[None]]  # stops the clock of a call

_SAMPLED: TypeAdapter[types.CreateMessageResult | types.CreateMessageResultWithTools] = TypeAdapter(
    types.CreateMessageResult | types.CreateMessageResultWithTools
)


class ServerRequests:
    """Puts what a server asks to the caller of the tool that runs."""

    def __init__(self, pausing: Pausing) -> None:
        self._pausing = pausing

    async def elicit(self, params: types.ElicitRequestParams, call: Call) -> types.ElicitResult:
        """Ask the person."""
        assert call.asks is not None  # the host sets it for long-running plugins
        is_form = isinstance(params, types.ElicitRequestFormParams)
        asked = Elicitation(
            plugin=call.plugin.name,
            tool=call.tool.name,
            message=params.message,
            schema=dict(params.requested_schema) if isinstance(params, types.ElicitRequestFormParams) else None,
            url="" if isinstance(params, types.ElicitRequestFormParams) else str(params.url),
        )
        with self._pausing(call):
            answer = await call.asks.elicit(asked)
        content = answer.content if is_form and answer.action == "accept" else None
        try:
            return types.ElicitResult.model_validate({"action": answer.action, "content": content})
        except ValidationError:
            return types.ElicitResult(action="cancel")

    async def sample(
        self, params: types.CreateMessageRequestParams, call: Call
    ) -> types.CreateMessageResult | types.CreateMessageResultWithTools:
        """Ask a model; raises CallError."""
        assert call.asks is not None  # the host sets it for long-running plugins
        given = params.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta"})
        try:
            with self._pausing(call):
                return _SAMPLED.validate_python(
                    await call.asks.sample(Sampling(call.plugin.name, call.tool.name, given)), by_name=False
                )
        except ValidationError as error:
            raise BadOutput("the model's answer is not one of MCP's", "try another model") from error
        except CallError:
            raise
