"""Answers with a block of a kind that does not exist."""
from rpc import answer, calls

for call in calls():
    answer(call, content=[{"type": "hologram", "data": "?"}])
