from __future__ import annotations

import subprocess
import sys
import warnings
from importlib import import_module

import pytest

import hwopt
from hwopt import errors, renamed


@pytest.fixture
def tables(monkeypatch):
    """Old names and modules that are not in the tables of the package."""
    monkeypatch.setattr(renamed, "NAMES", renamed.NAMES | {"hwopt.cheapest": "hwopt.best_plan"})
    monkeypatch.setattr(renamed, "MODULES", renamed.MODULES | {"hwopt.former.faults": "hwopt.errors"})
    monkeypatch.setattr(renamed, "_WARNED", set())
    monkeypatch.setattr(
        sys, "meta_path", [*(each for each in sys.meta_path if each is not renamed.Finder), renamed.Finder]
    )
    yield renamed
    for name in [name for name in sys.modules if name.startswith("hwopt.former")]:
        del sys.modules[name]
    vars(hwopt).pop("former", None)


def test_an_old_name_is_the_new_object_and_warns_once_where_it_is_used(tables):
    with pytest.warns(
        DeprecationWarning, match=r"hwopt\.cheapest is now hwopt\.best_plan; the old name works until 0\.4"
    ) as seen:
        assert hwopt.cheapest is hwopt.best_plan
    assert [each.filename for each in seen] == [__file__]
    with warnings.catch_warnings(action="error"):
        assert hwopt.cheapest is hwopt.best_plan


def test_a_name_that_never_was_is_refused_as_before(tables):
    with pytest.raises(AttributeError, match="module 'hwopt' has no attribute 'dearest'; it has"):
        hwopt.dearest  # noqa: B018
    with pytest.raises(AttributeError, match=r"module 'hwopt\.errors' has no attribute 'dearest'"):
        renamed.getter("hwopt.errors")("dearest")


def test_the_getter_of_a_module_warns_where_the_name_is_used(tables, monkeypatch):
    monkeypatch.setitem(renamed.NAMES, "hwopt.errors.Fault", "hwopt.errors.UserError")
    monkeypatch.setattr(errors, "__getattr__", renamed.getter("hwopt.errors"), raising=False)
    with pytest.warns(DeprecationWarning, match=r"hwopt\.errors\.Fault is now hwopt\.errors\.UserError") as seen:
        assert errors.Fault is errors.UserError
    assert [each.filename for each in seen] == [__file__]


def test_a_moved_module_is_found_and_warns_where_it_is_imported(tables):
    with pytest.warns(DeprecationWarning, match=r"hwopt\.former\.faults is now hwopt\.errors") as seen:
        from hwopt.former.faults import UserError  # pyright: ignore[reportMissingImports]
    assert UserError is errors.UserError
    assert [each.filename for each in seen] == [__file__]
    with pytest.raises(ImportError):
        from hwopt.former.faults import Nothing  # noqa: F401
    with pytest.raises(ModuleNotFoundError):
        import hwopt.formerly  # noqa: F401


def test_a_name_of_a_moved_module_may_have_changed_too(tables, monkeypatch):
    monkeypatch.setitem(renamed.NAMES, "hwopt.former.faults.Fault", "hwopt.errors.UserError")
    with pytest.warns(DeprecationWarning) as seen:
        from hwopt.former.faults import Fault  # pyright: ignore[reportMissingImports]
    assert Fault is errors.UserError
    assert sorted({str(each.message).split()[0] for each in seen}) == [
        "hwopt.former.faults",
        "hwopt.former.faults.Fault",
    ]


def test_every_new_name_of_the_tables_exists():
    for old, new in renamed.NAMES.items():
        module, _, name = new.rpartition(".")
        assert getattr(import_module(module), name) is not None, old
        with warnings.catch_warnings(action="ignore"):
            was, _, name = old.rpartition(".")
            assert hasattr(import_module(was), name), old
    for old, new in renamed.MODULES.items():
        assert import_module(new).__name__ == new, old


def test_the_tables_cost_no_import():
    code = "import sys, importlib.util as u; s = u.spec_from_file_location('renamed', sys.argv[1]); m = u.module_from_spec(s); "
    code += (
        "before = {*sys.modules}; s.loader.exec_module(m); print([x for x in {*sys.modules} - before if 'hwopt' in x])"
    )
    done = subprocess.run([sys.executable, "-c", code, renamed.__file__], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
