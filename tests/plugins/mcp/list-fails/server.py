"""Cannot list its tools."""
from rpc import messages, refuse

for message in messages(answers=("initialize",)):
    if "id" in message:
        refuse(message, -32603, "the index is lost")
