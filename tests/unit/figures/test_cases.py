"""A sweep of several cases keeps its rows by case; figures show them together."""

import subprocess
import sys

import numpy as np
import xarray as xr

from hwopt.output.figures.pareto import _cloud


def test_the_cloud_is_drawn_from_all_cases():
    time = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    dataset = xr.Dataset({
        "run_time_s": (("case", "variant"), time),
        "run_cost_usd": (("case", "variant"), 10.0 * time),
        "possible": (("case", "variant"), np.array([[0, 1, 1], [1, 0, 1]], np.int8)),
        "feasible": (("case", "variant"), np.array([[0, 0, 1], [1, 0, 0]], np.int8)),
    })  # fmt: skip
    cloud = _cloud(dataset, ["run_time_s", "run_cost_usd"])
    assert cloud is not None
    assert cloud.values["run_time_s"].tolist() == [2.0, 3.0, 4.0, 6.0]
    assert cloud.values["run_cost_usd"].tolist() == [20.0, 30.0, 40.0, 60.0]
    assert cloud.feasible.tolist() == [False, True, True, False]


def test_no_possible_row_leaves_no_cloud():
    dataset = xr.Dataset({name: (("variant",), np.zeros(3)) for name in ("run_time_s", "possible", "feasible")})
    assert _cloud(dataset, ["run_time_s"]) is None


def test_drawing_leaves_the_backend_of_a_notebook_alone():
    """A switch of backend would swallow every later `plt.show()`."""
    code = """
import matplotlib
matplotlib.use("svg")
import matplotlib.pyplot as plt
from hwopt.output.figures.style import figure
with figure(2, 1, figsize=(3, 4), sharex=True, height_ratios=(2, 1)) as (drawn, axes):
    assert len(axes) == 2
assert matplotlib.get_backend().lower() == "svg" and not plt.get_fignums()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
