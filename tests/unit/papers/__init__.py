"""Experiments of the papers: stored numbers, verdicts, peers."""
