"""Damaged stores: what a disk lost or changed is computed again bit for bit, or refused in one line; never passed on."""

from __future__ import annotations

import filecmp
import json
import shutil
from pathlib import Path

import pytest

import hwopt
from hwopt.cli import main
from hwopt.errors import UserError
from hwopt.sweeps import opened
from hwopt.sweeps.store import Store
from tests.toy import ToyCost

BLOCK = 32_768
ASKED = {
    "samples": 4 * BLOCK - 5_000, "block": BLOCK, "sampling": "plain", "metrics": ["run_cost_usd", "run_time_s", "mfu"]
}  # fmt: skip


def sweep(out):
    return hwopt.sweep(ToyCost(), **ASKED, out=out)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def assert_identical(one: Path, other: Path) -> None:
    assert files(one) == files(other)
    _, different, missing = filecmp.cmpfiles(one, other, files(one), shallow=False)
    assert not different and not missing, (different[:5], missing[:5])


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sweeps") / "whole"
    sweep(folder)
    return folder


@pytest.fixture
def copy(whole, tmp_path) -> Path:
    return shutil.copytree(whole, tmp_path / "copy")


def cut(folder: Path) -> None:
    """Make a finished store one that was killed behind its third block."""
    path = folder / "zarr.json"
    document = json.loads(path.read_text())
    for name in ("finished", "best_are"):
        document["attributes"].pop(name)
    document.pop("consolidated_metadata")
    path.write_text(json.dumps(document))
    (folder / "blocks" / "done" / "c" / "3").unlink()


def chunk(folder: Path, array: str, number: int = 0) -> Path:
    """The file of one chunk, by its place in the first dimension."""
    return sorted(path for path in (folder / array / "c").rglob("*") if path.is_file())[number]


def garbage(path: Path) -> None:
    """Other bytes, as many."""
    path.write_bytes(bytes(255 - x for x in path.read_bytes()))


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("damages", "said"),
    [
        ([(halved, "mfu", 1)], "block 1 is not as long"),
        ([(Path.unlink, "run_cost_usd", 2), (emptied, "tp", 0)], "block 0 is not as long"),
        ([(garbage, "best_mfu", 0), (halved, "front_tp", 0)], "the summary is not what was written"),
        ([(garbage, "blocks/checksum", 1)], "checksums cannot be read"),
    ],
    ids=["a truncated chunk of rows", "lost and empty chunks of rows", "garbage in the summary", "of checksums"],
)
def test_a_finished_store_is_made_whole_again(damages, said, whole, copy):
    for damage, array, number in damages:
        damage(chunk(copy, array, number))
    with pytest.raises(UserError, match=rf"is damaged \({said}.*run its command again"):
        opened(copy)
    sweep(copy)
    assert_identical(whole, copy)


def test_damaged_blocks_of_an_unfinished_store_are_computed_again(whole, copy):
    cut(copy)
    garbage(chunk(copy, "mfu", 0))  # as long as it was: its checksum tells
    garbage(chunk(copy, "blocks/best_values", 1))
    garbage(chunk(copy, "blocks/done", 2))
    halved(chunk(copy, "blocks/counts", 3))  # of a block that is not done
    sweep(copy)
    assert_identical(whole, copy)
    cut(copy)
    garbage(chunk(copy, "blocks/checksum", 0))
    chunk(copy, "blocks/counts", 1).unlink()
    sweep(copy)
    assert_identical(whole, copy)


def test_a_store_without_checksums_is_refused(copy):
    cut(copy)
    shutil.rmtree(copy / "blocks" / "checksum")
    with pytest.raises(
        UserError, match=r"^sweep: .* is damaged \(its description cannot be read.*choose another --out$"
    ):
        sweep(copy)


@pytest.mark.parametrize(
    ("array", "said"), [("mfu", "a description cannot be read"), ("blocks/counts", "a description cannot be read")]
)
def test_descriptions_that_cannot_be_read_are_refused(array, said, copy):
    cut(copy)
    (copy / array / "zarr.json").write_bytes(b"\xff{")
    with pytest.raises(UserError, match=rf"^sweep: .* is damaged \({said}.*choose another --out$"):
        sweep(copy)


def test_a_root_that_cannot_be_read_is_refused(copy):
    path = copy / "zarr.json"
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    for call in (sweep, opened):
        with pytest.raises(UserError, match=r"^sweep: .* is damaged \(its description cannot be read"):
            call(copy)
    for name, said in (("configuration", "{"), ("versions", "3"), ("edges", "[]"), ("edges", '{"a": 5}')):
        document = json.loads(text)
        document["attributes"][name] = said
        path.write_text(json.dumps(document))
        if name == "versions":
            halved(chunk(copy, "mfu"))  # else nobody looks
        with pytest.raises(UserError, match=rf"is damaged \(its {name} cannot be read\): remove that folder"):
            sweep(copy)


def test_damage_that_other_versions_would_mend_is_refused(copy):
    halved(chunk(copy, "mfu", 1))
    store = Store.opened(copy)
    path = copy / "zarr.json"
    document = json.loads(path.read_text())
    document["attributes"]["versions"] = json.dumps(store.attribute("versions") | {"jax": "0.1.0"})
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match=r"is damaged \(block 1 is not .*, and it was made by other versions of jax\)"):
        sweep(copy)


def test_the_command_line_refuses_it_in_one_line(copy, capsys):
    """Garbage in an array once ended with exit code 3, a truncated one with 0."""
    (copy / "zarr.json").write_bytes(b"\x00garbage")
    assert main(["sweep", "train_cost", "--samples", "64", "--out", str(copy)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("hwopt: sweep: ") and err.count("\n") == 1
    assert "is damaged (its description cannot be read" in err and "remove that folder and run the same command" in err
