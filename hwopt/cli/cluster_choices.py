"""Search for the best plan over several clusters: every flag of a cluster may list several values.

This module loads the solver; commands import it when they run.
"""

import argparse
import copy
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from hwopt.cli.cluster_flags import CLUSTER, DECODE_CHIP, RUN_WORDS
from hwopt.cli.value_types import TEXT
from hwopt.design.choices import Chosen, every_choice, named_values, refusal, refuse_strange
from hwopt.errors import UserError, suggest
from hwopt.output.text.verdict import achieved
from hwopt.progress import counted
from hwopt.solver.solution import Branch, BranchOutcome

MOST_CLUSTERS = 512
"""Maximum number of clusters (combinations of choices) that are searched; each takes seconds."""

Answer = tuple[argparse.Namespace, Any, Any, list[Branch]]
"""Result of the search: flags of the best cluster, its request, its plan search, and the outcome of each combination."""


def best_of_clusters(
    options: argparse.Namespace,
    stated: Callable[[argparse.Namespace], Any],
    searched: Callable[[argparse.Namespace], tuple[Any, Any]],
) -> Answer:
    """Return the cluster and plan with the smallest objective.

    **Arguments:**

    - `stated`: checks the flags of a combination before any search; raises `UserError` where they are invalid.
    - `searched`: returns request and plan search for the flags of a combination.

    **Raises:** `UserError` for a flag that is not a choice of a cluster, for an unknown value, and where no combination is
    valid.
    """
    clusters = _clusters(options)
    refused = [refusal(partial(stated, asked)) for _, asked in clusters]
    refuse_strange([(chosen, why) for (chosen, _), why in zip(clusters, refused, strict=True)], options.choices)
    rows: list[Branch] = []
    answers = []
    for (chosen, asked), why in counted([*zip(clusters, refused, strict=True)], "combination"):
        if why:
            rows.append(Branch(chosen, BranchOutcome.refused, None, None, why))
            continue
        work, search = searched(asked)
        value = search.best.objective if search.feasible else None
        said = achieved(search.best.report) if search.feasible else ""
        answers.append((math.inf if value is None else value, len(rows), asked, work, search))
        rows.append(
            Branch(
                chosen,
                BranchOutcome.infeasible if value is None else BranchOutcome.beaten,
                value,
                search.lower_bound,
                achieved=said,
            )
        )
    _, at, asked, work, search = min(answers, key=lambda each: each[:2])
    if search.feasible:
        rows[at] = replace(rows[at], fate=BranchOutcome.best)
    return asked, work, search, sorted(rows, key=lambda row: row.rank)


def _clusters(options: argparse.Namespace) -> list[tuple[Chosen, argparse.Namespace]]:
    """Return every combination of choices, with the flags of its cluster."""
    flags = (*CLUSTER, DECODE_CHIP)
    known = {each.attribute: each for each in flags if each.kind is TEXT and each.attribute != "workload"} | RUN_WORDS
    values = {}
    for name, named in options.choices.items():
        if name not in known:
            raise UserError(f"choices: '{name}' is not a setting of a cluster: {suggest(name, known)}")
        if name in options.given:
            raise UserError(f"--choices {name}: {known[name].name} is given too; keep one of them")
        values[name] = named_values("chip" if name == DECODE_CHIP.attribute else name, named)
    if "chip" not in values and options.chip is None:
        raise UserError("--chip or --choices chip=... is required")
    clusters = []
    for chosen in every_choice(values, MOST_CLUSTERS):
        asked = copy.copy(options)
        vars(asked).update(chosen)
        clusters.append((chosen, asked))
    return clusters
