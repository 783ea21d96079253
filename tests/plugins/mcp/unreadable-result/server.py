"""Answers with what is no JSON: nested too deep, with numbers that do not exist, with control characters."""
import json
import sys

from rpc import calls

NONSENSE = {"deep": "[" * 5000 + "]" * 5000, "nan": "NaN", "large": "1e400", "control": '"\x01"', "cut": '{"a":'}

for call in calls():
    nonsense = NONSENSE[call["params"]["arguments"].get("what", "cut")]
    sys.stdout.write(f'{{"jsonrpc": "2.0", "id": {json.dumps(call["id"])}, "result": {{"structuredContent": {nonsense}}}}}\n')
    sys.stdout.flush()
