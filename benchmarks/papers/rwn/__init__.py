"""Source 002: Perry, Matloff and Tendick 2024, RWN."""
