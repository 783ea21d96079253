"""Does what it should."""
from rpc import calls, say

for call in calls():
    say(call)
