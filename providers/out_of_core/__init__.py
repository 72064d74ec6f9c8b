"""Building blocks for tables larger than memory: partitions, sample sort, random order, row ranges."""
