"""Answers with more than fits, if it is asked to."""
from rpc import calls, say

for call in calls():
    say(call, "x" * call["params"]["arguments"].get("size", 1))
