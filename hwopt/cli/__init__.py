"""Command line `hwopt COMMAND`. Exit codes: 1 infeasible question, 2 bad input, 3 internal error."""

from hwopt.cli.app import entry, main

__all__ = ["entry", "main"]
