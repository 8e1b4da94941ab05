"""Sweeps on disk end the same bit for bit, whatever happens to them, and refuse what they must not touch."""

from __future__ import annotations

import errno
import filecmp
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray
import zarr

import hwopt
from hwopt.errors import UserError
from hwopt.sweeps import evaluator, opened
from hwopt.sweeps.store import Store, is_rows
from hwopt.sweeps.store_lock import exclusive
from objectives.train_cost import TrainCost
from tests.compiling import THOROUGH
from tests.tiers import turn
from tests.toy import ToyCost

BOUNDS = {  # little to search, so that a sweep of the model begins soon
    "tp": (4.0, 16.0), "chips": (8192.0, 32768.0), "pp": (8.0, 16.0), "virtual_stages": (1.0, 8.0), "micro_batch": (1.0, 1.0),
    "cp": (1.0, 1.0), "zero": (1.0, 1.0),
}  # fmt: skip
SAMPLES, BLOCK = 200_000, 32_768
BLOCKS = -(-SAMPLES // BLOCK)
ASKED = {"samples": SAMPLES, "block": BLOCK, "metrics": ["run_cost_usd", "run_time_s", "mfu"]}
MODEL = {"time_budget_s": 120 * 86400.0, "power_budget_w": 80e6, "capex_budget_usd": 3e9}
QUESTIONS = {"toy": (ToyCost(), {}), "model": (TrainCost(**MODEL), {"bounds": BOUNDS})}


def sweep(out, asks="toy", **changed):
    question, own = QUESTIONS[asks]
    return hwopt.sweep(question, **ASKED | own | changed, out=out)


# What a process of its own does: the same sweep, telling how far it is, after each tile of which it rests.
SCRIPT = f"""
import sys, time
coordinator, count, index, out, asks, rest_s = sys.argv[1:]
import jax
if coordinator:
    from hwopt.sweeps.store_lock import join
    join(coordinator, int(count), int(index))
import hwopt
from objectives.train_cost import TrainCost
from tests.toy import ToyCost
question, own = dict(toy=(ToyCost(), dict()), model=(TrainCost(**{MODEL!r}), dict(bounds={BOUNDS!r})))[asks]
tell = lambda progress: (print(progress.done, flush=True), time.sleep(float(rest_s)))
hwopt.sweep(question, **{ASKED!r}, **own, out=out, progress=tell)
"""
REST_S = 0.3


@pytest.fixture(scope="module", autouse=True)
def compiled_as_in_other_processes():
    """Bits depend on how a program is compiled."""
    options = dict(evaluator.CPU_OPTIONS)
    evaluator.CPU_OPTIONS.update(THOROUGH)
    yield
    evaluator.CPU_OPTIONS.clear()
    evaluator.CPU_OPTIONS.update(options)


def started(out, devices=1, coordinator="", count=1, index=0, asks="toy", rest_s=0.0):
    flags = f"--xla_force_host_platform_device_count={devices}" if devices > 1 else ""
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": flags,
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir) + "-sweeps",  # not shared while written
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "PYTHONPATH": str(Path(hwopt.__file__).parents[1]),
    }
    told = [coordinator, str(count), str(index), str(out), asks, str(rest_s)]
    command = [sys.executable, "-c", SCRIPT, *told]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process, seconds=300):
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, err[-2000:]
    return out


def killed(out, after_tiles, asks="toy"):
    """A sweep killed when it has done so many tiles; how many blocks it has finished."""
    process = started(out, asks=asks, rest_s=REST_S)
    for _ in range(after_tiles):
        if not process.stdout.readline():
            break
    time.sleep(random.Random(after_tiles).uniform(0.0, 0.05))  # while the writer may be at a block
    process.kill()
    process.communicate()
    return int(Store.opened(out).done().sum()) if out.exists() else 0


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def assert_identical(one, other):
    assert files(one) == files(other)
    _, different, missing = filecmp.cmpfiles(one, other, files(one), shallow=False)
    assert not different and not missing, (different[:5], missing[:5])


def refused(match, call, *arguments, **keywords):
    with pytest.raises(UserError, match=match) as caught:
        call(*arguments, **keywords)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("sweep: ")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The sweep as nothing disturbs it."""
    folder = tmp_path_factory.mktemp("sweeps") / "whole"
    assert sweep(folder).attrs["sampling"] == "importance"  # drawn from boxes that a search found: these too are kept
    return folder


def cut(whole, folder, blocks=5):
    """A copy of a finished store that looks as if its process had been killed after some blocks."""
    shutil.copytree(whole, folder)
    store = Store.opened(folder)
    for name in list(store.group.array_keys()):
        if "variant" not in (store.group[name].metadata.dimension_names or ()):
            del store.group[name]
    attributes = dict(store.group.attrs)
    for name in ("finished", "best_are"):
        attributes.pop(name, None)
    path = folder / "zarr.json"
    document = json.loads(path.read_text())
    document["attributes"] = attributes
    path.write_text(json.dumps(document))
    store = Store.opened(folder)
    store.group["blocks/done"][blocks:] = 0
    for name in store.group["blocks"].array_keys():
        if name != "done":
            store.group[f"blocks/{name}"][blocks:] = 7
    return store


def test_a_finished_store_is_returned_as_it_is(whole):
    before = {name: (whole / name).stat().st_mtime_ns for name in files(whole)}
    begun = time.monotonic()
    again = sweep(whole)
    assert time.monotonic() - begun < 5.0
    assert {name: (whole / name).stat().st_mtime_ns for name in files(whole)} == before
    xarray.testing.assert_identical(again.load(), opened(whole).load())
    assert not list(whole.parent.glob(".*"))


def test_killed_and_resumed(whole, tmp_path):
    folder = tmp_path / "killed"
    done = killed(folder, 3)
    assert 0 < done < BLOCKS
    refused(rf"unfinished \({done} of {BLOCKS} blocks\)", opened, folder)
    sweep(folder)
    assert_identical(whole, folder)


@pytest.mark.search
def test_killed_three_times(whole, tmp_path):
    folder, moments = tmp_path / "killed", random.Random(turn())
    for after in [moments.randint(1, 3) for _ in range(3)]:
        killed(folder, after)
    sweep(folder)
    assert_identical(whole, folder)


@pytest.mark.search
def test_a_sweep_of_the_model_killed_and_resumed(tmp_path):
    """What the other tests show of the toy, of the model."""
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    assert sweep(whole, "model").attrs["sampling"] == "importance"
    assert 0 < killed(folder, 3, "model") < BLOCKS
    sweep(folder, "model")
    assert_identical(whole, folder)


def test_resumed_over_what_was_half_written(whole, tmp_path):
    folder = tmp_path / "cut"
    cut(whole, folder)
    (folder / "run_cost_usd" / "c" / "6.0123abc.partial").write_bytes(b"half")
    (folder / "zarr.0123.partial").write_bytes(b"half")
    (folder / "mfu" / "c" / "6").write_bytes(b"half")  # of a block that is not done
    sweep(folder)
    assert_identical(whole, folder)


def test_killed_while_it_was_made(whole, tmp_path):
    aside = tmp_path / ".new one.new"
    aside.mkdir()
    (aside / "zarr.json").write_text("{")
    (tmp_path / "new one").mkdir()  # an empty folder may be there
    sweep(tmp_path / "new one")
    assert not aside.exists() and not list(tmp_path.glob(".*"))
    assert_identical(whole, tmp_path / "new one")


@pytest.mark.search
def test_four_devices(whole, tmp_path):
    ended(started(tmp_path / "four", devices=4))
    assert_identical(whole, tmp_path / "four")


@pytest.mark.search
def test_two_processes(whole, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    both = [started(tmp_path / "two", 1, coordinator, 2, index) for index in range(2)]
    for process in both:
        ended(process)
    assert_identical(whole, tmp_path / "two")


def test_a_full_disk(whole, tmp_path, monkeypatch):
    folder, write, count = tmp_path / "full", Store.write, []

    def fails(self, block, region, rows, partial):
        count.append(block)
        if len(count) > 3:
            self.array("mfu")[region] = 0.0  # half of a block
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, block, region, rows, partial)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "write", fails)
        refused(rf"No space left on device.*3 of {BLOCKS} blocks are kept.*again", sweep, folder)
    assert Store.opened(folder).done().sum() == 3
    sweep(folder)
    assert_identical(whole, folder)


def test_a_disk_full_at_the_end(whole, tmp_path, monkeypatch):
    folder = tmp_path / "cut"
    cut(whole, folder, BLOCKS)

    def fails(self, summary, attributes):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Store, "finish", fails)
        refused("No space left on device.*all blocks are kept", sweep, folder)
    sweep(folder)
    assert_identical(whole, folder)


def test_folders_that_hold_something_else(whole, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    refused("holds something else than a sweep", sweep, tmp_path / "notes")
    refused("holds something else than a sweep", opened, tmp_path / "notes")
    refused("holds something else than a sweep", opened, tmp_path / "nowhere")
    assert files(tmp_path / "notes") == ["a.txt"]
    (tmp_path / "file").write_text("mine")
    refused("is a file", sweep, tmp_path / "file")
    zarr.open_group(str(tmp_path / "other"), mode="w").create_array("x", shape=(3,), dtype="f4")
    refused("holds something else than a sweep", sweep, tmp_path / "other")
    assert (tmp_path / "file").read_text() == "mine"


def test_another_sweep(whole):
    before = files(whole)
    refused(r"holds another sweep \(it differs in samples\)", sweep, whole, samples=SAMPLES - 1)
    refused(r"differs in dtype\)", sweep, whole, dtype="float64")
    refused(r"differs in seed\)", sweep, whole, seed=1)
    refused(r"differs in bounds, question\)", sweep, whole, bounds={"tp": (4.0, 8.0)})
    assert files(whole) == before


def test_other_versions(whole, tmp_path):
    folder = tmp_path / "cut"
    store = cut(whole, folder)
    versions = json.loads(store.group.attrs["versions"])
    store.group.attrs["versions"] = json.dumps(versions | {"jax": "0.1.0"})
    refused("started by other versions of jax: finish it with those", sweep, folder)
    # A finished one may be read by any.
    folder = shutil.copytree(whole, tmp_path / "finished")
    path = folder / "zarr.json"
    document = json.loads(path.read_text())
    document["attributes"]["versions"] = json.dumps(versions | {"jax": "0.1.0"})
    path.write_text(json.dumps(document))
    assert sweep(folder).sizes["variant"] == SAMPLES


def test_two_at_once(whole, tmp_path):
    folder = tmp_path / "busy"
    with exclusive(folder):
        refused("another process is writing to", sweep, folder)
        assert not folder.exists()
    assert not list(tmp_path.iterdir())
    (tmp_path / ".busy.lock").touch()  # of a killed process
    with exclusive(folder):
        pass
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_searched(tmp_path, monkeypatch):
    monkeypatch.setattr("hwopt.sweeps.run.strata_around_optimum", lambda *_: pytest.fail("searched"))
    (tmp_path / "file").touch()
    refused("cannot be written.*nothing is written yet", sweep, tmp_path / "file" / "new", seed=5)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
    tmp_path.chmod(0o500)
    refused("cannot be written", sweep, tmp_path / "new")
    assert not list(tmp_path.iterdir())


def test_a_disk_that_cannot_be_written_from_the_start(tmp_path, monkeypatch):
    def fails(*arguments, **keywords):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(zarr, "open_group", fails)
    refused("Read-only file system.*nothing is written yet", sweep, tmp_path / "new")
    assert not list(tmp_path.glob("new/*"))


def test_rows_are_files_as_zarr_writes_them(whole, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(whole, copy)
    group: Any = zarr.open_group(str(copy), mode="r+")
    rows = {name: array for name, array in group.arrays() if is_rows(array)}
    assert {"tp", "mfu", "feasible"} <= rows.keys()
    for array in rows.values():
        values = array[...]
        array[...] = np.zeros_like(values)
        array[...] = values
    assert_identical(whole, copy)


def test_xarray_reads_it_without_warnings(whole):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = xarray.open_zarr(whole, consolidated=False, chunks=None)
        ours = opened(whole)
    xarray.testing.assert_identical(made.load(), ours.load())
    assert made["run_cost_usd"].dims == ("variant",) and made.sizes["variant"] == SAMPLES
    assert made["run_cost_usd"].attrs["units"] == "USD" and made["run_cost_usd"].attrs["long_name"] == "run cost"
    assert made["run_cost_usd"].dtype == np.float32 and np.isfinite(made["chips"]).all()
    document = json.loads(made.attrs["configuration"])
    assert document["samples"] == SAMPLES and document["objective"] == "toy_cost"
    assert json.loads(made.attrs["versions"])["jax"] == jax.__version__


def test_xarray_with_its_defaults(whole):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = xarray.open_zarr(whole, chunks=None)
    assert made.sizes["variant"] == SAMPLES
