"""Run `hwopt` as `python -m hwopt.cli`."""

from hwopt.cli.app import entry

entry()
