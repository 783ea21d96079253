"""Prints what is no message, all the time."""
import sys

from rpc import calls, say


def garbage():
    sys.stdout.write("Server is listening...\n\n[1, 2]\n17\n{\"type\": \"hello\"}\n{\"jsonrpc\": \"1.0\"}\n{broken\n\u2028\n")
    sys.stdout.buffer.write(b"\xff\xfe\n")
    sys.stdout.flush()


garbage()
for call in calls():
    garbage()
    say(call)
    garbage()
