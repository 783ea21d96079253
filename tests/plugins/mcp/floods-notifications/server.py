"""Says far too much beside each answer."""
from rpc import calls, say, send

for call in calls():
    for number in range(5_000):
        send(method="notifications/progress", params={"progressToken": 1, "progress": number})
        send(method="notifications/message", params={"level": "info", "data": f"step {number}"})
        send(method="notifications/nonsense")
    say(call)
