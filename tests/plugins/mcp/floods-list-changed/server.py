"""Says all the time that its tools have changed."""
from rpc import calls, say, send

for call in calls():
    for _ in range(3_000):
        send(method="notifications/tools/list_changed")
    say(call)
