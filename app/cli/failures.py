"""How a command ends, and what it says where it failed."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes; a shell adds 128 and the signal's number where one ended the command."""

    OK = 0
    FAILED = 1
    """What was asked for could not be done: the table, the storage or the machine is at fault."""
    USAGE = 2
    """An option is at fault, or does not fit the table: change the command."""
    DIFFERS = 3
    """`verify`: the manifest, or a table, is not what was signed."""
    INTERRUPTED = 130
    """By Ctrl-C."""
    PIPE_CLOSED = 141
    """Whoever read the output stopped reading."""


class CommandFailed(Exception):
    """The command cannot go on; says why, and what would be right."""

    def __init__(self, message: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(message, code)
        self.message = message
        self.code = code

    def __str__(self) -> str:
        return self.message
