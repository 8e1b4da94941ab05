"""Sweeps in object stores: the bytes of a local one, after interruptions and damage too; nothing foreign is touched."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import xarray

import hwopt
from hwopt.cli.paths import Outputs
from hwopt.errors import UserError
from hwopt.sweeps import opened, storage
from hwopt.sweeps.storage import is_url, place_of
from tests.toy import ToyCost

fsspec = pytest.importorskip("fsspec", reason="no fsspec: pip install 'hwopt[stores]'")
upath = pytest.importorskip("upath", reason="no universal-pathlib: pip install 'hwopt[stores]'")

BLOCK, BLOCKS = 32_768, 3
SAMPLES = BLOCK * BLOCKS
ASKED = {"samples": SAMPLES, "block": BLOCK, "sampling": "plain", "metrics": ["run_cost_usd", "mfu"]}


class NoRoute(Exception):
    """An error of a package that only an object store uses."""

    __module__ = "s3fs"


class Stopped(BaseException):
    """What ends a process in the middle of its work."""


@pytest.fixture
def system():
    """An empty object store in memory."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Bytes by name of the same sweep in a local folder."""
    folder = tmp_path_factory.mktemp("local") / "store"
    sweep(folder)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def sweep(out, **changed):
    return hwopt.sweep(ToyCost(), **ASKED | changed, out=out)


def objects(system, folder):
    return {name.removeprefix(f"/{folder}/"): system.cat_file(name) for name in system.find(f"/{folder}")}


def failing(monkeypatch, after, error, at=""):
    """The object store fails at some write. **Arguments:** `after`: how many succeed, of those whose names end so."""
    put, count = storage.put, [0]

    def some(place, data):
        count[0] += str(place).endswith(at)
        if count[0] > after:
            raise error
        put(place, data)

    monkeypatch.setattr(storage, "put", some)


def test_the_store_is_that_of_a_local_folder(system, local):
    dataset = sweep("memory://runs/first")
    assert objects(system, "runs/first") == local
    assert system.find("/") == [f"/runs/first/{name}" for name in sorted(local)]  # nothing is left beside it
    again = xarray.open_zarr("memory://runs/first", consolidated=True, chunks=None)
    np.testing.assert_array_equal(again["run_cost_usd"], dataset["run_cost_usd"])
    assert opened("memory://runs/first").sizes["variant"] == SAMPLES
    with pytest.raises(UserError, match="memory://runs/first holds another sweep"):
        sweep("memory://runs/first", seed=3)


@pytest.mark.parametrize("after", [2, 60])
def test_a_sweep_that_was_stopped_anywhere_goes_on_and_ends_in_the_same_bytes(after, system, local, monkeypatch):
    with monkeypatch.context() as patch:
        failing(patch, after, Stopped())
        with pytest.raises(Stopped):
            sweep("memory://runs/first")
    assert objects(system, "runs/first").keys() < local.keys() | {".first.new"}
    sweep("memory://runs/first")
    assert objects(system, "runs/first") == local
    assert not [name for name in system.find("/runs") if ".first" in name]


def test_what_a_store_lost_or_changed_is_computed_again(system, local):
    sweep("memory://runs/first")
    rows = [name for name in system.find("/runs/first/mfu") if "/c/" in name]
    system.rm_file(rows[1])
    system.pipe_file(rows[2], b"short")
    with pytest.raises(UserError, match="damaged"):
        opened("memory://runs/first")
    sweep("memory://runs/first")
    assert objects(system, "runs/first") == local


def test_failures_of_a_store_are_one_line_that_says_what_is_kept(system, monkeypatch):
    with monkeypatch.context() as patch:
        failing(patch, 0, NoRoute("no\nroute to host"))
        with pytest.raises(UserError, match=r"cannot be written \(no route to host\); nothing is written yet"):
            sweep("memory://runs/first")
    with monkeypatch.context() as patch:
        failing(patch, 0, NoRoute("no route to host"), at=f"/c/{BLOCKS - 1}")
        with pytest.raises(UserError, match=rf"{BLOCKS - 1} of {BLOCKS} blocks are kept; run the same command again"):
            sweep("memory://runs/first")
    with monkeypatch.context() as patch:
        failing(patch, 0, ZeroDivisionError("of ours"))
        with pytest.raises(ZeroDivisionError):
            sweep("memory://runs/first")


def test_what_is_no_sweep_is_not_touched(system):
    system.pipe_file("/data/first/table.csv", b"1,2")
    with pytest.raises(UserError, match="memory://data/first holds something else than a sweep"):
        sweep("memory://data/first")
    system.pipe_file("/data/one", b"1,2")
    with pytest.raises(UserError, match="memory://data/one is a file"):
        sweep("memory://data/one")
    assert objects(system, "data") == {"first/table.csv": b"1,2", "one": b"1,2"}


def test_places(tmp_path, monkeypatch):
    assert (
        isinstance(place_of("out", "memory://a/b"), upath.UPath) and not is_url("runs/a") and not is_url(Path("s3://a"))
    )
    assert place_of("out", (tmp_path / "a b").as_uri()) == tmp_path / "a b" and place_of("out", tmp_path) == tmp_path
    with_options = place_of("out", upath.UPath("memory://a/b", skip_instance_cache=True))
    assert str(with_options) == "memory://a/b"
    assert with_options.storage_options == {"skip_instance_cache": True, "use_listings_cache": False}
    for wrong, said in (
        ("file://runs/a", "three slashes"),
        ("memory://", "name a folder of its own"),
        ("s3://bucket", "such as s3:"),
        ("memroy://a/b", "did you mean 'memory'"),
    ):
        with pytest.raises(UserError, match=said):
            place_of("out", wrong)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UserError, match=r"hwopt\[stores\]"):
        place_of("out", "s3://bucket/runs")
    monkeypatch.setitem(sys.modules, "upath", None)
    with pytest.raises(UserError, match=r"require universal-pathlib: pip install 'hwopt\[stores\]'"):
        place_of("out", "memory://a/b")


def test_a_half_made_store_without_its_mark_is_not_removed(system):
    """Only what this program began, and said so, is removed."""
    system.pipe_file("/runs/first/blocks/done/zarr.json", b"{}")
    with pytest.raises(UserError, match=r"damaged|something else"):
        sweep("memory://runs/first")
    assert system.find("/runs") == ["/runs/first/blocks/done/zarr.json"]


def test_the_command_says_where_store_and_figures_are(system):
    options = Namespace(out="memory://runs/first/", figures=True)
    outputs = Outputs.of(options)
    assert str(outputs.folder) == "memory://runs/first" and str(outputs.figures) == "memory://runs/first.figures"

    def draw(folder):
        (folder / "front.png").write_bytes(b"drawn")
        return [folder / "front.png"]

    assert outputs.drawn(draw) == ("memory://runs/first.figures/front.png",) and outputs.out == "memory://runs/first"
    assert objects(system, "runs/first.figures") == {"front.png": b"drawn"}


def test_a_store_that_cannot_be_reached_is_refused_before_work(system, monkeypatch):
    def unreachable(*_):
        raise NoRoute("no route to host")

    monkeypatch.setattr(type(system), "exists", unreachable)
    with pytest.raises(UserError, match=r"--out memory://runs/first: cannot be reached \(no route to host\)"):
        Outputs.of(Namespace(out="memory://runs/first", figures=True))


def test_a_sweep_whose_map_is_empty_is_kept(tmp_path):
    """A table that leaves nothing to draw a map of has an array without elements, and no file of it."""
    table = {"chips": [8192.0, 16384.0], "tp": [8.0] * 2}
    sweep(tmp_path / "store", samples=None, block=None, sampling=None, table=table)
    assert opened(tmp_path / "store").sizes["variant"] == 2
