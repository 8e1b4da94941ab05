"""Folders of caches by system."""

import os
import pwd
from pathlib import Path

import platformdirs
import pytest
from platformdirs.macos import MacOS
from platformdirs.unix import Unix
from platformdirs.windows import Windows

from hwopt.cache_folders import SharedFolder, cache_folder, private_folder


@pytest.fixture(autouse=True)
def nothing_stated(monkeypatch):
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("system", "wanted"), [(Unix, ".cache/hwopt"), (MacOS, "Library/Caches/hwopt")])
def test_each_system_has_its_own_folder_in_the_home(system, wanted, monkeypatch):
    monkeypatch.setattr(platformdirs, "PlatformDirs", system)
    assert cache_folder() == Path.home() / wanted


@pytest.mark.parametrize("system", [Unix, MacOS])
def test_what_is_stated_counts_more(system, monkeypatch):
    monkeypatch.setattr(platformdirs, "PlatformDirs", system)
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    monkeypatch.setenv("XDG_CACHE_HOME", "/kept")
    assert cache_folder() == Path("/kept/hwopt")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == Path.home() / {Unix: ".cache/hwopt", MacOS: "Library/Caches/hwopt"}[system]


def test_windows_states_its_own(monkeypatch):
    monkeypatch.setattr(platformdirs, "PlatformDirs", Windows)
    monkeypatch.setattr("platformdirs.windows.get_win_folder", {"CSIDL_LOCAL_APPDATA": "/local"}.__getitem__)
    assert cache_folder() == Path("/local/hwopt")


@pytest.mark.parametrize("stated", [".", "cache", "../cache"])
def test_relative_paths_are_ignored(stated, monkeypatch):
    """The current folder may be anybody's."""
    monkeypatch.setenv("XDG_CACHE_HOME", stated)
    assert cache_folder() == Path.home() / ".cache/hwopt"
    monkeypatch.setenv("HOME", stated)
    assert cache_folder() == Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache/hwopt"


def test_a_user_without_a_home_has_no_cache_folder(monkeypatch):
    monkeypatch.setenv("HOME", "home")
    monkeypatch.setattr(pwd, "getpwuid", lambda _: (_ for _ in ()).throw(KeyError))
    with pytest.raises(RuntimeError, match="absolute"):
        cache_folder()


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
