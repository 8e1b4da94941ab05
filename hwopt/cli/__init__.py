"""Command line `hwopt COMMAND`.

Exit codes: 1 for a question without a feasible answer, 2 for bad input, 3 for an internal error.
"""

from hwopt.cli.app import entry, main

__all__ = ["entry", "main"]
