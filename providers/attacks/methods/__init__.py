"""Attacks that know the rule of the method that made a release.

Each module with an `ATTACK` is one attack; `providers.attacks.registry` says which attack which service.
`groups`, `segments` and `rotation` read a release as the method left it: groups of rows, segments of records,
rotated numbers. `matchings` has the posterior of a random exchange.
"""
