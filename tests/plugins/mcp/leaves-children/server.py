"""Starts a program that outlives it, holds its pipes and has a session of its own."""
import subprocess

from rpc import calls, say

subprocess.Popen(["sleep", "613"], start_new_session=True)
for call in calls():
    say(call)
