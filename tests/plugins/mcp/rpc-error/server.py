"""Answers with errors of the protocol."""
from rpc import calls, refuse

for call in calls():
    if call["params"]["arguments"].get("wrong"):
        refuse(call, -32602, "there is no such colour")
    else:
        refuse(call, -32603, "the well is dry")
