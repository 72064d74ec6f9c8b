"""Methods that the papers compare with, as plain code."""
