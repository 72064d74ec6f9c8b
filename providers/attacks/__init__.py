"""Attacks on a release, each with a baseline, with control rows, and with intervals.

`suite.attack_release` runs all that apply. `tables` has both tables and the control rows as the attacks
read them, `attack` declares an attack, `registry` lists them, and `figures` holds the results. `sister`
makes a release of nine tenths of a source, so that the last tenth can be the control. The attacks that know
a method's rule are in `methods`.
"""
