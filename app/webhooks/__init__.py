"""Signed notifications of ended jobs: messages, delivery, allowed addresses. Start reading at `delivery`."""
