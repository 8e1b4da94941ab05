"""`hwopt plan --splits`: colocated and disaggregated prefill and decode, ranked, for one or several candidate chips."""

import argparse
import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hwopt.cli.cluster_flags import CLUSTER, DECODE_CHIP
from hwopt.cli.exports import estimate_command, launch_files
from hwopt.cli.flags import Flag
from hwopt.cli.plan_args import limits, work_asked
from hwopt.errors import UserError, suggest

if TYPE_CHECKING:
    from hwopt.cli.runner import Rendered
    from hwopt.output.answer import Answer

_GROUPS = ("chip", "decode_chip")
"""Flags for which `--choices` may list several chips: prefill and decode."""

MOST_PAIRS = 64
"""Maximum number of pairs of chips that are ranked; each takes seconds."""


def ranked_splits(options: argparse.Namespace, flags: Sequence[Flag]) -> "Answer | Rendered":
    """Return every split of the chips between prefill and decode, ranked. **Arguments:** `flags` of the command."""
    from hwopt.output.answers.disaggregation import splits_document, splits_section
    from hwopt.output.answers.plans import plan_answer
    from hwopt.planning import plan_search

    works, ways = _asked(options, flags)
    first = next(iter(works.values()))
    search, splits = plan_search.ranked_splits(first.workload, ways, options.objective, options.top, limits(options))
    work = works[splits[0].way] if search.feasible else first
    if search.feasible and options.export is not None:
        machine = ways[splits[0].way].machine
        again = lambda allowed: plan_search.best_plan(
            work.workload, machine, options.objective, 0, limits=limits(options),
            disaggregate=search.best.plan.disaggregated, allowed=allowed,
        )  # fmt: skip
        return launch_files(
            options, work.title, options.workload, (work.workload, machine), search.best, again, work.chips,
            lambda best: estimate_command(work.options, (*CLUSTER, DECODE_CHIP), best), lambda: work.document,
        )  # fmt: skip
    together = next(each for each in splits if not each.best.plan.disaggregated)
    doubt = works[together.way].interval(together.best.report, together.best.plan)
    chips = {name: each.chips for name, each in works.items()} if len(ways) > 2 else {}
    ranked = splits_document(search, splits, chips), [splits_section(search, splits, doubt, chips)]
    around = work.interval(search.best.report, search.best.plan)
    return plan_answer(search, work.title, work.document, None, around, options.constants, *ranked)


def _asked(options: argparse.Namespace, flags: Sequence[Flag]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return requests and split options by name: colocated on each named chip, then disaggregated on each pair of chips."""
    from hwopt.planning.plan_search import SplitOption

    if options.disaggregate:
        raise UserError("--splits includes disaggregated plans: leave out --disaggregate")
    prompts, answers = _candidates(options)
    works: dict[str, Any] = {}
    ways: dict[str, SplitOption] = {}
    named: list[str] = [*prompts, *(answers or [])]
    for chip in dict.fromkeys(named):
        work = works[f"{chip} together"] = _on(options, flags, chip, None)
        ways[f"{chip} together"] = SplitOption(work.cluster(options.chips), apart=False)
    pairs = [(chip, other) for chip in prompts for other in answers or [chip]]
    if len(pairs) > MOST_PAIRS:
        raise UserError(f"--splits: {len(pairs):,} pairs of chips are more than {MOST_PAIRS}: name fewer")
    for chip, other in pairs:
        work = works[f"{chip} apart {other}"] = _on(options, flags, chip, other)
        ways[f"{chip} apart {other}"] = SplitOption(work.cluster(options.chips), apart=True)
    return works, ways


def _candidates(options: argparse.Namespace) -> tuple[list[str], list[str] | None]:
    """Return the candidate chips for prefill and for decode; None for decode where each chip has both groups."""
    from hwopt.design.choices import named_values

    for name in options.choices or {}:
        if name not in _GROUPS:
            raise UserError(
                f"--splits with --choices {name}: lists chip and decode_chip alone: {suggest(name, _GROUPS)}"
            )
    found: list[list[str] | None] = []
    for name in _GROUPS:
        stated = getattr(options, name)
        listed = named_values("chip", options.choices[name]) if name in (options.choices or {}) else None
        if stated is not None and listed is not None:
            raise UserError(f"--choices {name}: --{name.replace('_', '-')} says it already; keep one")
        found.append(listed if listed is not None else None if stated is None else [stated])
    prompts, answers = found
    if prompts is None:
        raise UserError("--chip is needed, or --choices chip=...")
    return prompts, answers


def _on(options: argparse.Namespace, flags: Sequence[Flag], chip: str, decode_chip: str | None) -> Any:
    asked = copy.copy(options)
    asked.chip, asked.decode_chip = chip, decode_chip
    return work_asked(asked, flags)
