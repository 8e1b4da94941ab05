"""What callers of the public functions pass: looked at where a call enters, each refusal one line that says what was meant.

Numbers are looked at where they are concrete: a traced one is the caller's own program, and passes.
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
    """The problem that a design question states; a `Problem` states itself.

    **Arguments:** as of `check_question`.

    **Returns:** its `hwopt.design.problem.Problem`.

    **Raises:** `UserError` as `check_question`, and as the question itself does.
    """
    check_question(objective, call)
    return objective.problem()


def check_question(objective: Any, call: str) -> None:
    """A design question, which states a problem.

    **Arguments:** `objective` as a caller passed it; `call`: the public function's name.

    **Raises:** `UserError` for a name, a class, and what states no problem; for fields that are text instead of numbers.
    """
    if isinstance(objective, str):
        raise UserError(f"{call}: '{objective}' is a name: pass hwopt.objective('{objective}')")
    if isinstance(objective, type):
        raise UserError(f"{call}: {objective.__name__} is a class: pass one of its questions, {objective.__name__}()")
    state = getattr(objective, "problem", None)
    if not callable(state):
        raise UserError(f"{call}: {_shown(objective)} is no design question: pass hwopt.objective('train_cost')")
    for each in dataclasses.fields(objective) if dataclasses.is_dataclass(objective) else ():
        if isinstance(each.default, float):
            number_of(f"{call}: {each.name}", getattr(objective, each.name))


def number_of(what: str, value: Any) -> float:
    """A Python or NumPy number as a float; infinity is one.

    **Raises:** `UserError` for text, None, a truth value, and what is not a number.
    """
    if isinstance(value, np.ndarray | jax.Array) and value.ndim == 0:
        value = np.asarray(value)[()]
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        quoted = isinstance(value, str) and value.strip().replace(".", "", 1).replace("e", "", 1).isdigit()
        raise UserError(f"{what} = {_shown(value)} must be a number" + (", without quotes" if quoted else ""))
    try:
        return float(value)
    except OverflowError:
        raise UserError(f"{what} = {_shown(value)} is beyond any number that a computer holds") from None


def check_seconds(seconds: Any, call: str = "optimize") -> float:
    """A limit of time, s; infinity is none.

    **Raises:** `UserError` unless it is above zero.
    """
    limit = number_of(f"{call}: seconds", seconds)
    if not limit > 0.0:
        raise UserError(f"{call}: seconds = {limit:g} must be above zero; leave it out for no limit")
    return limit


def check_seed(seed: Any, call: str = "optimize") -> int:
    """A seed, an integer of 0 or more.

    **Raises:** `UserError` for anything else.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise UserError(f"{call}: seed = {_shown(seed)} must be an integer of 0 or more")
    return int(seed)


def names_of(what: str, names: Any) -> tuple[str, ...]:
    """Several names.

    **Raises:** `UserError` for text alone, which would be read letter by letter, and for what is no name.
    """
    if isinstance(names, str):
        raise UserError(f"{what} = {_shown(names)}: pass a list of names, such as [{names.split(',')[0].strip()!r}]")
    if not isinstance(names, Iterable):
        raise UserError(f"{what} = {_shown(names)}: pass a list of names")
    listed = tuple(names)
    for name in listed:
        if not isinstance(name, str):
            raise UserError(f"{what}: {_shown(name)} is no name")
    return listed


def boxes_of(bounds: Any) -> dict[str, tuple[float, float]]:
    """Boxes by name of a variable, (lower, upper) each.

    **Raises:** `UserError` for anything else, and for a box whose ends are the wrong way round.
    """
    if not isinstance(bounds, Mapping):
        raise UserError(f"bounds = {_shown(bounds)}: pass a dictionary, such as {{'tp': (8.0, 16.0)}}")
    boxes = {}
    for name, box in bounds.items():
        if not isinstance(box, Iterable) or isinstance(box, str) or len(ends := tuple(box)) != 2:
            raise UserError(f"bounds of '{name}' = {_shown(box)}: pass a lower and an upper one, such as (8.0, 16.0)")
        low, high = (number_of(f"bounds of '{name}'", end) for end in ends)
        if low > high:
            raise UserError(f"bounds of '{name}' = {low:g}:{high:g} leave no room: reversed, write {high:g}:{low:g}")
        boxes[str(name)] = (low, high)
    return boxes


def path_of(what: str, path: Any, room: int = 0) -> Path:
    """A path as its owner means it: absolute, `~` the home.

    **Arguments:** `room` for that many characters behind the name, for files beside it.

    **Raises:** `UserError` for what is no path, an empty one, and names that the file system cannot hold or look at.
    """
    if not isinstance(path, str | os.PathLike) or not str(path).strip():
        raise UserError(f"{what} {_shown(path)}: name a file or a folder")
    try:
        absolute = Path(os.path.abspath(os.path.expanduser(path)))
        for name in (absolute, absolute.with_name(absolute.name + room * "-") if absolute.name else absolute):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.stat(name)
    except (OSError, ValueError) as failure:  # ValueError: a NUL, or letters that no file system knows
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
    """A temperature of smooth maxima: None, or a number of 0 or more; a traced one passes.

    **Raises:** `UserError` for a negative one, infinity, and what is no number.
    """
    if temperature is None or isinstance(temperature, Tracer):
        return
    if not 0.0 <= number_of("temperature", temperature) < math.inf:
        raise UserError(
            f"temperature = {_shown(temperature)}: pass a small positive number, or None for the exact model"
        )


def check_kinds(call: str, inputs: Mapping[str, Any], kinds: Mapping[str, tuple[type, ...]]) -> None:
    """Inputs of the model by their classes.

    **Arguments:** `call`: the public function's name; `inputs` by name, and their `kinds`.

    **Raises:** `UserError` for a value of another class; it says what makes a right one.
    """
    for name, value in inputs.items():
        if not isinstance(value, kinds[name]):
            classes = " or ".join(each.__name__ for each in kinds[name])
            makers = " or ".join(_MAKERS[each.__name__] for each in kinds[name] if each.__name__ in _MAKERS)
            made = f", as {makers} makes it" if makers else ""
            raise UserError(f"{call}: {name} must be a {classes}{made}, not {_shown(value)}")


_MAKERS = {
    "TrainingRun": "hwopt.catalog.training_run",
    "Service": "hwopt.catalog.service",
    "Cluster": "hwopt.catalog.cluster",
    "ClusterPair": "hwopt.catalog.cluster_pair",
    "Plan": "hwopt.catalog.plan",
    "Solution": "hwopt.optimize",
}
"""Class of an input -> what makes it from the catalogue."""


def checked(**kinds: tuple[type, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A door for `estimate`: what cannot be meant is refused before anything is traced, at the cost of a few look-ups.

    Numbers of the inputs are not looked at: constructors do that, and a traced one has no value.

    **Arguments:** `kinds`: classes of each input, by its name and in the order of the inputs.
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
    """Refuse leaves that are no real numbers, by their place."""
    for place, leaf in jax.tree_util.tree_leaves_with_path(dict(inputs)):
        kind = leaf.dtype if isinstance(leaf, jax.Array) else np.asarray(leaf).dtype
        if not jax.numpy.issubdtype(kind, np.number) or jax.numpy.issubdtype(kind, np.complexfloating):
            name = jax.tree_util.keystr(place).removeprefix("['").replace("']", "", 1)
            raise UserError(f"estimate: {name} = {_shown(leaf)} must be a real number")


def _shown(value: Any, most: int = 80) -> str:
    """A value in a message; of what is no plain value its class."""
    plain = value is None or isinstance(value, str | numbers.Number | list | tuple | dict | np.ndarray | jax.Array)
    text = " ".join(repr(value).split()) if plain else f"{type(value).__module__}.{type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]} ..."
