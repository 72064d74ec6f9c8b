"""ASGI middleware around all operations; start reading at `request_log`."""
