"""Example requests that fit the available tools, to start a conversation with."""

from collections.abc import Collection

EXAMPLES = {
    "word_count": "count the words in to be or not to be",
    "kv_set": "call kv_set key=color value=blue",
    "bookmark_add": "call bookmark_add url=https://example.org tags=reading",
    "read": "list the files here",
}  # tools of plugins that many have, and a request that fits
MOST = 3


def example_requests(tools: Collection[str]) -> list[str]:
    """Return requests that fit these tools."""
    fitting = [request for name, request in EXAMPLES.items() if name in tools]
    return [*fitting[: MOST - 1], "what can you do", "reload the tools"][:MOST]
