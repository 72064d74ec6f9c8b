"""Counter-addressed random words, and numbers made from them.

Start with `chacha20`. Every draw has an address, so a result depends neither on threads nor on the order of
work (docs/decisions/0001-randomness.md).
"""
