"""Reasons for skipping a measured row: a closed list."""

from enum import StrEnum


class SkipReason(StrEnum):
    """All reasons for which `validate` skips a row; each is printed with its count."""

    NO_MEASUREMENT = "no measured value"
    UNSUPPORTED_METRIC = "unsupported metric"
    HEADLINE = "quality C: inconsistent or headline only"
    HYBRID = "not a plain transformer (hybrid or recurrent layers)"
    UNKNOWN_ACCELERATOR = "unknown accelerator"
    UNKNOWN_SHAPE = "model shape not stated and model not in the catalog"
    INCOMPLETE_PLAN = "incomplete plan or batch"
    INCONSISTENT_PLAN = "inconsistent plan (degrees, chips, layers and batch do not fit together)"
    REPEATED = "repeats an earlier row cell for cell: counted once"


class Skip(Exception):
    """Exception for a row that cannot be scored, with its `SkipReason` and the missing detail; never shown as a user error."""

    def __init__(self, reason: SkipReason, detail: str = ""):
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
