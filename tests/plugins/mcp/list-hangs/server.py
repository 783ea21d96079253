"""Greets, and does not list its tools."""
from rpc import messages

for _ in messages(answers=("initialize",)):
    pass
