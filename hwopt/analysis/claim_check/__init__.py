"""Line-by-line plausibility check of a stated machine and training run, with the smallest corrections."""

from hwopt.analysis.claim_check.check import Check, check

__all__ = ["Check", "check"]
