"""Roofline figure: attainable rate of a chip, and attained rates of its kernels."""

from pathlib import Path
from typing import Any

import numpy as np

from hwopt.output.colours import part_colour
from hwopt.output.figures.label_placement import place_labels, settle
from hwopt.output.figures.quantities import fitted, set_range
from hwopt.output.figures.style import NothingToDraw, figure, plain, save
from hwopt.output.figures.sweep_contents import best_is_feasible, heading, meanings, values


def plot_roofline(dataset: Any, path: str | Path) -> None:
    """Draw the rate of each kernel over its arithmetic intensity, under `min(peak, intensity x HBM bandwidth)` of the best
    design.

    **Arguments:** `dataset` of a sweep; `path` of the image to write.

    **Raises:** `NothingToDraw` without kernels or their chip; `UserError` where the file cannot be written.
    """
    intensity, attained = (values(dataset, f"roofline_{end}").astype(float) for end in ("intensity", "flops_per_s"))
    peak, bandwidth = (
        float(values(dataset, f"roofline_{end}").ravel()[0]) for end in ("peak_flops_per_s", "hbm_bytes_per_s")
    )
    words_of = meanings(dataset, "roofline_intensity", "roofline_flops_per_s")
    drawable = np.isfinite(intensity) & np.isfinite(attained) & (intensity > 0) & (attained > 0)
    if not drawable.any() or not (np.isfinite([peak, bandwidth]).all() and min(peak, bandwidth) > 0):
        raise NothingToDraw("no kernel of the best design is known")
    names = [words_of.get(int(at), f"kernel {at + 1}").replace("_", " ") for at in np.flatnonzero(drawable)]
    x, y, ridge = intensity[drawable], attained[drawable], peak / bandwidth
    rate, traffic = fitted("attained", "FLOP/s", [*y, peak]), fitted("HBM", "B/s", [bandwidth])
    with figure(figsize=(7.6, 4.8)) as (drawn, (axes,)):
        low, high = min(x.min(), ridge) / 2.5, max(x.max(), ridge) * 2.5
        floor, top = min(y.min(), low * bandwidth * 4) / 2, peak * 2.5
        roof = np.array([low, ridge, high])
        axes.plot(roof, rate.scaled(np.minimum(roof * bandwidth, peak)), color="0.15", linewidth=1.8, zorder=3)
        axes.axvline(ridge, color="0.55", linestyle=":", linewidth=1.0, zorder=1)
        for under, marker, part, words in (
            (x < ridge, "s", "memory_bound", "below the ridge: HBM bounds"),
            (x >= ridge, "o", "compute", "above it: arithmetic bounds"),
        ):
            look = {"color": part_colour(part), "edgecolors": "black", "linewidths": 0.6, "zorder": 4}
            axes.scatter(
                x[under], rate.scaled(y[under]), marker=marker, s=46, label=words if under.any() else None, **look
            )
        set_range(axes.xaxis, low, high)
        set_range(axes.yaxis, float(rate.scaled(floor)), float(rate.scaled(top)))
        axes.set(xlabel="arithmetic intensity (FLOP/B of HBM traffic)", ylabel=f"attained rate ({rate.shown})")
        which = "the best design" if best_is_feasible(dataset) else "the design closest to feasible"
        axes.set_title(heading(dataset, f"roofline of {which}"), fontsize=11)
        axes.annotate(
            f"peak {rate.text(peak)}", (high, rate.scaled(peak)), xytext=(-4, 4), textcoords="offset points", ha="right",
            fontsize=8.5,
        )  # fmt: skip
        axes.annotate(
            f"ridge {ridge:.3g} FLOP/B", (ridge, 0.02), xycoords=("data", "axes fraction"), xytext=(-3, 0),
            textcoords="offset points", rotation=90, ha="right", fontsize=8, color="0.35",
        )  # fmt: skip
        axes.legend(loc="upper left", fontsize=8)
        settle(axes)
        _along(axes, (low, ridge), rate.scaled([low * bandwidth, peak]), f"HBM {traffic.text(bandwidth)}")
        line = np.geomspace(low, high, 200)
        under = (line, rate.scaled(np.minimum(line * bandwidth, peak)))
        place_labels(axes, x, rate.scaled(y), [plain(name) for name in names], under)
        save(drawn, path)


def _along(axes: Any, x: tuple[float, float], y: np.ndarray, words: str) -> None:
    """Write a label above the middle of a straight line on logarithmic axes, rotated to the line's slope on the screen.

    **Arguments:** `x`, `y`: coordinates of the two ends of the line.
    """
    (x0, y0), (x1, y1) = axes.transData.transform(np.column_stack([x, y]))
    axes.annotate(
        words, (np.sqrt(x[0] * x[1]), np.sqrt(y[0] * y[1])), xytext=(-3, 4), textcoords="offset points", ha="center",
        rotation=np.degrees(np.arctan2(y1 - y0, x1 - x0)), rotation_mode="anchor", fontsize=8.5,
    )  # fmt: skip
