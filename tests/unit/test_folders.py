"""Folders of caches by system."""

from pathlib import Path

import pytest

from hwopt.folders import cache_folder


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
