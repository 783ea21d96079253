"""Does not leave when asked, neither by its stdin nor by a signal."""
import signal
import time

from rpc import calls, say

signal.signal(signal.SIGTERM, signal.SIG_IGN)
for call in calls():
    say(call)
time.sleep(600)
