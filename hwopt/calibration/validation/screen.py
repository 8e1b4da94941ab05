"""Text output of a validation."""


def screen(result: dict) -> str:
    """Format the output of `hwopt validate`: errors over cells, the baseline, sources, and skipped rows.

    **Arguments:** `result` of `validate`.
    """
    s = result["summary"]
    spread, coverage, inferred = s["release_spread"], s["interval_coverage"], s["inferred"]
    command = "python -m hwopt.calibration.measured.collected_text"
    origin = f"{len(inferred)} inferred from text of the file; {command} adds them to it"
    held = "none; these constants were not calibrated, or not to such models"
    if coverage is not None:
        held = f"contain {100 * coverage:.0f} % of the measured values"
    lines = [
        f"{s['rows']} rows: {s['scored']} scored in {s['cells']} cells (source, model, accelerator), {s['skipped']} skipped",
        f"constants: {s['constants']}",
        f"columns: {origin if inferred else 'as stated in the file'}",
        "",
        f"{'':38}{'median':>8}{'mean':>8}{'max':>8}{'bias':>8}",
        f"{'absolute error per cell':38}{_percent(s['median_abs_error'])}{_percent(s['mean_abs_error'])}"
        f"{_percent(s['max_abs_error'])}{_percent(s['time_bias'], '+')}",
        *_operation_lines(s["by_group"].get("operation", {})),
        f"{'baseline: constant MFU per chip':38}{_percent(s['baseline_abs_error'])}{_percent(s['baseline_mean_abs_error'])}",
    ]
    if spread["configurations"]:
        lines.append(
            f"{'spread between software releases':38}{_percent(spread['median'])}"
            f"   (median of {spread['configurations']}; 90th percentile {100 * spread['p90']:.0f} %)"
        )
    lines += [
        f"80 % intervals: {held}",
        "bias: predicted over measured step time, less 1; positive: predicted too slow",
        "",
        f"{'source':50}{'cells':>6}{'rows':>6}{'median':>8}{'bias':>8}",
    ]
    for source, of in sorted(s["by_source"].items(), key=lambda item: -item[1]["cells"]):
        errors = _percent(of["median_abs_error"]) + _percent(of["time_bias"], "+")
        lines.append(f"{source[:49]:50}{of['cells']:6}{of['rows']:6}{errors}")
    lines += group_lines(s) if "phase" in s["by_group"] else []
    if again := s["superseded"]:
        lines += [
            "",
            f"{again} scored rows repeat another row (older release, or another metric of the same run) and do not count",
        ]
    if s["skipped"]:
        lines += [
            "",
            "skipped",
            *(_skipped(reason, count, result["rows"]) for reason, count in s["skipped_by_reason"].items()),
        ]
    return "\n".join(lines)


def _operation_lines(groups: dict) -> list[str]:
    """Format errors of benchmarks and production separately, if the file has production runs with their additional losses."""
    if "production" not in groups:
        return []
    keys = ("median_abs_error", "mean_abs_error", "max_abs_error")
    return [
        f"  {name:36}{''.join(_percent(of[key]) for key in keys)}{_percent(of['time_bias'], '+')}   cells: {of['cells']}"
        for name, of in groups.items()
    ]


_EXAMPLES = 3
"""Number of skipped rows named for each reason."""


def _skipped(reason: str, count: int, rows: list[dict]) -> str:
    """Format a reason, the number of rows skipped for it, and the first rows with details."""
    said = [f"{row['id']}: {row['detail']}" for row in rows if row["reason"] == reason and row["detail"]]
    more = f", and {len(said) - _EXAMPLES} more" if len(said) > _EXAMPLES else ""
    return f"{count:6}  {reason}" + (f" ({'; '.join(said[:_EXAMPLES])}{more})" if said else "")


def group_lines(summary: dict) -> list[str]:
    """Format errors over cells by software, chip and phase, with the coverage of intervals."""
    head = f"{'':50}{'cells':>6}{'rows':>6}{'median':>8}{'mean':>8}{'bias':>8}{'covered':>8}"
    lines = ["", head]
    for what, groups in summary["by_group"].items():
        lines.append(f"by {what}")
        for name, of in groups.items():
            errors = "".join(_percent(of[key]) for key in ("median_abs_error", "mean_abs_error"))
            ends = _percent(of["time_bias"], "+") + _percent(of["interval_coverage"])
            lines.append(f"  {name[:47]:48}{of['cells']:6}{of['rows']:6}{errors}{ends}")
    return lines


def _percent(value: float | None, sign: str = "") -> str:
    return f"{'-':>8}" if value is None else f"{100 * value:{sign}7.1f}%"
