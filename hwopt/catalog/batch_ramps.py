"""Batch-size ramps of training runs, written as `1024@0.25T,2048@2.8T,4096`.

In this example the batch has 1,024 sequences until 0.25 trillion tokens, 2,048 until 2.8 trillion, then 4,096.
"""

import math
from itertools import pairwise
from typing import NamedTuple

from hwopt.catalog.load import leaf
from hwopt.errors import UserError
from hwopt.units import read_amount, read_number
from hwopt.workload.ramp import LARGEST_BATCH, BatchRamp

NONE = "none"
"""Word that disables the batch ramp of a workload's entry."""

EXAMPLE = "1024@0.25T,2048@2.8T,4096"

MOST_STAGES = 16
"""Maximum number of stages before the last batch. Each is a separate step in every estimate and every proof."""


class StatedRamp(NamedTuple):
    """A batch-size ramp as the user writes it.

    **Arguments:**

    - `batches`: batch sizes before the last one, in sequences.
    - `ends`: where their stages end, in tokens or as shares of the run.
    - `of_run`: for each stage, whether its end is a share of the run.
    - `last`: the final batch size; None if it is stated elsewhere.
    """

    batches: tuple[int, ...]
    ends: tuple[float, ...]
    of_run: tuple[bool, ...]
    last: int | None

    def of(self, last: float, tokens: float) -> BatchRamp:
        """Return the stages of the ramp in a run of `tokens` tokens, relative to the run's `last` batch.

        **Raises:** `UserError` where the ramp is longer than the run, and where batches or ends do not increase.
        """
        batches = (*self.batches, round(last))
        for before, after in pairwise(batches):
            if before >= after:
                raise UserError(
                    f"batch_ramp: {after:,} sequences follow {before:,}: batches must grow, up to the last one, {batches[-1]:,}; "
                    f"write {EXAMPLE}"
                )
        ends = [end if share else end / tokens for end, share in zip(self.ends, self.of_run, strict=True)]
        for i, (before, after) in enumerate(pairwise(ends)):
            if before >= after:
                raise UserError(
                    f"batch_ramp: the stage of {self.batches[i + 1]:,} sequences ends at {after * tokens:.4g} tokens, the one "
                    f"before at {before * tokens:.4g}: ends are counted from the start of the run and must grow"
                )
        if ends[-1] >= 1.0:
            raise UserError(
                f"batch_ramp: its last batch begins after {ends[-1] * tokens:.4g} tokens, but the run has {tokens:.4g}: shorten "
                f"the ramp, or write it in percent of the run, such as {self.batches[0]}@10%"
            )
        shares = [after - before for before, after in pairwise([0.0, *ends])]
        return BatchRamp(leaf([each / batches[-1] for each in self.batches]), leaf(shares))


def stated_ramp(text: str) -> StatedRamp | None:
    """Parse a batch-size ramp; None for an empty text or `none`.

    Each stage is `BATCH@END`. `BATCH` is in sequences per step. `END` is the number of tokens of the run seen by then
    (`0.25T`, `300B`, `2.5e11`) or their share (`10%`). The last entry is the batch of the rest of the run; it may be
    omitted where that batch is stated elsewhere.

    **Raises:** `UserError` for anything else.
    """
    if text.strip() in ("", NONE):
        return None
    *stages, last = (part.strip() for part in text.split(","))
    if "@" in last:
        stages, last = [*stages, last], ""
    if not stages:
        raise UserError(
            f"batch_ramp = {text!r} is a single batch size: write a schedule such as {EXAMPLE}, or use --global-batch for "
            "a constant batch"
        )
    if len(stages) > MOST_STAGES:
        raise UserError(f"batch_ramp: {len(stages)} stages before the last exceed {MOST_STAGES}: merge some of them")
    pairs = []
    for stage in stages:
        batch, at, end = stage.partition("@")
        if not at:
            raise UserError(
                f"batch_ramp: {stage!r} has no end: write BATCH@TOKENS, such as {EXAMPLE}; only the last stage has none"
            )
        pairs.append((_batch(batch), _end(end)))
    batches, ends = [batch for batch, _ in pairs], [end for _, end in pairs]
    numbers, of_run = tuple(number for number, _ in ends), tuple(share for _, share in ends)
    return StatedRamp(tuple(batches), numbers, of_run, _batch(last) if last else None)


def _batch(text: str) -> int:
    try:
        batch = read_number(text)
    except UserError:
        batch = 0.0
    if batch < 1.0 or batch != round(batch):
        raise UserError(
            f"batch_ramp: {text.strip()!r} is not a batch size: write a whole number of sequences per step ({EXAMPLE})"
        )
    if batch > LARGEST_BATCH:
        raise UserError(
            f"batch_ramp: a batch of {text} sequences exceeds {LARGEST_BATCH:,}; write sequences, not tokens"
        )
    return int(batch)


def _end(text: str) -> tuple[float, bool]:
    """Return the end of a stage, and whether it is a share of the run instead of a number of tokens."""
    try:
        end = read_amount(text.upper(), "")
    except UserError:
        end = 0.0
    if not 0.0 < end < math.inf:
        raise UserError(
            f"batch_ramp: {text.strip()!r} is not a number of tokens: write the end of the stage, such as 0.25T, 300B, "
            "2.5e11 or 10% of the run"
        )
    return end, "%" in text
