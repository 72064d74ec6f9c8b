"""Uploads in parts, and looks at stored tables: profiles, and comparisons of a release with its source."""
