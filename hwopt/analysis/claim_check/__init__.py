"""Whether what somebody states of a machine and its run can be, line by line, and the least that mends it."""

from hwopt.analysis.claim_check.check import Check, check

__all__ = ["Check", "check"]
