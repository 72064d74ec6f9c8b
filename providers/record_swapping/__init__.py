"""Targeted record swapping: households, their risk, their donors, and the exchange of their geography."""
