"""How a command says that it cannot go on."""


class CommandFailed(Exception):
    """Ends a command with one clear line and exit status 1. The text says what is wrong and what to do about it."""
