"""What runs around the service: the start of its container, and the secrets of a deployment."""
