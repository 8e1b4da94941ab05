"""Functions kept on disk: the same numbers from the file as from the trace, and a file only where that is safe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.design import exact
from hwopt.design.lattices import lattice_of
from hwopt.jaxprs import kept
from hwopt.model.estimate import estimate
from hwopt.optim import canonicalize
from hwopt.optim.programmes import Programmes


@pytest.fixture
def folder(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


ROOT = Path(__file__).parents[3]


def files(folder):
    """What is kept, without compiled kernels."""
    return sorted(folder.glob("hwopt-*/*"))


def again(function, *inputs):
    """As another process estimates, which has nothing in memory."""
    kept._of_form.cache_clear()
    return kept.estimated(function, *inputs)


def own(function):
    """The function as if this package held it."""
    function.__module__ = "hwopt.tests"
    return function


def asked(chips=8):
    run = catalog.training_run("llama3.1-8b")
    return run, catalog.cluster("h100-sxm", chips), catalog.plan(run, chips, tp=2, dp=chips // 2)


def test_estimates_without_a_compiler(folder):
    """The model in NumPy is the compiled model, from the trace and from disk, for other numbers of the same form too."""
    for chips in (8, 64, 64):
        inputs = asked(chips)
        report = again(estimate, *inputs)
        with jax.enable_x64(True):
            compiled = estimate(*inputs)
        assert jax.tree.structure(report) == jax.tree.structure(compiled)
        for one, other in zip(jax.tree.leaves(report), jax.tree.leaves(compiled), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    assert len(files(folder)) == 1


def test_what_is_read_from_disk_is_read_as_a_programme_alike(folder):
    """The same numbers of the same boxes to the last bit, and every relaxed part named with the line that wrote it."""
    problem = (
        hwopt.objective("train_cost", workload="mixtral-8x7b", chip="h200", global_batch=2048.0, sequence_length=8192.0)
        .problem()
        .continuous
    )
    lattice = lattice_of(problem)
    boxes = lattice.initial_boxes()[:5]
    seen = []
    for _ in range(2):
        canonicalize._general.cache_clear()
        canonicalize._line.cache_clear()
        with jax.enable_x64(True):
            seen.append(Programmes(problem, lattice).of(boxes)[0])
    traced, read = seen
    assert len(files(folder)) == 1
    np.testing.assert_array_equal(traced.structure.exponents, read.structure.exponents)
    np.testing.assert_array_equal(traced.numbers.constants, read.numbers.constants)
    assert traced.relaxed and list(map(str, traced.relaxed)) == list(map(str, read.relaxed))
    assert sum(str(each).startswith("hwopt/model/") for each in read.relaxed) > 0.9 * len(
        read.relaxed
    )  # the rest: look-ups


def test_another_process_finds_it(folder):
    code = (
        "import jax, sys; jax.config.update('jax_compilation_cache_dir', sys.argv[1])\n"
        "from hwopt.jaxprs import kept; from tests.unit.jaxprs.test_kept import asked\n"
        "from hwopt.model.estimate import estimate\n"
        "if sys.argv[2] == 'again': jax.make_jaxpr = None\n"
        "print(repr(kept.estimated(estimate, *asked()).step_time_s))"
    )
    first, again = (
        subprocess.run(
            [sys.executable, "-c", code, folder, word], capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout
        for word in ("first", "again")
    )
    assert first == again and len(files(folder)) == 1


def test_names_tell_functions_apart(folder):
    """What a function closes over is part of its name; equal ones share a file."""

    def times(factor):
        return own(lambda x: x * factor + 1.0)

    results = [kept.estimated(times(factor), np.arange(3.0)) for factor in (2.0, 3.0, 2.0)]
    np.testing.assert_array_equal(results, [[1, 3, 5], [1, 4, 7], [1, 3, 5]])
    assert len(files(folder)) == 2


def test_names_do_not_depend_on_what_is_imported():
    """Sources of the objectives count in a process that has not met them yet."""
    code = "import sys; {}; from hwopt.jaxprs import kept; print(kept._source(), 'objectives' in sys.modules)"
    found = [
        subprocess.run(
            [sys.executable, "-c", code.format(first)], capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout.split()
        for first in ("import equinox", "import equinox, objectives")
    ]
    assert [imported for _, imported in found] == ["False", "True"]
    assert found[0][0] == found[1][0]


def test_a_users_function_is_not_kept(folder):
    """Nobody knows what else it calls, which may change."""
    np.testing.assert_array_equal(kept.estimated(lambda x: x + 1.0, np.arange(3.0)), [1.0, 2.0, 3.0])
    assert not files(folder)


@pytest.mark.parametrize("content", [b"", b"no pickle", b"\x80\x05N."])
def test_a_damaged_file_is_made_again(folder, content):
    function = own(lambda x: np.pi * x)
    right = kept.estimated(function, np.arange(3.0))
    (path,) = files(folder)
    good = path.read_bytes()
    path.write_bytes(content)
    np.testing.assert_array_equal(again(function, np.arange(3.0)), right)
    assert path.read_bytes() == good


def test_no_folder_and_no_room(tmp_path, folder):
    function = own(lambda x: 2.0 * x)
    for place in (None, str(tmp_path / "file" / "below")):
        (tmp_path / "file").touch()
        jax.config.update("jax_compilation_cache_dir", place)
        np.testing.assert_array_equal(kept.estimated(function, np.arange(3.0)), [0.0, 2.0, 4.0])


def test_known_inputs_are_worked_out():
    """A line with its first inputs known is shorter, and gives the same."""
    whole = kept.traced(estimate, *jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), np.float64), asked()))
    numbers = [float(x) for leaf in jax.tree.leaves(asked()) for x in np.ravel(leaf)]
    columns = [np.full(1, x) for x in numbers]
    for count in (0, len(numbers) // 2, len(numbers) - 5):
        part = whole.known(numbers[:count])
        assert len(part.line.operations) <= len(whole.line.operations)
        for one, other in zip(
            jax.tree.leaves(part(columns[count:], 1)), jax.tree.leaves(whole(columns, 1)), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    assert len(part.line.operations) < len(whole.line.operations) / 2


def test_questions_of_a_form_share_a_line(folder):
    """Another chip, price and budget is no other file."""
    exact._general.cache_clear()
    for chip, budget in (("h100-sxm", 30e6), ("h200", 60e6)):
        with jax.enable_x64(True):
            exact.ExactModel(
                hwopt.objective("train_cost", chip=chip, power_budget_w=budget).problem().continuous
            ).prepare()
    assert len(files(folder)) == 1


def test_what_other_versions_kept_goes_after_a_month(folder):
    old, recent = folder / "hwopt-old", folder / "hwopt-recent"
    for place in (old, recent):
        place.mkdir()
        (place / "line").touch()
    os.utime(old, (0, 0))
    kept.estimated(own(lambda x: x / 2.0), np.arange(3.0))
    assert not old.exists() and recent.exists()
