"""Answers twice."""
from rpc import calls, say

for call in calls():
    say(call, "first")
    say(call, "second")
