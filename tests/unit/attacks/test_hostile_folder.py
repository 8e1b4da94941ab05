"""Files of other users in the current folder and in caches: none is executed, and no number changes."""

from __future__ import annotations

import ast
import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import jax
import matplotlib
import pytest
import zarr

import hwopt
from hwopt import workers
from hwopt.cli import app
from hwopt.errors import UserError
from hwopt.output.figures.style import figure
from hwopt.sweeps.store import Store
from hwopt.trace import jax_selftest
from tests.rotation import one_in

ROOT = Path(hwopt.__file__).parents[1]

ESTIMATE = [
    "estimate",
    "--workload",
    "llama3.1-8b",
    "--chip",
    "h100-sxm",
    "--chips",
    "8",
    "--plan",
    "tp=2,dp=4",
    "--json",
]

MODULES = (
    "pickle", "json", "numpy/__init__", "jax/__init__", "jaxlib/__init__", "scipy/__init__", "equinox", "hwopt/__init__",
    "hwopt/workers", "hwopt/cli/__init__", "objectives/__init__", "objectives/train_cost", "sitecustomize", "usercustomize",
    "conftest", "evil", "jax_plugins/evil/__init__", "encodings/__init__", "site", "os", "runpy", "typing",
)  # fmt: skip

ENTRY_POINTS = """\
[hwopt.objectives]
train_cost = evil:Evil
[hwopt.data]
evil = evil
[jax_plugins]
evil = jax_plugins.evil
[zarr.codecs]
evil = evil:Evil
"""


class Bomb:
    """Executes a command when unpickled."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


@pytest.fixture
def hostile(tmp_path):
    """Return a folder in which every imported module creates a marker file, and the path of that file."""
    folder, mark = tmp_path / "hostile", tmp_path / "executed"
    for name in MODULES:
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"open({str(mark)!r}, 'a').write({name + ' '!r})\n")
    metadata = folder / "evil-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "evil.pth").write_text("import evil\n")
    (folder / "matplotlibrc").write_text("text.usetex: True\nfigure.facecolor: red\nbackend: module://evil\n")
    (folder / "pyproject.toml").write_text('[project]\nname = "evil"\n[tool.hwopt]\nchips = 1\n')
    return folder, mark


@one_in(2, 0)
def test_the_console_script_executes_nothing_of_the_current_folder(hostile, tmp_path, capsys):
    folder, mark = hostile
    script = tmp_path / "bin" / "hwopt"  # as an installer writes it
    script.parent.mkdir()
    script.write_text("from hwopt.cli import entry\nentry()\n")
    known = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, script, *ESTIMATE],
        cwd=folder, env=os.environ | known, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == ""
    assert not mark.exists(), mark.read_text()
    assert app.main(ESTIMATE) == 0
    assert json.loads(done.stdout) == json.loads(capsys.readouterr().out)


def product(kept: float, number: float) -> tuple[float, list[str]]:
    """Return a product, and the module search path of the process that computes it."""
    return kept * number, sys.path


@pytest.fixture
def pool(monkeypatch):
    """One helper at most."""
    monkeypatch.setenv(workers.VARIABLE, "2")
    made = workers._Helpers()
    monkeypatch.setattr(workers, "_HELPERS", made)
    yield made
    made.close()


class Kept(float):
    """A number that supports weak references."""


def both() -> list:
    return workers.map_chunks(product, Kept(10.0), [(2.0,), (3.0,)])


def waits(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@one_in(2, 1)
def test_a_worker_executes_nothing_of_the_current_folder(hostile, pool, monkeypatch):
    """The parent searches the folder as '', by name, and by a relative or empty entry of PYTHONPATH."""
    folder, mark = hostile
    (folder / "inside").mkdir()
    (folder / "inside" / "pickle.py").write_text((folder / "pickle.py").read_text())
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", ["", ".", str(folder), str(folder / "inside"), folder, *sys.path])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "inside", str(ROOT)]))
    pool.wake(["hwopt.solver.search.bounding"])
    (helper,) = pool._helpers
    waits(lambda: helper.ready)
    (here, _), (there, path) = both()
    assert (here, there) == (20.0, 30.0)
    assert path is not sys.path and all(os.path.isabs(each) and not each.startswith(str(folder)) for each in path)
    assert not mark.exists(), mark.read_text()


def test_a_worker_imports_from_the_current_folder_where_the_package_lies_there(monkeypatch):
    monkeypatch.chdir(ROOT)
    for path in (["", *sys.path], [each for each in sys.path if Path(each).resolve() != ROOT]):
        monkeypatch.setattr(sys, "path", path)
        assert str(ROOT) in workers._import_path()


def test_a_worker_of_other_sources_gets_no_work(pool, tmp_path, monkeypatch):
    """An installation that is replaced while a program runs, or another one on the path."""
    for name in ("__init__", "workers", "source_digest"):
        (tmp_path / "hwopt").mkdir(exist_ok=True)
        (tmp_path / "hwopt" / f"{name}.py").write_bytes((ROOT / "hwopt" / f"{name}.py").read_bytes())
    known = workers._import_path()
    monkeypatch.setattr(workers, "_import_path", lambda: [str(tmp_path), *known])
    pool.wake([])
    (helper,) = pool._helpers
    waits(lambda: helper._process.poll() is not None)
    assert not helper.ready
    assert [value for value, _ in both()] == [20.0, 30.0]
    pool.wake([])
    assert pool._helpers == [helper]  # another would be the same


def test_figures_do_not_follow_the_current_folders_settings():
    """Matplotlib reads them when it is imported: they are its settings from then on."""
    with matplotlib.rc_context({"text.usetex": True, "figure.facecolor": "red"}), figure() as (drawn, _):
        assert matplotlib.rcParams["text.usetex"] is False
        assert drawn.get_facecolor() == (1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("way", ["group", "world", "link", "owner"])
def test_a_cache_that_others_can_write_to_is_not_used(way, tmp_path, monkeypatch, capsys):
    base = tmp_path / "cache"
    own = base / "hwopt"
    own.mkdir(parents=True, mode=0o700)
    if way == "owner":
        if os.geteuid() != 0:
            pytest.skip("only root gives files away")
        os.chown(own, 12345, 12345)
    elif way == "link":
        own.rename(tmp_path / "elsewhere")
        own.symlink_to(tmp_path / "elsewhere")
    else:
        (own if way == "group" else base).chmod(0o770 if way == "group" else 0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(base))
    set_to = []
    monkeypatch.setattr(jax.config, "update", lambda *pair: set_to.append(pair))
    app._use_compilation_cache()
    err = capsys.readouterr().err
    assert set_to == [] and not list(own.iterdir())
    assert err.startswith(f"hwopt: nothing is cached: {base}") and err.count("\n") == 1
    with pytest.raises(OSError, match="nothing is cached"):
        jax_selftest._stamp()


def test_a_cache_of_ones_own_is_used(tmp_path, monkeypatch, capsys):
    """Also through a symbolic link to a larger disk. New folders are private under any umask."""
    (tmp_path / "scratch").mkdir(mode=0o700)
    (tmp_path / "cache").symlink_to(tmp_path / "scratch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    set_to = {}
    monkeypatch.setattr(jax.config, "update", set_to.__setitem__)
    before = os.umask(0)
    try:
        app._use_compilation_cache()
    finally:
        os.umask(before)
    folder = Path(set_to["jax_compilation_cache_dir"])
    assert folder.parent == tmp_path / "scratch" / "hwopt"
    assert {each.stat().st_mode & 0o777 for each in (folder, folder.parent)} == {0o700}
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("way", ["codec", "older format", "dtype"])
def test_a_sweeps_folder_of_pickles_is_refused(way, tmp_path):
    mark, store = tmp_path / "executed", tmp_path / "store"
    root = zarr.open_group(str(store), mode="w", zarr_format=3)
    done = root.create_group("blocks").create_array("done", shape=(1,), chunks=(1,), dtype="i1")
    done[:] = 1
    path = store / "blocks" / "done"
    description = json.loads((path / "zarr.json").read_text())
    if way == "codec":
        description["codecs"] = [{"name": "bytes"}, {"name": "numcodecs.pickle", "configuration": {"protocol": 5}}]
        (path / "zarr.json").write_text(json.dumps(description))
    elif way == "dtype":
        description["data_type"] = "object"
        (path / "zarr.json").write_text(json.dumps(description))
    else:
        (path / "zarr.json").unlink()
        older = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "fill_value": 0, "order": "C"}
        older |= {"compressor": None, "filters": [{"id": "pickle", "protocol": 5}]}
        (path / ".zarray").write_text(json.dumps(older))
    for chunk in (path / "c" / "0", path / "0"):
        chunk.parent.mkdir(exist_ok=True)
        chunk.write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(UserError):
        Store.opened(store)
    assert not mark.exists()


FORBIDDEN = {
    "pickle": {"load", "loads", "Unpickler"}, "marshal": {"load", "loads"}, "shelve": {"open"}, "joblib": {"load"},
    "dill": {"load", "loads"}, "cloudpickle": {"load", "loads"}, "yaml": {"load", "unsafe_load", "full_load"},
    "os": {"system", "popen", "execv", "execvp", "spawnv"}, "runpy": {"run_path", "run_module"}, "importlib": set(),
}  # fmt: skip
"""Functions that execute the data they read, by module."""


def calls(tree: ast.AST) -> list[tuple[str, str, ast.Call]]:
    """Return calls as (module, function, call); the module of a bare name is its import source, or empty."""
    origins = {
        alias.asname or alias.name: node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found.append((ast.unparse(node.func.value), node.func.attr, node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.append((origins.get(node.func.id, ""), node.func.id, node))
    return found


def executing(source: str) -> list[str]:
    """Return the calls of a module that may execute data that it reads."""
    found = []
    for module, name, call in calls(ast.parse(source)):
        plain = any(each.arg == "allow_pickle" and ast.unparse(each.value) == "False" for each in call.keywords)
        numpy_load = module in ("np", "numpy", "jnp", "jax.numpy") and name == "load" and not plain
        if name in FORBIDDEN.get(module, ()) or numpy_load or (module == "" and name in ("eval", "exec")):
            found.append(f"{module}.{name}" if module else name)
    return found


def test_no_module_executes_what_it_reads():
    """The only exception: pickles in the pipes between a process and its helpers."""
    found = {
        path.relative_to(ROOT).as_posix(): executing(path.read_text(encoding="utf-8"))
        for package in ("hwopt", "objectives")
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    assert {path: calls for path, calls in found.items() if calls} == {"hwopt/workers.py": ["pickle.load"] * 2}


@pytest.mark.parametrize(
    "source",
    ["import pickle; pickle.loads(x)", "from pickle import loads; loads(x)", "np.load(x)", "np.load(x, allow_pickle=True)",
     "eval(x)", "exec(x)", "import marshal; marshal.load(x)"],
)  # fmt: skip
def test_what_executes_is_found(source):
    assert len(executing(source)) == 1


def test_what_does_not_execute_is_not_found():
    assert executing("np.load(x, allow_pickle=False); json.loads(x); pickle.dumps(x); re.compile(x)") == []
