"""Source 000: Li and Shen 2010, MEWS and MEDS."""
