"""Exchange within groups for tables larger than memory.

Start with `swap`: rows of neighbouring groups are collected in one partition, exchanged (`exchange`, or
`large_groups` for a group larger than memory), returned to their row ranges, and reassembled (`assemble`).
`classes` and `blocks` form the groups of CDSWAP and DDSWAP; `distribute` divides a run into units.
"""
