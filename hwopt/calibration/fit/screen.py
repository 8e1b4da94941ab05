"""Text output of `hwopt calibrate`."""

from hwopt import escape


def screen(result: dict) -> str:
    """Format the errors, the changes of constants, and the plans to measure next.

    **Arguments:** `result` of `calibrate`.
    """
    cells = result["before"]["cells"]
    lines = [
        f"{result['runs']} run{'s' * (result['runs'] != 1)} in {cells} cell{'s' * (cells != 1)}; "
        f"started from {result['constants']} constants",
        "",
        f"{'absolute error per cell':24}{'median':>9}{'mean':>9}{'bias':>9}",
    ]
    named = {"before": "before", "after": "after, in-sample", "held_out": "after, leave-one-out"}
    for key, label in named.items():
        if of := result[key]:
            median, mean, bias = (100 * of[name] for name in ("median_abs_error", "mean_abs_error", "time_bias"))
            lines.append(f"{label:25}{median:7.1f}%{mean:8.1f}%{bias:+8.1f}%")
    if not result["held_out"]:
        lines.append(f"{'after, leave-one-out':25}{'too few runs':>26}")
    lines += [*(f"note: {each}" for each in result["notes"]), *(f"warning: {each}" for each in result["warnings"])]
    lines += [
        "",
        *_learned(result["learned"]),
        "",
        "Largest changes of constants (log units; log-odds for fractions)",
    ]
    for entry in result["moved"][:12]:
        lines.append(f"  {entry['constant']:24}{entry['scope']:28}{entry['change']:+7.3f}  (sd {entry['sd']:.3f})")
    lines += ["", *_next(result["next"])]
    if result["out"]:
        lines += ["", f"written to {escape.line(result['out'])}: use it with --constants {escape.shell(result['out'])}"]
        lines.append(
            f"it records that the runs are of {result['operation']} operation (column operation); commands with it assume the same"
            if result["operation"]
            else "it records no operation, because benchmark and production runs are mixed; commands with it assume production"
        )
    return "\n".join(lines)


def _learned(learned: dict) -> list[str]:
    """Format the half width, the global step-time factor, and the constants that changed."""
    before, after, level = learned["half_width_before"], learned["half_width_after"], learned["level"]
    lines = ["Posterior for this machine"]
    if before is not None and after is not None:
        lines.append(
            f"  80 % prediction interval of a step time: +-{100 * before:.1f} % before, +-{100 * after:.1f} % after"
        )
    lines.append(
        f"  global step-time factor: {level['factor']:.3f}x (sd {100 * level['sd']:.1f} %, before {100 * level['prior_sd']:.1f} %)"
    )
    for each in learned["constants"]:
        if each["constant"] != "level":
            sd, before_sd = each["sd"], each["prior_sd"]
            lines.append(
                f"  {each['constant']}: {each['change']:+.2f} (sd {sd:.2f}, before {before_sd:.2f}): {each['meaning']}"
            )
    if not any(each["constant"] != "level" for each in learned["constants"]):
        lines.append("  no other constant changed by more than half of its prior standard deviation")
    return lines


def _next(suggested: list[dict]) -> list[str]:
    """Format the plans to measure next."""
    if not suggested:
        return [
            "No other plan of this workload fits on these chips: measure another workload or another number of chips"
        ]
    lines = ["Recommended next measurements (same workload and chips; each assumes that those above it are done)"]
    for each in suggested:
        time = f"{each['step_time_s']:.4g} s"
        time += "" if each["low"] is None else f" ({each['low']:.4g} to {each['high']:.4g})"
        before, after = each["half_width_before"], each["half_width_after"]
        narrows = (
            f"removes {100 * each['variance_taken']:.0f} % of the variance"
            if before is None
            else f"80 % interval of a step time: +-{100 * before:.1f} % -> +-{100 * after:.1f} %"
        )
        lines.append(f"  {each['plan']}: {time}; {narrows}")
    return lines
