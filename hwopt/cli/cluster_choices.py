"""The best plan over several clusters: flags that take one of several values each.

It loads the solver: commands import it when they run.
"""

import argparse
import copy
import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hwopt.cli.cluster_flags import CLUSTER
from hwopt.cli.kinds import TEXT
from hwopt.design.choices import EVERY, values_of
from hwopt.errors import UserError, suggest
from hwopt.optim.solution import Branch, Fate

MOST_CLUSTERS = 512
"""Combinations of choices: seconds each."""

Answer = tuple[argparse.Namespace, Any, Any, list[Branch]]
"""Flags of the best cluster, its work, its search, and what became of each combination."""


def best_of_clusters(options: argparse.Namespace, searched: Callable[[argparse.Namespace], tuple[Any, Any]]) -> Answer:
    """The cluster and plan whose objective is least. **Arguments:** `searched`: work and search of flags that state a cluster.

    **Raises:** `UserError` for what is no choice of a cluster, for a value that states none, and where no combination does.
    """
    rows: list[Branch] = []
    answers = []
    whole = [name for name, values in options.choices.items() if list(values) == [EVERY]]
    for chosen, asked in _clusters(options):
        try:
            work, search = searched(asked)
        except UserError as error:
            rows.append(Branch(chosen, Fate.refused, None, None, str(error)))
            continue
        value = search.best.objective if search.feasible else None
        answers.append((math.inf if value is None else value, len(rows), asked, work, search))
        rows.append(Branch(chosen, Fate.infeasible if value is None else Fate.beaten, value, search.lower_bound))
    for name, value in {pair for row in rows for pair in row.chosen}:
        of = [row for row in rows if (name, value) in row.chosen]
        if name not in whole and all(row.fate is Fate.refused for row in of):
            raise UserError(f"choices: {name}={value}: {of[0].refused}")
    if not answers:
        raise UserError(f"choices: no combination states a cluster: {rows[0].refused}")
    value, at, asked, work, search = min(answers, key=lambda each: each[:2])
    if search.feasible:
        rows[at] = replace(rows[at], fate=Fate.best)
    least = lambda row: math.inf if row.objective is None else row.objective
    return asked, work, search, sorted(rows, key=lambda row: (least(row), row.fate is Fate.refused))


def _clusters(options: argparse.Namespace) -> list[tuple[tuple[tuple[str, str], ...], argparse.Namespace]]:
    """Every combination of choices, and the flags that state its cluster."""
    known = {each.attribute: each for each in CLUSTER if each.kind is TEXT and each.attribute != "workload"}
    values = {}
    for name, named in options.choices.items():
        if name not in known:
            raise UserError(f"choices: '{name}' is no choice of a cluster: {suggest(name, known)}")
        if name in options.given:
            raise UserError(f"--choices {name}: {known[name].name} says it already; name it once")
        values[name] = values_of(name, named)
    if "chip" not in values and options.chip is None:
        raise UserError("--chip is needed, or --choices chip=...")
    count = math.prod(map(len, values.values()))
    if count > MOST_CLUSTERS:
        raise UserError(f"choices: {count} combinations; at most {MOST_CLUSTERS}: ask about some of them apart")
    clusters = []
    for row in itertools.product(*values.values()):
        asked = copy.copy(options)
        vars(asked).update(zip(values, row, strict=True))
        clusters.append((tuple(zip(values, row, strict=True)), asked))
    return clusters
