"""Refuses whoever begins."""
from rpc import messages, refuse

for message in messages(answers=()):
    if "id" in message:
        refuse(message, -32000, "the licence has run out")
