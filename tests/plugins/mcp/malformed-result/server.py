"""Answers with an invalid result."""
from rpc import answer, calls

for call in calls():
    answer(call, content="just text")
