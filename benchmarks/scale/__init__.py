"""Costs and scaling of divided jobs: measured steps, fitted lines, and predictions for many workers."""
