"""Functions kept on disk: the same numbers from the file as from the trace, and a file only where that is safe."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import pickle
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hwopt
from hwopt import catalog, source_digest
from hwopt.cache_folders import machine_folder
from hwopt.design import exact
from hwopt.design.lattices import lattice_of
from hwopt.model.estimate import estimate
from hwopt.solver.search import canonicalize
from hwopt.solver.search.node_relaxations import NodeRelaxations
from hwopt.trace import cache
from tests.rotation import one_in


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
    cache._of_form.cache_clear()
    return cache.evaluate_in_numpy(function, *inputs)


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
    problem = hwopt.objective("serve_cost", workload="mixtral-8x7b").problem().continuous
    lattice = lattice_of(problem)
    boxes = lattice.initial_boxes()[:5]
    seen = []
    for _ in range(2):
        canonicalize._general.cache_clear()
        canonicalize._line.cache_clear()
        with jax.enable_x64(True):
            seen.append(NodeRelaxations(problem, lattice).of(boxes)[0])
    traced, read = seen
    assert len(files(folder)) == 1
    np.testing.assert_array_equal(traced.structure.exponents, read.structure.exponents)
    np.testing.assert_array_equal(traced.numbers.constants, read.numbers.constants)
    assert traced.relaxed and list(map(str, traced.relaxed)) == list(map(str, read.relaxed))
    assert sum(str(each).startswith("hwopt/model/") for each in read.relaxed) > 0.9 * len(
        read.relaxed
    )  # the rest: look-ups


@one_in(4, 1)
def test_another_process_finds_it(folder):
    code = (
        "import jax, sys; jax.config.update('jax_compilation_cache_dir', sys.argv[1])\n"
        "from hwopt.trace import cache; from tests.unit.trace.test_cache import asked\n"
        "from hwopt.model.estimate import estimate\n"
        "jax.make_jaxpr = None\n"
        "print(repr(cache.evaluate_in_numpy(estimate, *asked()).step_time_s))"
    )
    first = repr(again(estimate, *asked()).step_time_s)
    other = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True, cwd=ROOT)
    assert other.stdout.strip() == first and len(files(folder)) == 1


def test_names_tell_functions_apart(folder):
    """What a function closes over is part of its name; equal ones share a file."""

    def times(factor):
        return own(lambda x: x * factor + 1.0)

    results = [cache.evaluate_in_numpy(times(factor), np.arange(3.0)) for factor in (2.0, 3.0, 2.0)]
    np.testing.assert_array_equal(results, [[1, 3, 5], [1, 4, 7], [1, 3, 5]])
    assert len(files(folder)) == 2


@one_in(4, 3)
def test_names_do_not_depend_on_what_is_imported():
    """Sources of the objectives count in a process that has not met them yet."""
    code = "import sys; {}; from hwopt.trace import cache; print(cache._source(), 'objectives' in sys.modules)"
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
    np.testing.assert_array_equal(cache.evaluate_in_numpy(lambda x: x + 1.0, np.arange(3.0)), [1.0, 2.0, 3.0])
    assert not files(folder)


class Pair(NamedTuple):
    """Results with field names."""

    one: Any
    other: Any


Pair.__module__ = "hwopt.tests"


@pytest.fixture
def written(folder, monkeypatch):
    """Return a cached function's file, its content, and a check that results and file are the same again."""
    monkeypatch.setitem(sys.modules, "hwopt.tests", types.SimpleNamespace(Pair=Pair))
    function = own(lambda x, y: {"a": Pair(np.pi * x, [x[0] ** 3, None]), "b": (x > y, jnp.tanh(y))})
    inputs = np.arange(3.0), 2.0
    right = cache.evaluate_in_numpy(function, *inputs)
    (path,) = files(folder)
    good = path.read_bytes()

    def same() -> bool:
        np.testing.assert_equal(again(function, *inputs), right)
        return path.read_bytes() == good

    return path, good, same


def test_what_is_written_is_read(written, monkeypatch):
    path, good, same = written
    monkeypatch.setattr(jax, "make_jaxpr", None)
    assert same()
    digest, _, content = good.partition(b"\n")
    assert hashlib.sha256(path.name.encode() + content).hexdigest() == digest.decode()
    json.loads(content)


class Bomb:
    """Executes a command when unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def test_a_damaged_file_is_made_again(written):
    path, good, same = written
    generator = np.random.default_rng(0)
    flipped = [bytearray(good) for _ in range(200)]
    for content in flipped:
        content[generator.integers(len(good))] ^= 1 << generator.integers(8)
    cut = [good[:end] for end in generator.integers(len(good), size=20)]
    for content in (*flipped, *cut, b"", b"\n", good + b" ", b"no trace", b"\x80\x05N.", good.partition(b"\n")[2]):
        path.write_bytes(content)
        assert same()


def test_a_pickle_is_not_executed(written, tmp_path):
    path, _, same = written
    bomb = pickle.dumps(Bomb(tmp_path / "executed"))
    for content in (bomb, cache._sealed(path, bomb)):
        path.write_bytes(content)
        assert same() and not (tmp_path / "executed").exists()


def test_files_of_two_functions_that_changed_places_are_made_again(folder):
    functions = [own(lambda x, by=by: by * x) for by in (2.0, 3.0)]
    for function in functions:
        cache.evaluate_in_numpy(function, np.arange(3.0))
    one, other = files(folder)
    good = one.read_bytes(), other.read_bytes()
    one.write_bytes(good[1]), other.write_bytes(good[0])
    results = [again(function, np.arange(3.0)) for function in functions]
    np.testing.assert_array_equal(results, [[0, 2, 4], [0, 3, 6]])
    assert (one.read_bytes(), other.read_bytes()) == good


TAMPERED = {
    "no entries": lambda whole: whole.clear(),
    "a list of results": lambda whole: whole.update(shapes=[whole["shapes"]]),
    "a function of a module": lambda whole: whole["rows"][0].__setitem__(0, "system"),
    "an attribute": lambda whole: whole["rows"][0].__setitem__(0, "__class__"),
    "a primitive that is not a scalar operation": lambda whole: whole["rows"][0].__setitem__(0, "while"),
    "parameters that there are not": lambda whole: whole["rows"][0].__setitem__(1, [["call", "os"]]),
    "an exponent that is none": lambda whole: [row.__setitem__(1, [["y", []]]) for row in whole["rows"]],
    "a row that is not there": lambda whole: whole["operations"][0].__setitem__(0, 99),
    "a place that is not there": lambda whole: whole["operations"][0].__setitem__(1, 10**6),
    "a place that comes later": lambda whole: whole["operations"][0].__setitem__(1, len(whole["operations"]) + 9),
    "an index that is not an integer": lambda whole: whole["operations"][0].__setitem__(1, "0"),
    "too few arguments": lambda whole: [each.pop() for each in whole["operations"]],
    "too many arguments": lambda whole: [each.extend([0, 0, 0]) for each in whole["operations"]],
    "too many inputs": lambda whole: whole.update(inputs=10**15),
    "fewer inputs": lambda whole: whole.update(inputs=1),
    "fewer outputs": lambda whole: whole["outputs"].pop(),
    "an output that is not there": lambda whole: whole["outputs"].__setitem__(0, 10**6),
    "numbers of another kind": lambda whole: whole.update(numbers={"O": whole["numbers"]["float64"]}),
    "half a number": lambda whole: whole.update(numbers={"float64": whole["numbers"]["float64"][:-2]}),
    "a class of another package": lambda whole: whole.update(shapes={"subprocess:Popen": {"args": "true"}}),
    "a class that is not imported": lambda whole: whole.update(shapes={"hwopt.__main__:entry": {}}),
    "a function of this package": lambda whole: whole.update(shapes={"hwopt.trace.cache:cached_trace": {}}),
    "a module of this package": lambda whole: whole.update(shapes={"hwopt.trace.cache:os": {}}),
    "a class that is not a result": lambda whole: whole.update(shapes={"hwopt.workers:Worker": {"modules": []}}),
    "results without a shape": lambda whole: whole.update(shapes={"tuple": ["x"] * len(whole["outputs"])}),
    "an endless shape": lambda whole: whole.update(shapes={"shape": [[10**9, 10**9], "float64"]}),
    "a shape of less than nothing": lambda whole: whole.update(shapes={"shape": [[-1], "float64"]}),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_file_that_was_never_written_by_hwopt_is_made_again(what, written):
    """The digest is valid, as from an attacker with write access. Such a file can change numbers, but nothing else."""
    path, good, same = written
    whole = json.loads(good.partition(b"\n")[2])
    TAMPERED[what](whole)
    path.write_bytes(cache._sealed(path, json.dumps(whole).encode()))
    assert same()


@pytest.mark.parametrize(
    "content", ["[]", "7", '{"inputs":' * 100_000, '{"shapes":' + '{"tuple":[' * 900 + "]}" * 900 + "}"]
)
def test_a_file_of_another_build_is_made_again(content, written):
    path, _, same = written
    path.write_bytes(cache._sealed(path, content.encode()))
    assert same()


@pytest.mark.parametrize("place", ["base", "inside"])
@pytest.mark.parametrize("way", ["mode", "owner", "link"])
def test_a_folder_that_others_can_write_to_is_neither_read_nor_written(place, way, written, monkeypatch, tmp_path):
    path, _, same = written
    shared = path.parent if place == "inside" else path.parents[1]
    if way == "owner":
        if os.geteuid() != 0:
            pytest.skip("only root gives folders away")
        os.chown(shared, 12345, 12345)
    elif way == "mode":
        shared.chmod(0o777)
    elif place == "base":
        pytest.skip("a base is what a link to it leads to")
    else:
        shared.rename(tmp_path / "elsewhere")
        shared.symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(cache, "_read", None)
    asked = []
    monkeypatch.setattr(cache, "_write", lambda *content: asked.append(content))
    assert same() and not asked


def test_names_change_with_the_content_of_sources_alone(monkeypatch):
    monkeypatch.setattr(source_digest, "source_digest", lambda: "one")
    before = cache._source.__wrapped__()
    assert cache._source.__wrapped__() == before
    monkeypatch.setattr(source_digest, "source_digest", lambda: "other")
    assert cache._source.__wrapped__() != before


@dataclasses.dataclass(frozen=True)
class Odd:
    """Results with a field that may not be plain data."""

    number: Any
    beside: Any


jax.tree_util.register_dataclass(Odd, ["number"], ["beside"])
Odd.__module__ = "hwopt.tests"


@pytest.mark.parametrize(("beside", "count"), [("words", 1), (b"bytes", 0), (math.sqrt, 0), (np.float32, 0)])
def test_what_is_no_plain_data_is_not_kept(beside, count, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "hwopt.tests", types.SimpleNamespace(Odd=Odd))
    found = cache.evaluate_in_numpy(own(lambda x: Odd(2.0 * x, beside)), 3.0)
    assert found.number == 6.0 and found.beside == beside and len(files(folder)) == count


def test_relative_folders_and_object_stores_are_left_alone(monkeypatch, tmp_path, folder):
    monkeypatch.chdir(tmp_path)
    for place in ("kept", ".", "gs://bucket/kept"):
        jax.config.update("jax_compilation_cache_dir", place)
        np.testing.assert_array_equal(cache.evaluate_in_numpy(own(lambda x: 4.0 * x), np.arange(3.0)), [0.0, 4.0, 8.0])
    assert not list(tmp_path.iterdir())


def test_no_folder_and_no_room(tmp_path, folder, monkeypatch):
    function = own(lambda x: 2.0 * x)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for place in (None, str(tmp_path / "file" / "below")):
        (tmp_path / "file").touch()
        jax.config.update("jax_compilation_cache_dir", place)
        np.testing.assert_array_equal(cache.evaluate_in_numpy(function, np.arange(3.0)), [0.0, 2.0, 4.0])


def test_a_python_session_keeps_traces_where_the_command_line_does(tmp_path, folder, monkeypatch):
    """JAX's own cache stays off."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    jax.config.update("jax_compilation_cache_dir", None)
    function = own(lambda x: 5.0 * x)
    assert cache.evaluate_in_numpy(function, 1.0) == 5.0
    (kept,) = (tmp_path / "user" / "hwopt").glob("jax-*/hwopt-*/*")
    assert kept.parent.parent == machine_folder()
    monkeypatch.setattr(jax, "make_jaxpr", None)  # read, not traced again
    assert again(function, 2.0) == 10.0 and jax.config.jax_compilation_cache_dir is None


def test_known_inputs_are_worked_out():
    """A line with its first inputs known is shorter, and gives the same."""
    whole = cache.cached_trace(
        estimate, *jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), np.float64), asked())
    )
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
    cache.evaluate_in_numpy(own(lambda x: x / 2.0), np.arange(3.0))
    assert not old.exists() and recent.exists()
