"""Engines that run tasks in worker processes, here or on a Dask cluster. Start reading at `engine`."""
