"""Says all the time that its tools have changed, and has a list of a megabyte."""
from rpc import TOOL, calls, say, send

MORE = [{**TOOL, "name": f"act{number}", "description": "x" * 1_000} for number in range(1_000)]
for call in calls(tools=[TOOL, *MORE]):
    for _ in range(300):
        send(method="notifications/tools/list_changed")
    say(call)
