"""Multivariate bins of MEWS and MEDS: equal width, equal depth, and the exchange within bins.

Start with `swap`, which both services share. `grid` and `degree` make the bins of MEWS, `singletons` merges
bins of one row, `microaggregation` makes the bins of MEDS, and `privacy` computes Li and Shen's P.
"""
