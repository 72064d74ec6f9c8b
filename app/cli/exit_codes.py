"""Exit codes of the commands, and the error that ends a command."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes; for a command ended by a signal, the shell reports 128 plus the signal's number."""

    OK = 0
    FAILED = 1
    """The work failed because of the table, the storage or the machine."""
    USAGE = 2
    """An option is invalid, or does not fit the table."""
    DIFFERS = 3
    """`verify`: the manifest or a table differs from what was signed."""
    INTERRUPTED = 130
    """Interrupted by Ctrl-C."""
    PIPE_CLOSED = 141
    """The reader of the output closed the pipe."""


class CommandFailed(Exception):
    """The command cannot continue. The message has the cause and the remedy."""

    def __init__(self, message: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(message, code)
        self.message = message
        self.code = code

    def __str__(self) -> str:
        return self.message
