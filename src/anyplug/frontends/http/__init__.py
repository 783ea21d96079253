"""The host over HTTP: access, limits and answers. Imports the SDK and uvicorn, which takes 1 s.

`http_server.serve_http` is the entry point; only `serve --http` imports it.
"""
