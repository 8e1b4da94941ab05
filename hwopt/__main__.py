"""`python -m hwopt` is `hwopt`."""

from hwopt.cli.app import entry

entry()
