"""Logs by the protocol and on stderr."""
import sys

from rpc import calls, say, send

for call in calls():
    send(method="notifications/message", params={"level": "warning", "logger": "db", "data": "the disk is nearly full"})
    print("on stderr", file=sys.stderr, flush=True)
    say(call)
