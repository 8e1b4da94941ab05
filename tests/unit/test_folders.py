"""Folders of caches by system."""

import os
from pathlib import Path

import pytest

from hwopt.folders import SharedFolder, cache_folder, private_folder


@pytest.mark.parametrize(
    ("system", "variables", "wanted"),
    [
        ("linux", {}, ".cache/hwopt"),
        ("darwin", {}, "Library/Caches/hwopt"),
        ("win32", {}, "AppData/Local/hwopt"),
    ],
)
def test_each_system_has_its_own_folder_in_the_home(system, variables, wanted):
    assert cache_folder(system, variables) == Path.home() / wanted


def test_what_is_stated_counts_more():
    assert cache_folder("win32", {"LOCALAPPDATA": "/local"}) == Path("/local/hwopt")
    for system in ("linux", "darwin", "win32"):
        assert cache_folder(system, {"XDG_CACHE_HOME": "/kept", "LOCALAPPDATA": "/local"}) == Path("/kept/hwopt")
    assert cache_folder("linux", {"LOCALAPPDATA": "/local", "XDG_CACHE_HOME": ""}) == Path.home() / ".cache/hwopt"


@pytest.mark.parametrize("stated", [".", "cache", "../cache"])
def test_relative_paths_are_ignored(stated, monkeypatch):
    """The current folder may be anybody's."""
    assert cache_folder("linux", {"XDG_CACHE_HOME": stated}) == Path.home() / ".cache/hwopt"
    monkeypatch.setenv("HOME", stated)
    with pytest.raises(RuntimeError, match="relative"):
        cache_folder("linux", {})


def test_a_private_folder_is_made_where_it_is_missing(tmp_path):
    assert private_folder(tmp_path / "a" / "b", "c") == tmp_path / "a" / "b" / "c"
    assert private_folder(tmp_path / "a" / "b", "c").is_dir()


@pytest.mark.parametrize("place", ["b", "b/c", "b/c/d"])
@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused_wherever_it_is(place, mode, tmp_path):
    private_folder(tmp_path / "b", "c", "d")
    (tmp_path / place).chmod(mode)
    with pytest.raises(SharedFolder, match=rf"{place} is not a folder that you alone can write to; chmod 700 it"):
        private_folder(tmp_path / "b", "c", "d")


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o500])
def test_others_may_read(mode, tmp_path):
    folder = private_folder(tmp_path / "b", "c")
    folder.chmod(mode)
    assert private_folder(tmp_path / "b", "c") == folder


def test_links_are_followed_only_on_the_way_to_the_base(tmp_path):
    """The target of the link is then checked."""
    private_folder(tmp_path / "b", "c")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    assert private_folder(tmp_path / "link", "c") == tmp_path / "b" / "c"
    (tmp_path / "b" / "other").symlink_to(tmp_path / "b" / "c")
    with pytest.raises(SharedFolder):
        private_folder(tmp_path / "b", "other")
    (tmp_path / "b").chmod(0o777)
    with pytest.raises(SharedFolder):
        private_folder(tmp_path / "link", "c")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives folders away")
def test_a_folder_of_another_user_is_refused(tmp_path):
    os.chown(private_folder(tmp_path / "b", "c"), 12345, 12345)
    with pytest.raises(SharedFolder):
        private_folder(tmp_path / "b", "c")
