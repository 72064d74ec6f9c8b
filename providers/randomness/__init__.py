"""Counter-addressed random words and the numbers that are made of them.

Start with `chacha20`. Every draw has an address, so a result depends neither on threads nor on the order of
work (docs/decisions/0001-randomness.md).
"""
