"""Argument validation for the public API. Errors are one line and suggest the intended value.

Only concrete numbers are checked. A number that JAX traces belongs to the caller's own program and passes.
"""

import contextlib
import dataclasses
import math
import numbers
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from hwopt.errors import UserError


def question_of(objective: Any, call: str = "optimize") -> Any:
    """Return the problem of a design question; a `Problem` returns itself.

    **Arguments:** as in `check_question`.

    **Returns:** the question's `hwopt.design.problem.Problem`.

    **Raises:** `UserError` as in `check_question`, and as raised by the question itself.
    """
    check_question(objective, call)
    return objective.problem()


def check_question(objective: Any, call: str) -> None:
    """Check that a value is a design question, i.e. states a problem.

    **Arguments:** `objective`: the value passed by the caller; `call`: name of the public function.

    **Raises:** `UserError` for a name, a class, or an object without a problem, and for fields with text instead of numbers.
    """
    if isinstance(objective, str):
        raise UserError(f"{call}: '{objective}' is a name: pass hwopt.objective('{objective}')")
    if isinstance(objective, type):
        raise UserError(f"{call}: {objective.__name__} is a class: pass one of its questions, {objective.__name__}()")
    state = getattr(objective, "problem", None)
    if not callable(state):
        raise UserError(f"{call}: {_shown(objective)} is not a design question: pass hwopt.objective('train_cost')")
    for each in dataclasses.fields(objective) if dataclasses.is_dataclass(objective) else ():
        if isinstance(each.default, float):
            number_of(f"{call}: {each.name}", getattr(objective, each.name))


def number_of(what: str, value: Any) -> float:
    """Return a Python or NumPy number as a float; infinity is allowed.

    **Arguments:** `what`: the name of the number, for messages; `value`.

    **Raises:** `UserError` for text, None, booleans, and other values that are not numbers.
    """
    if isinstance(value, np.ndarray | jax.Array) and value.ndim == 0:
        value = np.asarray(value)[()]
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        quoted = isinstance(value, str) and value.strip().replace(".", "", 1).replace("e", "", 1).isdigit()
        raise UserError(f"{what} = {_shown(value)} must be a number" + (", without quotes" if quoted else ""))
    try:
        return float(value)
    except OverflowError:
        raise UserError(f"{what} = {_shown(value)} exceeds the range of a 64-bit floating-point number") from None


def check_seconds(seconds: Any, call: str = "optimize") -> float:
    """Return a time limit in s; infinity means no limit.

    **Raises:** `UserError` unless it is above zero.
    """
    limit = number_of(f"{call}: seconds", seconds)
    if not limit > 0.0:
        raise UserError(f"{call}: seconds = {limit:g} must be above zero; remove it for no limit")
    return limit


def check_seed(seed: Any, call: str = "optimize") -> int:
    """Return a random seed, an integer of 0 or more.

    **Raises:** `UserError` for any other value.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise UserError(f"{call}: seed = {_shown(seed)} must be an integer of 0 or more")
    return int(seed)


def names_of(what: str, names: Any) -> tuple[str, ...]:
    """Return a list of names as a tuple.

    **Raises:** `UserError` for a single text, which would be split into letters, and for items that are not text.
    """
    if isinstance(names, str):
        raise UserError(f"{what} = {_shown(names)}: pass a list of names, such as [{names.split(',')[0].strip()!r}]")
    if not isinstance(names, Iterable):
        raise UserError(f"{what} = {_shown(names)}: pass a list of names")
    listed = tuple(names)
    for name in listed:
        if not isinstance(name, str):
            raise UserError(f"{what}: {_shown(name)} is not a name")
    return listed


def boxes_of(bounds: Any) -> dict[str, tuple[float, float]]:
    """Return bounds by variable name, (lower, upper) each.

    **Raises:** `UserError` for any other value, and for a lower bound above its upper bound.
    """
    if not isinstance(bounds, Mapping):
        raise UserError(f"bounds = {_shown(bounds)}: pass a dictionary, such as {{'tp': (8.0, 16.0)}}")
    boxes = {}
    for name, box in bounds.items():
        if not isinstance(box, Iterable) or isinstance(box, str) or len(ends := tuple(box)) != 2:
            raise UserError(f"bounds of '{name}' = {_shown(box)}: pass a lower and an upper bound, such as (8.0, 16.0)")
        low, high = (number_of(f"bounds of '{name}'", end) for end in ends)
        if low > high:
            raise UserError(f"bounds of '{name}' = {low:g}:{high:g} are reversed; write {high:g}:{low:g}")
        boxes[str(name)] = (low, high)
    return boxes


def path_of(what: str, path: Any, room: int = 0) -> Path:
    """Return a user's path as an absolute path; `~` is the home folder.

    **Arguments:** `room`: number of characters to reserve after the name, for the names of related files.

    **Raises:** `UserError` for values that are not paths, empty paths, and names that the file system does not support.
    """
    if not isinstance(path, str | os.PathLike) or not str(path).strip():
        raise UserError(f"{what} {_shown(path)}: must name a file or a folder")
    try:
        absolute = Path(os.path.abspath(os.path.expanduser(path)))
        for name in (absolute, absolute.with_name(absolute.name + room * "-") if absolute.name else absolute):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.stat(name)
    except (OSError, ValueError) as failure:  # ValueError: a NUL or unencodable character
        raise UserError(f"{what} {path}: cannot be used ({getattr(failure, 'strerror', failure)})") from None
    return absolute


MOST_FILE_BYTES = 1 << 28
"""Maximum size of a file to read: a hundred times the largest file of published runs."""


def file_bytes(path: Path) -> bytes:
    """Return the content of a regular file of at most `MOST_FILE_BYTES`.

    **Raises:** `OSError` for anything else, such as pipes and devices, which may never end, and where it cannot be read.
    """
    status = path.stat()
    if status.st_size > MOST_FILE_BYTES or not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise OSError(0, f"it is not a regular file of at most {MOST_FILE_BYTES >> 20} MiB")
    return path.read_bytes()  # raises for a directory


def check_temperature(temperature: Any) -> None:
    """Check a temperature of smooth maxima: None, or a number of 0 or more; traced numbers pass.

    **Raises:** `UserError` for negative numbers, infinity, and values that are not numbers.
    """
    if temperature is None or isinstance(temperature, Tracer):
        return
    if not 0.0 <= number_of("temperature", temperature) < math.inf:
        raise UserError(
            f"temperature = {_shown(temperature)}: must be a small positive number, or None for the exact model"
        )


def check_kinds(call: str, inputs: Mapping[str, Any], kinds: Mapping[str, tuple[type, ...]]) -> None:
    """Check the classes of model inputs.

    **Arguments:** `call`: name of the public function; `inputs` by name; `kinds`: allowed classes by name.

    **Raises:** `UserError` for a value of another class; the message names the function that creates a valid one.
    """
    for name, value in inputs.items():
        if not isinstance(value, kinds[name]):
            classes = " or ".join(each.__name__ for each in kinds[name])
            makers = " or ".join(_MAKERS[each.__name__] for each in kinds[name] if each.__name__ in _MAKERS)
            made = f", created by {makers}" if makers else ""
            raise UserError(f"{call}: {name} must be a {classes}{made}, not {_shown(value)}")


_MAKERS = {
    "TrainingRun": "hwopt.catalog.training_run",
    "Service": "hwopt.catalog.service",
    "Cluster": "hwopt.catalog.cluster",
    "ClusterPair": "hwopt.catalog.cluster_pair",
    "Plan": "hwopt.catalog.plan",
    "Solution": "hwopt.optimize",
}
"""Class of an input -> public function that creates it from the catalog."""


def checked(**kinds: tuple[type, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that validates the inputs of an `estimate` function before anything is traced, at little cost.

    Numbers inside the inputs are not checked here: constructors check them, and a traced number has no value.

    **Arguments:** `kinds`: allowed classes of each input, by name and in the order of the inputs.
    """

    def behind(estimate: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(estimate)
        def entered(*inputs: Any, temperature: Any = None, **named: Any) -> Any:
            check_temperature(temperature)
            by_name = dict(zip(kinds, inputs, strict=False)) | {name: named[name] for name in kinds if name in named}
            check_kinds("estimate", by_name, kinds)
            try:
                return estimate(*inputs, temperature=temperature, **named)
            except TypeError:
                _check_leaves(by_name)
                raise

        return entered

    return behind


def _check_leaves(inputs: Mapping[str, Any]) -> None:
    """Raise `UserError` for leaves that are not real numbers; the message names their path."""
    for place, leaf in jax.tree_util.tree_leaves_with_path(dict(inputs)):
        kind = leaf.dtype if isinstance(leaf, jax.Array) else np.asarray(leaf).dtype
        if not jax.numpy.issubdtype(kind, np.number) or jax.numpy.issubdtype(kind, np.complexfloating):
            name = jax.tree_util.keystr(place).removeprefix("['").replace("']", "", 1)
            raise UserError(f"estimate: {name} = {_shown(leaf)} must be a real number")


def _shown(value: Any, most: int = 80) -> str:
    """Return a value as text for a message, cut after `most` characters; an object of any other type is shown by its class."""
    plain = value is None or isinstance(value, str | numbers.Number | list | tuple | dict | np.ndarray | jax.Array)
    text = " ".join(repr(value).split()) if plain else f"{type(value).__module__}.{type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]} ..."
