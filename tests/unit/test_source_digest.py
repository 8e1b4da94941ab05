"""The digest of the running source files depends on their names and contents only."""

import os

import pytest

from hwopt import source_digest


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Create a package, the only one that the digest covers."""
    folder = tmp_path / "mine"
    (folder / "inside").mkdir(parents=True)
    for name in ("__init__", "numbers", "inside/more"):
        (folder / f"{name}.py").write_text(f"name = {name!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(source_digest, "PACKAGES", ("mine",))
    return folder


def digest() -> str:
    return source_digest.source_digest.__wrapped__()


def test_content_counts_and_time_does_not(package):
    before, path = digest(), package / "inside" / "more.py"
    os.utime(path, (0, 0))
    (package / "data.txt").write_text("no source")
    assert digest() == before
    path.write_text(path.read_text().replace("more", "less"))
    os.utime(path, (0, 0))  # as long and as old as before
    changed = digest()
    assert changed != before
    path.rename(package / "less.py")
    assert digest() not in (before, changed)


def test_where_a_file_ends_counts(package):
    """A line that moves from the end of one file to the start of the next changes the digest."""
    one, other = package / "a.py", package / "b.py"
    one.write_text("x = 1\ny = 2\n")
    other.write_text("z = 3\n")
    before = digest()
    one.write_text("x = 1\n")
    other.write_text("y = 2\nz = 3\n")
    assert digest() != before


def test_what_cannot_be_read_is_left_out(package):
    before = digest()
    (package / ".#numbers.py").symlink_to("nobody@nowhere:1")  # an editor's lock
    assert digest() == before
