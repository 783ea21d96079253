"""Answers with what is no JSON, and writes the id at the end, as the SDK for TypeScript does."""
import json
import sys

from rpc import calls

for call in calls():
    sys.stdout.write('{"result": {"content": [{"id": 7, "text": ' + "x" * 2000 + '}]}, "jsonrpc": "2.0", ')
    sys.stdout.write(f'"id": {json.dumps(call["id"])}}}\n')
    sys.stdout.flush()
