"""Our providers beside their peers, in one run, as ratios: `make bench`."""
