"""Where the time of a machine's chips goes in a run: parts of the step, arithmetic done again, failures, tokens wasted."""

from hwopt.model.report import TrainingReport

RECOMPUTED, FAILURES, WASTED = "recomputed", "failures", "wasted_tokens"
"""What takes chip time besides the parts of a step."""


def chip_time(report: TrainingReport, chips: float, tokens_needed: float = 1.0) -> dict[str, float]:
    """Seconds of a chip for one token of a run, by what takes them; those of no part are left out.

    Parts of the step (of its last stage, where the batch grows), arithmetic that is done again, time that failures take, and
    tokens that a batch wastes: `s_k + s (1 / g - 1) + s / g (r - 1)`, which add up to `s r / g`, with s chips over tokens a second
    and g goodput.

    **Arguments:** `tokens_needed` r, for the loss that counts, over those of the run.
    """
    step = float(report.step_time_s)
    whole, goodput = chips / float(report.tokens_per_s), float(report.goodput)
    parts = {name.removesuffix("_s"): whole * float(x) / step for name, x in report.breakdown._asdict().items()}
    useful = parts["compute"] * min(float(report.mfu) / float(report.hfu), 1.0)
    parts = parts | {"compute": useful, RECOMPUTED: parts["compute"] - useful}
    parts |= {FAILURES: whole * (1.0 / goodput - 1.0), WASTED: whole / goodput * (tokens_needed - 1.0)}
    return {name: value for name, value in parts.items() if value > 0.0}
