"""The command line: `hwopt COMMAND`. Exit code 2 for bad input, 1 for questions without an answer, 3 for faults."""

from hwopt.cli.app import entry, main

__all__ = ["entry", "main"]
