"""The tools that the chat works with: read, write, edit, bash, skill."""
