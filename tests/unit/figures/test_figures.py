"""Figures of a sweep: all are written, what they say is there, and odd data fails none of them."""

from __future__ import annotations

import contextlib
import importlib

import numpy as np
import pytest

from hwopt.errors import UserError
from hwopt.output.colours import PARTS, part_colour
from hwopt.output.figures.bottleneck_map import plot_bottleneck_map
from hwopt.output.figures.breakdown import plot_breakdown
from hwopt.output.figures.budgets import plot_budgets
from hwopt.output.figures.parallel_coordinates import plot_parallel_coordinates
from hwopt.output.figures.pareto import plot_pareto
from hwopt.output.figures.roofline import plot_roofline
from hwopt.output.figures.style import NothingToDraw
from hwopt.output.figures.sweep import FIGURES, save_figures
from tests.tiers import turn


@pytest.fixture
def drawn(monkeypatch):
    """Draws without writing: `drawn(plot, dataset)` is the figure."""

    def draw(plot, dataset):
        held = []
        monkeypatch.setattr(importlib.import_module(plot.__module__), "save", lambda figure, path: held.append(figure))
        plot(dataset, "unused.png")
        return held[0]

    return draw


@pytest.fixture
def touched(monkeypatch):
    """Figures are drawn, and their files are empty."""
    for plot in FIGURES.values():
        monkeypatch.setattr(importlib.import_module(plot.__module__), "save", lambda _, path: path.touch())


def texts(figure):
    """All that a figure says."""
    import matplotlib.text

    return [each.get_text() for each in figure.findobj(matplotlib.text.Text) if each.get_text()]


def keys(figure):
    import matplotlib.legend

    legend = figure.findobj(matplotlib.legend.Legend)[0]
    return [each.get_text() for each in legend.get_texts()]


# All of them.


def test_all_are_written_and_again_the_same(sweep, tmp_path):
    written = save_figures(sweep(rows=1500), tmp_path / "new" / "a")
    assert [path.stem for path in written] == list(FIGURES)
    assert all(each.stat().st_size > 10_000 for each in written)
    first = written[turn() % len(written)]
    FIGURES[first.stem](sweep(rows=1500), tmp_path / "again.png")
    assert first.read_bytes() == (tmp_path / "again.png").read_bytes(), first.name


def test_without_feasible_designs_they_say_so(sweep, touched, drawn, tmp_path):
    dataset = sweep(rows=400, hardest=0.05)
    assert dataset.attrs["best_are"] == "nearest" and not dataset["feasible"].any()
    assert len(save_figures(dataset, tmp_path)) == len(FIGURES)
    for plot in (plot_breakdown, plot_budgets, plot_parallel_coordinates):
        assert any("closest to feasible" in text.replace("\n", " ") for text in texts(drawn(plot, dataset)))
    assert "closest to feasible" in keys(drawn(plot_pareto, dataset))


def test_one_variable(sweep, touched, tmp_path):
    written = {path.stem for path in save_figures(sweep(rows=300, variables=("chips",)), tmp_path)}
    assert written == set(FIGURES) - {"bottleneck_map"}


def test_what_is_missing_or_empty_is_skipped(sweep, touched, tmp_path):
    dataset = sweep(rows=300)
    assert save_figures(dataset[[]], tmp_path / "nothing") == []
    empty = dataset.isel(rank=slice(0), point=slice(0), kernel=slice(0), budget=slice(0))
    assert [path.stem for path in save_figures(empty, tmp_path / "empty")] == ["bottleneck_map"]
    bare = dataset.drop_dims("variant")
    assert len(save_figures(bare, tmp_path / "bare")) == len(FIGURES)
    unknown = dataset.assign({name: dataset[name] * np.nan for name in dataset if str(name).startswith("best_")})
    written = {path.stem for path in save_figures(unknown, tmp_path / "unknown")}
    assert written == {"pareto", "bottleneck_map", "roofline"}


def test_nothing_to_draw_is_an_error_of_one_figure(sweep, tmp_path):
    for plot in FIGURES.values():
        with pytest.raises(NothingToDraw, match="nothing to draw"):
            plot(sweep(rows=300)[[]], tmp_path / "x.png")
    with pytest.raises(UserError, match="cannot be written"):
        plot_budgets(sweep(rows=300), tmp_path / "x.nothing")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be made"):
        save_figures(sweep(rows=300), tmp_path / "file")


# Pareto.


def test_the_front_shows_budgets_bottlenecks_and_units(sweep, drawn):
    dataset = sweep(rows=1500)
    figure = drawn(plot_pareto, dataset)
    said = texts(figure)
    assert r"cost of the run (M\$)" in said and "time of the run (days)" in said
    assert "time budget 41 days" in said and not any("power budget" in text for text in said)
    assert {"exceeds a budget", "best design", "other designs that exceed a budget"} <= set(keys(figure))
    axes = figure.axes[0]
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert len(dashed) == 1 and dashed[0].get_ydata()[0] == pytest.approx(41.0)
    assert axes.get_xscale() == axes.get_yscale() == "log"
    step = next(line for line in axes.lines if line.get_drawstyle() == "steps-post")
    assert step.get_xdata() == pytest.approx(dataset["front_run_cost_usd"].values / 1e6)
    assert (np.diff(step.get_ydata()) < 0).all()


def test_feasible_points_are_filled(sweep, drawn):
    dataset = sweep(rows=1500, hardest=1e3)
    dataset["front_bottleneck"][:] = 0
    dataset["front_feasible"][:-1] = 1
    dataset["front_feasible"][-1] = 0
    collections = drawn(plot_pareto, dataset).axes[0].collections
    fronts = [each for each in collections if each.get_zorder() == 4]
    filled = {each.get_facecolor().tobytes(): len(each.get_offsets()) for each in fronts}
    from matplotlib.colors import to_rgba_array

    assert filled[to_rgba_array(part_colour("compute")).tobytes()] == dataset.sizes["point"] - 1
    assert filled[to_rgba_array("white").tobytes()] == 1


def test_three_metrics_make_a_matrix_and_five_no_larger_one_than_four(sweep, drawn):
    three = drawn(plot_pareto, sweep(rows=300, pareto=("run_cost_usd", "run_time_s", "peak_power_w")))
    assert sum(axes.axison for axes in three.axes) == 3
    assert any("time budget" in text for text in texts(three)) and any("power budget" in text for text in texts(three))
    names = ("run_cost_usd", "run_time_s", "peak_power_w", "capex_usd", "step_time_s")
    assert sum(axes.axison for axes in drawn(plot_pareto, sweep(rows=300, pareto=names)).axes) == 6


def test_a_front_of_one_point(sweep, drawn):
    dataset = sweep(rows=1500).isel(point=slice(1)).drop_dims("variant")
    figure = drawn(plot_pareto, dataset)
    low, high = figure.axes[0].get_xlim()
    assert high > 1.05 * low and any("1 design" in text for text in texts(figure))
    with pytest.raises(NothingToDraw, match="two metrics"):
        plot_pareto(sweep(rows=300, pareto=("run_cost_usd",)), "unused.png")


def test_the_cloud_is_bounded(sweep, drawn, monkeypatch):
    from hwopt.output.figures import pareto

    monkeypatch.setattr(pareto, "CLOUD", 100)
    clouds = [each for each in drawn(plot_pareto, sweep(rows=1500)).axes[0].collections if each.get_zorder() == 1]
    assert 95 <= sum(len(each.get_offsets()) for each in clouds) <= 100


# The map.


def test_the_map_names_only_what_occurs(sweep, drawn):
    dataset = sweep(rows=1500)
    dataset["map_bottleneck"][:] = np.where(np.arange(24) < 6, 7, 3)
    dataset["map_objective"][:] = 4e7 * (1 + np.arange(24) / 10)
    dataset["map_objective"][:, -1], dataset["map_bottleneck"][:, -1] = np.nan, -1
    figure = drawn(plot_bottleneck_map, dataset)
    assert keys(figure) == [
        "tp comm  74 %", "pp bubble  26 %", "no buildable design  4.2 % of the map", r"cost of the run (M\$), smoothed",
        r"lowest cost of the run: 40 M\$",
    ]  # fmt: skip
    axes = figure.axes[0]
    assert axes.get_xlabel() == "chips" and axes.get_ylabel() == "HBM bandwidth (TB/s)"
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert len({"48", "59", "84", "120"} & set(texts(figure))) >= 2  # contours carry their numbers


@pytest.mark.parametrize("filled", [0, 1])
def test_a_map_of_nothing_and_of_one_cell(sweep, tmp_path, filled):
    dataset = sweep(rows=300)
    dataset["map_objective"][:], dataset["map_bottleneck"][:] = np.nan, -1
    if filled:
        dataset["map_objective"][3, 4], dataset["map_bottleneck"][3, 4] = 5e7, 0
    with contextlib.nullcontext() if filled else pytest.raises(NothingToDraw):
        plot_bottleneck_map(dataset, tmp_path / "map.png")
    assert (tmp_path / "map.png").exists() == bool(filled)


def test_a_map_without_width_is_none(sweep):
    dataset = sweep(rows=300)
    dataset["map_x_edges"][:] = 1.0
    with pytest.raises(NothingToDraw, match="no width"):
        plot_bottleneck_map(dataset, "unused.png")


# Parallel coordinates.


def test_lines_span_the_box_and_the_best_is_bold(sweep, drawn):
    figure = drawn(plot_parallel_coordinates, sweep(rows=1500))
    said = texts(figure)
    assert {"400k", "12", "432", "0.5"} <= set(said) and "HBM bandwidth\n(TB/s)" in said
    assert "cost of the\n" + r"run (M\$)" in said and not any("fullest" in text for text in said)
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 14]  # 13 that move, and the objective
    assert len(lines) == 40 and sorted(line.get_linewidth() for line in lines)[-2:] == [1.0, 3.2]
    assert all(-1e-9 <= value <= 1 + 1e-9 for line in lines for value in line.get_ydata())


def test_without_bounds_axes_span_the_data(sweep, drawn):
    dataset = sweep(rows=1500).drop_dims("variant")
    chips = dataset["best_chips"].values
    assert f"{chips.max() / 1e3:.4g}k" in texts(drawn(plot_parallel_coordinates, dataset))
    one = drawn(plot_parallel_coordinates, sweep(rows=1500).isel(rank=slice(1)))
    assert any("the best design" in text for text in texts(one))


# Roofline.


def test_the_roof_stands_over_named_kernels(sweep, drawn):
    dataset = sweep(rows=300)
    figure = drawn(plot_roofline, dataset)
    said = texts(figure)
    assert {"peak 989 TFLOP/s", "HBM 3.35 TB/s", "ridge 295 FLOP/B", "lm head", "qkv projection"} <= set(said)
    axes = figure.axes[0]
    names = {name.replace("_", " ") for name in dataset["roofline_intensity"].attrs["flag_meanings"].split()}
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text() in names]
    assert len(boxes) == 10
    assert not any(first.overlaps(second) for at, first in enumerate(boxes) for second in boxes[:at])
    frame = axes.get_window_extent()
    assert all(box.x0 >= frame.x0 - 1 and box.x1 <= frame.x1 + 1 for box in boxes)


def test_kernels_that_do_not_exist_are_left_out(sweep, drawn):
    dataset = sweep(rows=300)
    dataset["roofline_intensity"][3], dataset["roofline_flops_per_s"][4] = 0.0, np.nan
    assert not {"ffn up", "ffn gate"} & set(texts(drawn(plot_roofline, dataset)))


# Breakdown and budgets.


def test_small_parts_are_gathered(sweep, drawn):
    dataset = sweep(rows=1500)
    figure = drawn(plot_breakdown, dataset)
    named = keys(figure)
    assert named[0] == "compute" and named[-1] == "other" and "pp comm" not in named and "cp comm" not in named
    bars = [bar for bar in figure.axes[0].patches if bar.get_height() == pytest.approx(0.74)]
    ends = {}
    for bar in bars:
        ends[bar.get_y()] = max(ends.get(bar.get_y(), 0.0), bar.get_x() + bar.get_width())
    steps = dataset["best_step_time_s"].values[:6]
    assert [ends[y] for y in sorted(ends)] == pytest.approx(steps, rel=1e-6)
    assert figure.axes[0].get_xlabel() == "time of a step (s)"


def test_budgets_over_their_limit_are_red(sweep, drawn):
    dataset = sweep(rows=1500)
    dataset["best_used"][0] = [0.9 * 41 * 86400, 1.2 * 1.45e9, 40e6]
    figure = drawn(plot_budgets, dataset)
    axes = figure.axes[0]
    shares = [bar.get_width() for bar in axes.patches]
    assert shares == pytest.approx([90.0, 120.0, 100.0])
    colours = [bar.get_facecolor() for bar in axes.patches]
    assert colours[0] == colours[2] != colours[1] and colours[1][0] > 0.7
    said = texts(figure)
    assert {"time budget", "capex budget", "power budget", "100 %: 40 MW of 40 MW"} <= set(said)
    assert r"120 %: 1.74 B\$ of 1.45 B\$" in said
    assert any(list(line.get_xdata()) == [100.0, 100.0] and line.get_linestyle() == "--" for line in axes.lines)


# Colours.


def test_every_part_has_a_colour():
    from hwopt.model.training.schedule import Breakdown

    assert {name.removesuffix("_s") for name in Breakdown._fields} == set(PARTS)
    assert part_colour("compute_s") == part_colour("compute") != part_colour("something else")


def test_colours_differ_to_colour_blind_readers():
    # Machado, Oliveira, Fernandes 2009, severity 1: without red cones, without green ones.
    blind = (
        np.eye(3),
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    )
    to_xyz = np.array([[0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0178, 0.1095, 0.8727]])  # white is 1
    encoded = np.array([[int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)] for colour in PARTS.values()])
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    for matrix in blind:
        xyz = np.clip(linear @ np.transpose(matrix), 0, 1) @ to_xyz.T
        x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116).T
        lab = np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)
        apart = np.linalg.norm(lab[:, None] - lab[None], axis=-1)[np.triu_indices(len(lab), 1)]
        assert apart.min() > 15.0  # CIE76; 2.3 is just noticeable


# What was swept over several choices.


@pytest.fixture
def of_chips(sweep):
    """A sweep of three chips: the front takes two of them, the map all."""
    dataset = sweep(rows=500)
    flags = {"flag_values": [0, 1, 2], "flag_meanings": "chip=h100-sxm chip=b200 chip=mi300x"}
    front = np.arange(dataset.sizes["point"], dtype=np.int8) % 2
    filled = np.isfinite(dataset["map_objective"].values)
    cells = np.where(filled, np.arange(filled.size).reshape(filled.shape) % 3, -1).astype(np.int8)
    best = np.zeros(dataset.sizes["rank"], np.int8)
    return dataset.assign(
        front_case=("point", front, flags), map_case=(("map_y", "map_x"), cells, flags), best_case=("rank", best, flags)
    )


def test_the_front_says_which_chip_each_point_is(drawn, of_chips):
    figure = drawn(plot_pareto, of_chips)
    said = keys(figure)
    assert {"h100-sxm", "b200"} <= set(said) and "mi300x" not in said
    assert any(each.endswith(": h100-sxm") for each in said)
    marks = {tuple(each.get_paths()[0].vertices[0]) for each in figure.axes[0].collections if len(each.get_offsets())}
    assert len(marks) > 2  # rows behind and two shapes


def test_a_second_map_says_which_chip_each_cell_takes(drawn, of_chips, sweep):
    one, two = drawn(plot_bottleneck_map, sweep(rows=500)), drawn(plot_bottleneck_map, of_chips)
    assert (len(one.axes), len(two.axes)) == (1, 2)
    names = [each.get_text() for each in two.axes[1].get_legend().get_texts()]
    assert sorted(each.split()[0] for each in names) == ["b200", "h100-sxm", "mi300x"]
    assert "choice of the best design" in texts(two)
    alone = drawn(
        plot_bottleneck_map, of_chips.assign(map_case=of_chips["map_case"].assign_attrs(flag_meanings="as-asked"))
    )
    assert len(alone.axes) == 1
