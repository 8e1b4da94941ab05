"""Access to a sweep's dataset for figures: names of codes, cases, the best designs."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from hwopt.output.answers.sweep_document import names_of
from hwopt.output.figures.style import NothingToDraw, plain


def values(dataset: Any, name: str, missing: str | None = None) -> np.ndarray:
    """Return the numbers of a variable.

    **Raises:** `NothingToDraw` where the variable is missing or empty, with the message `missing` if given.
    """
    if name not in dataset or 0 in dataset[name].shape:
        raise NothingToDraw(missing or f"the dataset holds no {name}")
    return np.asarray(dataset[name].values)


def meanings(dataset: Any, *names: str) -> dict[int, str]:
    """Return code -> name, from the CF attributes of the first variable that has them."""
    coded = (dataset[name] for name in names if name in dataset and "flag_meanings" in dataset[name].attrs)
    return next(map(names_of, coded), {})


def parts(dataset: Any, name: str) -> dict[int, str]:
    """Return code -> part of the step, for a variable of bottlenecks."""
    return meanings(dataset, name, "bottleneck", "front_bottleneck", "map_bottleneck", "best_breakdown_s")


def cases(dataset: Any, name: str) -> dict[int, str]:
    """Return code -> combination of choices in words, for a variable of cases; empty unless the sweep covers several."""
    known = meanings(dataset, name) if name in dataset else {}
    return {code: case_words(text) for code, text in known.items()} if len(known) > 1 else {}


def case_words(text: str) -> str:
    """Return the values of a case, such as `b200, direct-liquid` for `chip=b200,cooling=direct-liquid`."""
    return plain(", ".join(part.partition("=")[2] or part for part in text.split(",")))


def best_is_feasible(dataset: Any) -> bool:
    """Return whether the designs along the dimension `rank` satisfy every constraint."""
    return dataset.attrs.get("best_are", "feasible") == "feasible"


def best_words(dataset: Any, count: int) -> str:
    """Describe the designs along the dimension `rank`, for titles."""
    if best_is_feasible(dataset):
        return "the best design" if count == 1 else f"the {count} best designs"
    return f"the {'design' if count == 1 else f'{count} designs'} closest to feasible (none is feasible)"


def heading(dataset: Any, text: str, width: int = 76) -> str:
    """Return the title of a figure, in lines of `width` letters."""
    whole = f"{dataset.attrs['title']}: {text}" if dataset.attrs.get("title") else text
    return plain(textwrap.fill(whole, width, break_long_words=False))


def spread(count: int, most: int) -> Sequence[int] | np.ndarray:
    """Return at most `most` of `count` positions, spread evenly.

    Positions follow a golden rotation. Even steps could coincide with the period of a Sobol sequence and sample only
    one corner of the search space.
    """
    if count <= most:
        return np.arange(count)
    golden = 0.5 * (5.0**0.5 - 1.0)
    return np.unique(((np.arange(most) + 0.5) * golden % 1.0 * count).astype(np.int64))
