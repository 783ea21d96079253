"""Answers tools/list with what is no list."""
from rpc import answer, messages

for message in messages(answers=("initialize",)):
    if message["method"] == "tools/list":
        answer(message, tools="all of them")
