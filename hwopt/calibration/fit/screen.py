"""Text output of `hwopt calibrate`."""

from hwopt import escape


def screen(result: dict) -> str:
    """Format the errors, the changes of constants, and the plans to measure next.

    **Arguments:** `result` of `calibrate`.
    """
    cells = result["before"]["cells"]
    lines = [
        f"{result['runs']} run{'s' * (result['runs'] != 1)} in {cells} cell{'s' * (cells != 1)}; "
        f"started at {result['constants']} constants",
        "",
        f"{'error over cells':24}{'median':>9}{'mean':>9}{'bias':>9}",
    ]
    named = {"before": "before", "after": "after, the same runs", "held_out": "after, each left out"}
    for key, label in named.items():
        if of := result[key]:
            median, mean, bias = (100 * of[name] for name in ("median_abs_error", "mean_abs_error", "time_bias"))
            lines.append(f"{label:25}{median:7.1f}%{mean:8.1f}%{bias:+8.1f}%")
    if not result["held_out"]:
        lines.append(f"{'after, each left out':25}{'too few runs to leave some out':>33}")
    lines += [*(f"note: {each}" for each in result["notes"]), *(f"warning: {each}" for each in result["warnings"])]
    lines += [
        "",
        *_learned(result["learned"]),
        "",
        "what moved most (shift in the logarithm, or of the odds of a fraction)",
    ]
    for entry in result["moved"][:12]:
        lines.append(f"  {entry['constant']:24}{entry['scope']:28}{entry['change']:+7.3f}  (sd {entry['sd']:.3f})")
    lines += ["", *_next(result["next"])]
    if result["out"]:
        lines += ["", f"written to {escape.line(result['out'])}: use it with --constants {escape.shell(result['out'])}"]
        lines.append(
            f"it states that the runs are of {result['operation']} operation (column operation), which commands then assume too"
            if result["operation"]
            else "it states no operation, as runs of a benchmark and of production are mixed: commands assume production"
        )
    return "\n".join(lines)


def _learned(learned: dict) -> list[str]:
    """Format the half width, the global step-time factor, and the constants that changed."""
    before, after, level = learned["half_width_before"], learned["half_width_after"], learned["level"]
    lines = ["what was learned of this machine"]
    if before is not None and after is not None:
        lines.append(
            f"  half width of a predicted step time: {100 * before:.1f} % before, {100 * after:.1f} % after (4 times in 5)"
        )
    lines.append(
        f"  level: steps take {level['factor']:.3f} times what their parts said before (sd {100 * level['sd']:.1f} %, "
        f"before {100 * level['prior_sd']:.1f} %)"
    )
    for each in learned["constants"]:
        if each["constant"] != "level":
            sd, before_sd = each["sd"], each["prior_sd"]
            lines.append(
                f"  {each['constant']}: {each['change']:+.2f} (sd {sd:.2f}, before {before_sd:.2f}): {each['meaning']}"
            )
    if not any(each["constant"] != "level" for each in learned["constants"]):
        lines.append("  no other constant moved by more than half of its prior deviation")
    return lines


def _next(suggested: list[dict]) -> list[str]:
    """Format the plans to measure next."""
    if not suggested:
        return [
            "no other plan of this workload on these chips fits: measure another workload or another number of chips"
        ]
    lines = ["measure next (plans of the same workload and chips; each with those above it measured)"]
    for each in suggested:
        time = f"{each['step_time_s']:.4g} s"
        time += "" if each["low"] is None else f" ({each['low']:.4g} to {each['high']:.4g})"
        before, after = each["half_width_before"], each["half_width_after"]
        narrows = (
            f"takes {100 * each['variance_taken']:.0f} % of the variance"
            if before is None
            else f"the half width of a step falls from {100 * before:.1f} to {100 * after:.1f} %"
        )
        lines.append(f"  {each['plan']}: {time}; {narrows}")
    return lines
