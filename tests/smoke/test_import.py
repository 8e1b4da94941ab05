from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import hwopt

HEAVY = ("pydantic", "xarray", "zarr", "matplotlib", "tyro", "rich", "pandas", "objectives")


CATALOGUE = ("matplotlib", "xarray", "pandas", "scipy.optimize")


def test_import_costs_jax_and_equinox_no_more_and_switches_nothing_global():
    """And the catalogue is light, although it reads with pydantic."""
    code = f"""
import sys, jax
before = dict(jax.config.values)
import hwopt
print([name for name in {HEAVY} if name in sys.modules])
print(sorted(name for name, value in jax.config.values.items() if before.get(name) != value), jax.numpy.ones(1).dtype)
import hwopt.catalog
print([name for name in {CATALOGUE} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", "[] float32", "[]"]


def test_type_checkers_see_the_names_that_there_are():
    tree = ast.parse(Path(hwopt.__file__).read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If)).body
    seen = {alias.asname or alias.name: node.module for node in guarded for alias in node.names}
    assert seen == hwopt._WHERE
    assert (Path(hwopt.__file__).parent / "py.typed").exists()
    for name in hwopt._WHERE:
        assert getattr(hwopt, name).__name__.endswith(name)
