"""One screen of text for a validation."""

from __future__ import annotations


def screen(result: dict) -> str:
    """What `hwopt validate` prints: the errors over cells, the baseline beside them, sources, and what was left out.

    **Arguments:** `result` of `validate`.
    """
    s = result["summary"]
    spread = s["release_spread"]
    lines = [
        f"{s['rows']} rows: {s['scored']} scored in {s['cells']} cells (source, model, accelerator), {s['skipped']} skipped",
        f"constants: {s['constants']}",
        f"columns: {_columns(s['inferred'])}",
        "",
        f"{'':38}{'median':>8}{'mean':>8}{'max':>8}{'bias':>8}",
        f"{'error over cells':38}{_percent(s['median_abs_error'])}{_percent(s['mean_abs_error'])}"
        f"{_percent(s['max_abs_error'])}{_percent(s['time_bias'], signed=True)}",
        f"{'one utilisation per accelerator':38}{_percent(s['baseline_abs_error'])}{_percent(s['baseline_mean_abs_error'])}",
    ]
    if spread["configurations"]:
        lines.append(
            f"{'releases of one configuration differ':38}{_percent(spread['median'])}"
            f"   (median of {spread['configurations']}; 90th percentile {100 * spread['p90']:.0f} %)"
        )
    coverage = s["interval_coverage"]
    lines += [
        "intervals: "
        + (
            "none: these constants were not calibrated"
            if coverage is None
            else f"{100 * coverage:.0f} % of measured values inside, meant to be 80"
        ),
        "bias: predicted over measured step time; + is too slow",
        "",
        f"{'source':50}{'cells':>6}{'rows':>6}{'median':>8}{'bias':>8}",
    ]
    by_error = sorted(s["by_source"].items(), key=lambda item: -item[1]["cells"])
    lines += [
        f"{source[:49]:50}{of['cells']:6}{of['rows']:6}{_percent(of['median_abs_error'])}{_percent(of['time_bias'], signed=True)}"
        for source, of in by_error
    ]
    if s["superseded"]:
        lines += [
            "",
            f"{s['superseded']} scored rows repeat a run (older release or another metric) and do not count in cells",
        ]
    if s["skipped"]:
        lines += ["", "skipped"]
        lines += [f"{count:6}  {reason}" for reason, count in s["skipped_by_reason"].items()]
    return "\n".join(lines)


def _columns(inferred: list[str]) -> str:
    if not inferred:
        return "as the file states them"
    return f"{len(inferred)} inferred from the file's text; python -m hwopt.evidence.collected_text writes them into it"


def _percent(value: float | None, *, signed: bool = False) -> str:
    if value is None:
        return f"{'-':>8}"
    return f"{100 * value:+7.1f}%" if signed else f"{100 * value:7.1f}%"
