"""On-disk cache of functions traced to scalar operations, so that a new process need not trace or compile them.

A function is traced once for each form of its inputs, with all numbers as variables. The file name changes with everything that
the trace depends on: the function's code, the form of its inputs, the source files of this package, the versions of Python and
JAX. Only functions of this package are cached, since a user's function may call unknown code.

A file is JSON preceded by a SHA-256 of its name and content. It contains only names from closed tables, indices and numbers, so
reading it executes nothing. If a file is damaged, foreign or renamed, its function is traced and written again. The digest does
not authenticate the author, so a folder that other users can write to is neither read nor written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
import json
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
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import Primitive

from hwopt import source_digest
from hwopt.cache_folders import machine_folder, private_folder
from hwopt.trace.constant_folding import NUMBERS
from hwopt.trace.derivatives import value_and_gradient
from hwopt.trace.scalar_program import ELEMENTWISE, FUNCTIONS, ScalarProgram, jaxpr_to_scalar_program
from hwopt.trace.source_info import source_location
from hwopt.trace.symbols import Symbol
from hwopt.trace.yield_primitive import OPERATIONS

OTHERS = frozenset({"numpy", "jax", "jaxlib", "equinox", "jaxtyping", "ml_dtypes", *sys.stdlib_module_names})
"""Packages whose functions a cache key may contain, because the key includes their version or their meaning is stable."""

FORGOTTEN_S = 30 * 86400.0
"""Age at which cache folders of other versions are deleted, s."""


class TracedFunction(NamedTuple):
    """Function traced to a scalar program."""

    line: ScalarProgram  # inputs: elements of the leaves of the function's inputs, in order
    shapes: Any  # tree of `jax.ShapeDtypeStruct`s of the result

    def known(self, numbers: Sequence[float | None]) -> TracedFunction:
        """Return the function with its first inputs fixed to numbers, except those that are None."""
        return TracedFunction(self.line.with_known(numbers), self.shapes)

    def only(self, part: Callable[[Any], Any]) -> TracedFunction:
        """Return the function reduced to a part of its result, without operations that this part does not need."""
        leaves, structure = jax.tree.flatten(self.shapes)
        ends = pairwise(np.cumsum([0, *(math.prod(each.shape) for each in leaves)]))
        places = [np.arange(i, j).reshape(each.shape) for (i, j), each in zip(ends, leaves, strict=True)]
        chosen = part(jax.tree.unflatten(structure, places))
        shapes = jax.tree.map(lambda place: jax.ShapeDtypeStruct(place.shape, np.float64), chosen)
        return TracedFunction(self.line.only([i for place in jax.tree.leaves(chosen) for i in place.ravel()]), shapes)

    def __call__(self, columns: Sequence[np.ndarray], count: int) -> Any:
        """Return the result at many points, each leaf with a leading axis (point, ...). **Arguments:** `columns`: one for
        each input.
        """
        numbers = iter(self.line.on_numbers(*columns))
        leaves = []
        for each in jax.tree.leaves(self.shapes):
            row = [np.broadcast_to(next(numbers), (count,)) for _ in range(math.prod(each.shape))]
            leaves.append(np.stack(row, axis=-1).reshape(count, *each.shape))
        return jax.tree.unflatten(jax.tree.structure(self.shapes), leaves)


def cached_trace(function: Callable, *inputs: Any, key: Any = None) -> TracedFunction:
    """Trace a pure function of float64 numbers to a scalar program, or read the trace from the disk cache.

    **Arguments:**

    - `function`: the function.
    - `inputs`: pytrees of `jax.ShapeDtypeStruct`.
    - `key`: everything else that `function` depends on; by default the function itself.

    **Raises:** `NotScalarArithmetic` if the function contains loops of unknown length, or indices that depend on its
    inputs.
    """
    path = _path((getattr(function, "__qualname__", type(function).__qualname__), key or function, inputs))
    if path is not None:
        with contextlib.suppress(Exception):  # missing, damaged or foreign: it is traced again
            return _read(path, _count(inputs))
    with jax.enable_x64(True):
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*inputs)
    result = TracedFunction(jaxpr_to_scalar_program(closed), shapes)
    if path is not None:
        with contextlib.suppress(OSError, TypeError, KeyError, AttributeError):  # cannot be written
            _write(path, json.dumps(_packed(result), separators=(",", ":")).encode())
    return result


def evaluate_in_numpy(function: Callable, *inputs: Any) -> Any:
    """Return `function(*inputs)` computed in NumPy and float64, without compilation; leaves are NumPy arrays."""
    return jax.tree.map(lambda leaf: leaf[0], evaluate_rows_in_numpy(function, inputs, ()))


def are_numbers(tree: Any) -> bool:
    """Return whether every leaf is a number or an array that NumPy can read now, rather than one that JAX traces."""
    return all(
        not isinstance(leaf, Tracer) and getattr(leaf, "dtype", np.asarray(leaf).dtype).kind in "fiub"
        for leaf in jax.tree.leaves(tree)
    )


def gradient_in_numpy(function: Callable, part: Callable[[Any], Any], *inputs: Any) -> tuple:
    """Return the derivatives of a number in the result of `function(*inputs)` to all inputs, without compilation.

    **Arguments:** `part`: selects the number from the result.

    **Returns:** trees of the inputs' structure; leaves are NumPy arrays.
    """
    leaves, tree = jax.tree.flatten(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), inputs))
    line = _of_form(function, tree, tuple(leaf.shape for leaf in leaves)).only(part).line
    _, (slopes,) = value_and_gradient(line, [float(x) for leaf in leaves for x in leaf.ravel()], [0])
    parts = np.split(slopes, np.cumsum([leaf.size for leaf in leaves])[:-1])
    return jax.tree.unflatten(tree, [each.reshape(leaf.shape) for each, leaf in zip(parts, leaves, strict=True)])


def evaluate_rows_in_numpy(function: Callable, same: tuple, varied: tuple) -> Any:
    """Return `function(*same, *varied)` at many points in NumPy and float64; leaves are NumPy arrays (row, ...).

    **Arguments:**

    - `function`: the function.
    - `same`: inputs shared by all rows.
    - `varied`: inputs whose leaves, scalars to the function, are given as columns (row,).
    """
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(same)]
    columns = jax.tree.leaves(varied)
    shapes = (*(leaf.shape for leaf in leaves), *[()] * len(columns))
    known = _of_form(function, jax.tree.structure((*same, *varied)), shapes)
    return known(
        [*(np.full(1, x) for leaf in leaves for x in leaf.ravel()), *columns], len(columns[0]) if columns else 1
    )


@functools.lru_cache(maxsize=4)
def _of_form(function: Callable, tree: Any, shapes: tuple[tuple[int, ...], ...]) -> TracedFunction:
    """Return a function traced for inputs of given tree and shapes; the process keeps the last few."""
    return cached_trace(
        function, *jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(each, np.float64) for each in shapes])
    )


# Names.


def _path(what: Any) -> Path | None:
    """Return the cache file of an object, in JAX's cache folder or the user's own.

    It is None if neither can be used, and if the object contains functions of unknown packages.
    """
    given = getattr(jax.config, "jax_compilation_cache_dir", None)  # no attribute to type checkers
    if given and not os.path.isabs(given):  # relative to the current folder, or an object store
        return None
    stream = io.BytesIO()
    try:
        _Form(stream, protocol=5).dump(what)
        folder = private_folder(Path(given) if given else machine_folder(), f"hwopt-{_source()}")
    except (
        pickle.PicklingError,
        AttributeError,
        TypeError,
        RecursionError,
        OSError,
        RuntimeError,
    ):  # the last: no home
        return None
    return folder / hashlib.sha256(stream.getvalue()).hexdigest()[:32]


class _Form(pickle.Pickler):
    """Pickler that writes a canonical form for comparison only: functions by name, or by code and the variables they
    close over.
    """

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
    if root not in source_digest.PACKAGES and root not in OTHERS:
        raise pickle.PicklingError(f"{obj.__qualname__} of {obj.__module__} may call what is not known here")
    return f"{obj.__module__}:{obj.__qualname__}"


@functools.cache
def _source() -> str:
    """Return a digest of this package's source files, of library versions and of the machine type."""
    versions = [getattr(sys.modules.get(name), "__version__", "") for name in ("jax", "jaxlib", "numpy", "equinox")]
    runs = f"{source_digest.source_digest()} {sys.version} {versions} {platform.machine()}"
    return hashlib.sha256(runs.encode()).hexdigest()[:16]


# Files.


def _sealed(path: Path, content: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + content).hexdigest().encode() + b"\n" + content


def _read(path: Path, count: int) -> TracedFunction:
    """Return the trace in a file. **Arguments:** `count`: number of scalar inputs of its function.

    **Raises:** an `Exception` of any class if the file is damaged.
    """
    written = path.read_bytes()
    content = written.partition(b"\n")[2]
    if written != _sealed(path, content):
        raise ValueError(f"{path} is not what was written there")
    return _unpacked(json.loads(content), count)


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically. When the first file of a new folder is written, folders not used for a long time are deleted."""
    if not any(path.parent.iterdir()):
        for folder in path.parent.parent.glob("hwopt-*"):
            if time.time() - folder.stat().st_mtime > FORGOTTEN_S:
                shutil.rmtree(folder, ignore_errors=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_sealed(path, content))
        os.replace(beside, path)
    except OSError:
        os.unlink(beside)
        raise


_KINDS = {each: np.dtype(each) for each in ("bool", "int8", "int16", "int32", "int64", "float32", "float64")}
"""Number types by name."""

_PARAMS: dict[str, Callable[[Any], Any]] = {
    "new_dtype": _KINDS.__getitem__, "source": _KINDS.__getitem__, "y": int, "rounding_method": jax.lax.RoundingMethod,
    "accuracy": {None: None}.__getitem__,
}  # fmt: skip
"""Parameters of operations: name -> function that restores a value from its written form."""

_PRIMITIVES = {
    name: found
    for name in (*NUMBERS, *ELEMENTWISE)
    if isinstance(found := OPERATIONS.get(name) or getattr(jax.lax, f"{name}_p", None), Primitive)
}
"""Primitives by name: a file may contain these and `FUNCTIONS` only."""

_NESTS = {each.__name__: each for each in (tuple, list, dict, OrderedDict)}
"""Container types by name; dictionaries are written as their items."""


def _packed(what: TracedFunction) -> dict[str, Any]:
    """Return a trace as plain data. Arguments of operations are indices into numbers, inputs and operations, in this order.

    **Raises:** `TypeError`, `KeyError` or `AttributeError` if a part cannot be written.
    """
    line = what.line
    elements = chain(*(each.arguments for each in line.operations), line.outputs)
    kind_of = lambda number: number.dtype.name
    numbers = sorted((each for each in elements if not isinstance(each, Symbol)), key=kind_of)
    place = {id(each): i for i, each in enumerate((*numbers, *line.inputs, *line.operations))}
    rows: dict[Any, int] = {}  # name, parameters and origin, shared by many operations
    operations = []
    for each in line.operations:
        params = tuple((key, value.name if isinstance(value, np.dtype) else value) for key, value in each.params)
        if _told(params) != each.params or (
            each.name not in FUNCTIONS and each.primitive is not _PRIMITIVES[each.name]
        ):
            raise TypeError(f"operation '{each.name}' cannot be written")
        row = rows.setdefault((each.name, params, source_location(each.origin)), len(rows))
        operations.append((row, *(place[id(argument)] for argument in each.arguments)))
    shapes = _plain(what.shapes)
    if jax.tree.structure(_built(shapes)) != jax.tree.structure(what.shapes):
        raise TypeError("its results cannot be written")
    return {
        "inputs": len(line.inputs),
        "numbers": {kind: np.array([*some], _KINDS[kind]).tobytes().hex() for kind, some in groupby(numbers, kind_of)},
        "rows": list(rows),
        "operations": operations,
        "outputs": [place[id(each)] for each in line.outputs],
        "shapes": shapes,
    }


def _unpacked(packed: dict[str, Any], count: int) -> TracedFunction:
    """Return the trace that `_packed` wrote, after a test run. **Arguments:** `count`: number of scalar inputs.

    **Raises:** an `Exception` of any class if the data is not such a trace.
    """
    inputs = tuple(Symbol("input", (i,)) for i in range(count))
    kinds = (np.frombuffer(bytes.fromhex(text), _KINDS[kind]) for kind, text in packed["numbers"].items())
    elements: list[Any] = [*chain(*kinds), *inputs]
    before = len(elements)
    rows = [
        (name, None if name in FUNCTIONS else _PRIMITIVES[name], _told(params), str(origin))
        for name, params, origin in packed["rows"]
    ]
    for row, *places in packed["operations"]:
        name, primitive, params, origin = rows[row]
        elements.append(Symbol(name, tuple([elements[i] for i in places]), primitive, params, origin))
    outputs = tuple([elements[i] for i in packed["outputs"]])
    found = TracedFunction(ScalarProgram(inputs, tuple(elements[before:]), outputs), _built(packed["shapes"]))
    if packed["inputs"] != count or len(outputs) != _count(found.shapes):
        raise ValueError("these are the operations of another function")
    found.line.on_numbers(*[np.ones(1)] * count)
    return found


def _count(shapes: Any) -> int:
    """Return the total number of elements of a tree of shapes."""
    return sum(math.prod(each.shape) for each in jax.tree.leaves(shapes))


def _told(params: Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    return tuple((key, _PARAMS[key](value)) for key, value in params)


def _plain(what: Any) -> Any:
    """Return a tree of shapes as plain data: an object becomes a table with one entry, from its class to its fields."""
    if what is None or type(what) in (str, bool, int, float):
        return what
    if isinstance(what, jax.ShapeDtypeStruct):
        return {"shape": (what.shape, what.dtype.name)}
    if type(what) in _NESTS.values():
        return {type(what).__name__: [*map(_plain, what.items() if isinstance(what, dict) else what)]}
    inside: Any = what._asdict() if hasattr(what, "_asdict") else vars(what)
    return {f"{type(what).__module__}:{type(what).__name__}": {name: _plain(value) for name, value in inside.items()}}


def _built(plain: Any) -> Any:
    """Return a tree of shapes from plain data; classes are named tuples and dataclasses of this package that are imported."""
    if not isinstance(plain, dict):
        return plain
    ((kind, inside),) = plain.items()
    if kind == "shape":
        return jax.ShapeDtypeStruct(tuple(inside[0]), _KINDS[inside[1]])
    if kind in _NESTS:
        return _NESTS[kind](map(_built, inside))
    module, _, name = kind.partition(":")
    found = getattr(sys.modules[module], name) if module.partition(".")[0] in source_digest.PACKAGES else None
    values = {name: _built(value) for name, value in inside.items()}
    if isinstance(found, type) and issubclass(found, tuple):
        return found._make(values[each] for each in found._fields)  # pyright: ignore[reportAttributeAccessIssue]
    made = object.__new__(found)  # pyright: ignore[reportArgumentType]
    for each in dataclasses.fields(made):
        object.__setattr__(made, each.name, values[each.name])
    return made
