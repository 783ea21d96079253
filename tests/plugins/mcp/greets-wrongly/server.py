"""Answers `initialize` with something else."""
from rpc import answer, messages

for message in messages(answers=()):
    if "id" in message:
        answer(message, hello="world")
