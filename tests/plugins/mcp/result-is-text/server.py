"""Answers with a result that is no object, or with half a message."""
import json
import sys

from rpc import calls

for call in calls():
    answer = {"id": call["id"], "result": {"content": []}}
    if not call["params"]["arguments"].get("half"):
        answer = {"jsonrpc": "2.0", "id": call["id"], "result": "done"}
    print(json.dumps(answer), flush=True)
