"""The console: a page for people, and the HTTP API behind it, on the listener of `frontends/http`."""
