"""Functions as scalar operations, kept on disk beside compiled kernels: another process traces and compiles nothing.

A function is traced once for inputs of one form, all its numbers free, and written under a name that changes with all it
depends on: its own code, the form of its inputs, this package's source files, the versions of Python and JAX. Only what this
package defines is kept: of a user's functions nobody knows what else they call.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import io
import marshal
import math
import os
import pickle
import platform
import shutil
import sys
import tempfile
import time
import types
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from hwopt.jaxprs.dies_made import OPERATIONS
from hwopt.jaxprs.origins import where_of
from hwopt.jaxprs.straight_line import FUNCTIONS, StraightLine, Symbol, straightened

OWN = ("hwopt", "objectives")
"""Packages whose source files a name depends on."""

OTHERS = frozenset({"numpy", "jax", "jaxlib", "equinox", "jaxtyping", "ml_dtypes", *sys.stdlib_module_names})
"""Packages whose functions a form may hold, their version being part of the name or their meaning settled."""

FORGOTTEN_S = 30 * 86400.0
"""Age at which what another version kept goes."""


class Traced(NamedTuple):
    """A function as scalar operations."""

    line: StraightLine  # of the elements of its inputs' leaves, in order
    shapes: Any  # what it returns: `jax.ShapeDtypeStruct`s

    def known(self, numbers: Sequence[float | None]) -> Traced:
        """The same with its first inputs known, but for those that are None."""
        return Traced(self.line.with_known(numbers), self.shapes)

    def only(self, part: Callable[[Any], Any]) -> Traced:
        """The same returning a part of what it returns, with no operation that this does not need."""
        leaves, structure = jax.tree.flatten(self.shapes)
        ends = pairwise(np.cumsum([0, *(math.prod(each.shape) for each in leaves)]))
        places = [np.arange(i, j).reshape(each.shape) for (i, j), each in zip(ends, leaves, strict=True)]
        chosen = part(jax.tree.unflatten(structure, places))
        shapes = jax.tree.map(lambda place: jax.ShapeDtypeStruct(place.shape, np.float64), chosen)
        return Traced(self.line.only([i for place in jax.tree.leaves(chosen) for i in place.ravel()]), shapes)

    def __call__(self, columns: Sequence[np.ndarray], count: int) -> Any:
        """What it returns at some points, each leaf with a leading axis (point, ...). **Arguments:** a column for each input."""
        numbers = iter(self.line.on_numbers(*columns))
        leaves = []
        for each in jax.tree.leaves(self.shapes):
            row = [np.broadcast_to(next(numbers), (count,)) for _ in range(math.prod(each.shape))]
            leaves.append(np.stack(row, axis=-1).reshape(count, *each.shape))
        return jax.tree.unflatten(jax.tree.structure(self.shapes), leaves)


def traced(function: Callable, *inputs: Any, key: Any = None) -> Traced:
    """A pure function of float64 numbers as scalar operations, from disk where it is known.

    **Arguments:** `inputs`: pytrees of `jax.ShapeDtypeStruct`; `key`: what `function` depends on besides them, the function
    itself by default.

    **Raises:** `NotStraight` where the function holds loops of unknown length, or places that depend on its inputs.
    """
    path = _path((getattr(function, "__qualname__", type(function).__qualname__), key or function, inputs))
    if path is not None:
        with contextlib.suppress(Exception):  # damaged, or written half: it is traced again
            return _unpacked(pickle.loads(path.read_bytes()))
    with jax.enable_x64(True):
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*inputs)
    result = Traced(straightened(closed, ()), shapes)
    if path is not None:
        with contextlib.suppress(OSError, pickle.PicklingError, AttributeError, TypeError):
            _write(path, pickle.dumps(_packed(result)))
    return result


def estimated(function: Callable, *inputs: Any) -> Any:
    """`function(*inputs)` in NumPy and float64, compiled by nobody; leaves are NumPy arrays."""
    return jax.tree.map(lambda leaf: leaf[0], estimated_rows(function, inputs, ()))


def estimated_rows(function: Callable, same: tuple, varied: tuple) -> Any:
    """`function(*same, *varied)` in NumPy and float64 at many points; leaves are NumPy arrays (row, ...).

    **Arguments:** `same`: inputs of all rows; `varied`: inputs whose leaves, numbers to the function, are columns (row,).
    """
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(same)]
    columns = jax.tree.leaves(varied)
    shapes = (*(leaf.shape for leaf in leaves), *[()] * len(columns))
    known = _of_form(function, jax.tree.structure((*same, *varied)), shapes)
    return known(
        [*(np.full(1, x) for leaf in leaves for x in leaf.ravel()), *columns], len(columns[0]) if columns else 1
    )


@functools.lru_cache(maxsize=4)
def _of_form(function: Callable, tree: Any, shapes: tuple[tuple[int, ...], ...]) -> Traced:
    """A function of inputs of one form, of the last few of this process."""
    return traced(function, *jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(each, np.float64) for each in shapes]))


# Names.


def _path(what: Any) -> Path | None:
    """Where something is kept; None where nothing is, or it holds what is not ours."""
    folder = getattr(jax.config, "jax_compilation_cache_dir", None)  # no attribute to type checkers
    if not folder:
        return None
    stream = io.BytesIO()
    try:
        _Form(stream, protocol=5).dump(what)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
        return None
    return Path(folder) / f"hwopt-{_source()}" / hashlib.sha256(stream.getvalue()).hexdigest()[:32]


class _Form(pickle.Pickler):
    """Writes what an object is made of, to be compared and never read: functions by name, or code and what they close over."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and obj is not str:
            return str, (_ours(obj),)
        if isinstance(obj, types.FunctionType):
            if "<locals>" not in obj.__qualname__ and "<lambda>" not in obj.__qualname__:
                return str, (_ours(obj),)
            inside = [cell.cell_contents for cell in obj.__closure__ or ()]
            return str, (_ours(obj), marshal.dumps(obj.__code__, 2), inside, obj.__defaults__, obj.__kwdefaults__)
        return NotImplemented


def _ours(obj: Any) -> str:
    root = obj.__module__.partition(".")[0]
    if root not in OWN and root not in OTHERS:
        raise pickle.PicklingError(f"{obj.__qualname__} of {obj.__module__} may call what is not known here")
    return f"{obj.__module__}:{obj.__qualname__}"


@functools.cache
def _source() -> str:
    """A digest of this package's source files and of what runs them; packages need not be imported yet."""
    versions = [getattr(sys.modules.get(name), "__version__", "") for name in ("jax", "jaxlib", "numpy", "equinox")]
    digest = hashlib.sha256(f"{sys.version} {versions} {platform.machine()}".encode())
    for package in OWN:
        found = importlib.util.find_spec(package)
        for root in (found and found.submodule_search_locations) or ():
            for path in sorted(Path(root).rglob("*.py")):
                status = path.stat()
                digest.update(f"{path.relative_to(root)} {status.st_mtime_ns} {status.st_size}\n".encode())
    return digest.hexdigest()[:16]


# Files.


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; a new folder takes the place of those that were long not written to."""
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True)
        for folder in path.parent.parent.glob("hwopt-*"):
            if time.time() - folder.stat().st_mtime > FORGOTTEN_S:
                shutil.rmtree(folder, ignore_errors=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(beside, path)
    except OSError:
        os.unlink(beside)
        raise


def _packed(what: Traced) -> tuple:
    """Plain data: an operation's arguments as the places of others, or numbers."""
    place = {id(symbol): i for i, symbol in enumerate((*what.line.inputs, *what.line.operations))}
    element = lambda each: place[id(each)] if isinstance(each, Symbol) else (each,)
    for symbol in what.line.operations:
        if symbol.name not in FUNCTIONS and symbol.primitive is not _primitive(symbol.name):
            raise pickle.PicklingError(f"no primitive is called '{symbol.name}'")
    operations = [
        (each.name, tuple(map(element, each.arguments)), each.params, where_of(each.origin))
        for each in what.line.operations
    ]
    return len(what.line.inputs), operations, tuple(map(element, what.line.outputs)), what.shapes


def _unpacked(packed: tuple) -> Traced:
    count, operations, outputs, shapes = packed
    inputs = tuple(Symbol("input", (i,)) for i in range(count))
    symbols = list(inputs)
    element = lambda each: each[0] if isinstance(each, tuple) else symbols[each]
    for name, arguments, params, origin in operations:
        primitive = None if name in FUNCTIONS else _primitive(name)
        symbols.append(Symbol(name, tuple(map(element, arguments)), primitive, params, origin))
    return Traced(StraightLine(inputs, tuple(symbols[count:]), tuple(map(element, outputs))), shapes)


def _primitive(name: str) -> Any:
    return OPERATIONS.get(name) or getattr(jax.lax, f"{name}_p", None)
