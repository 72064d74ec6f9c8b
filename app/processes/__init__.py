"""API processes of one service: the supervisor that starts them, and the messages between it and them.

Start reading at `supervisor`; [decision 55](../../docs/decisions/0055-api-processes.md) has the reasons.
"""
