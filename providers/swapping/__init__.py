"""Exchange of values within groups, shared by DSWAP, CDSWAP, DDSWAP, MEWS and MEDS.

Start with `swap`: it finds the rows that take part (`participation`), exchanges their values (`permute`,
`exchange`), suppresses rows without a partner (`suppression`), and builds the report (`report`).
"""
