"""Answers questions that nobody asked."""
from rpc import calls, send

for call in calls():
    for number in (call["id"] + 1000, "x", None):
        send(id=number, result={"content": []})
