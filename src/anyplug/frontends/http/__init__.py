"""The host over HTTP: who may come in, how much at once, and what answers. Imports the SDK and uvicorn: 1 s.

`serving.serve_http` is the face; only `serve --http` imports it.
"""
