"""The swaps out of core: the same exchanges, on a table of which only parts are in memory at a time.

The rows of groups that lie side by side in the order of their labels are put aside together (`sorting`),
exchanged (`exchanging`; a group that is too large for memory by ranges of its buckets, `large`), put aside
again by the place they came from, and put together (`assembly`). `swaps` leads through it.

RWN's rows are points in a tree on the disk (`encoding`, `trees`), out of whose cells donors are drawn
(`donors`, with the kernels of `reach`; `among` whom, says the service); `giving` fetches their values.
"""
