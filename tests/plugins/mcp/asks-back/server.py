"""Wants to know things before it answers."""
import json

from rpc import messages, say, send

ASKED = {
    "sampling/createMessage": {"messages": [], "maxTokens": 1},
    "elicitation/create": {"message": "Who are you?", "requestedSchema": {"type": "object", "properties": {}}},
    "roots/list": {},
    "ping": {},
    "no/such/method": {},
}
waiting, heard = None, {}
for message in messages():
    if message.get("method") == "tools/call":
        waiting, heard = message, {}
        for method, params in ASKED.items():
            send(id=f"ask {method}", method=method, params=params)
    elif "method" not in message:
        name = message["id"].removeprefix("ask ")
        heard[name] = message["error"]["message"] if "error" in message else message["result"]
        if len(heard) == len(ASKED):
            say(waiting, json.dumps(heard))
