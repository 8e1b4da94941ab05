"""`python -m hwopt.cli` is `hwopt`."""

from hwopt.cli.app import entry

entry()
