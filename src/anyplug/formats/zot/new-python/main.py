#!/usr/bin/env python3
"""The extension PLUGIN_NAME, for zot and anyplug. The SDK lies beside it, in anyplug_ext.py; it needs nothing else."""

from anyplug_ext import Extension, Failed

ext = Extension("PLUGIN_NAME", version="0.1.0")


# The docstring and the hints are what models see of a tool. A second tool is a second function.
@ext.tool(name="TOOL_NAME")
def count(text: str) -> str:
    """Count the words of a text.

    text: the text to look at
    """
    words = text.split()
    if not words:
        raise Failed("there is no text to count")  # the model reads this; other exceptions leave a trace in the log
    print(f"counting {len(text)} characters")  # goes to the log, too: `anyplug -e . logs PLUGIN_NAME`
    return f"words: {len(words)}"


# More that an extension may have: `@ext.command("name", "description")` is a slash command, `@ext.on("turn_end")`
# hears of events, `@ext.intercept_tool_call` guards calls, `ext.panel(...)` draws; anyplug_ext.py says how.
ext.run()
