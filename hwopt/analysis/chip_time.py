"""Breakdown of chip time in a training run: parts of the step, recomputation, failures and wasted tokens."""

from hwopt.model.report import TrainingReport

RECOMPUTED, FAILURES, WASTED = "recomputed", "failures", "wasted_tokens"
"""Categories of chip time that are not parts of the step."""


def chip_time(report: TrainingReport, chips: float, tokens_needed: float = 1.0) -> dict[str, float]:
    """Return chip-seconds per token of a run, by category. Categories without time are left out.

    The categories are the parts of the step, recomputation, failures, and tokens that a large batch wastes. If the batch grows
    during the run, the step is that of its last stage. The sum `s_k + s (1 / g - 1) + s / g (r - 1)` equals `s r / g`, where s
    is chips divided by tokens per second and g is goodput.

    **Arguments:**

    - `report`: report of the run.
    - `chips`: number of chips.
    - `tokens_needed`: r, tokens needed for the reference loss over those of the run.
    """
    step = float(report.step_time_s)
    whole, goodput = chips / float(report.tokens_per_s), float(report.goodput)
    parts = {name.removesuffix("_s"): whole * float(x) / step for name, x in report.breakdown._asdict().items()}
    useful = parts["compute"] * min(float(report.mfu) / float(report.hfu), 1.0)
    parts = parts | {"compute": useful, RECOMPUTED: parts["compute"] - useful}
    parts |= {FAILURES: whole * (1.0 / goodput - 1.0), WASTED: whole / goodput * (tokens_needed - 1.0)}
    return {name: value for name, value in parts.items() if value > 0.0}
