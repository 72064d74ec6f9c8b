"""Generators of openapi.json and of the pages derived from code, and hooks of the documentation site."""
