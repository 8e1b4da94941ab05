"""Whether what somebody states of a machine and its run can be, line by line, and the least that mends it."""

from hwopt.study.blueprint.check import Check, check

__all__ = ["Check", "check"]
