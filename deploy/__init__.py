"""Deployment: start of the container, and secrets of a deployment."""
