"""Python client for DataFrames: ``Rowveil(url, key).cdswap(frame, swap_fields=["income"], ...)``.

A pandas or polars DataFrame, or an Arrow table, is uploaded as a buffer and returned in the same type, with a
progress bar on a terminal. `AsyncRowveil` has the same methods as coroutines. This is a thin convenience
layer over HTTP; for everything else use the client that `make clients` generates.
"""

from rowveil_client.async_client import AsyncRowveil
from rowveil_client.calls import Webhook
from rowveil_client.client import Rowveil
from rowveil_client.problem import Problem

__all__ = ["AsyncRowveil", "Problem", "Rowveil", "Webhook"]
