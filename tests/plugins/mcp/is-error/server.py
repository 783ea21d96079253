"""Reports failures as results."""
from rpc import answer, calls, say

for call in calls():
    if call["params"]["arguments"].get("mute"):
        answer(call, content=[], isError=True)
    else:
        say(call, "no such city", isError=True)
