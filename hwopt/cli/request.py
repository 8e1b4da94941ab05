"""Request for a cluster from the flags: a training run or a service. The differences between the two are handled here.

This module loads the catalog; commands import it when they run.
"""

import argparse
import copy
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx

from hwopt import catalog, escape
from hwopt.calibration.evidence import Evidence, machine_evidence
from hwopt.calibration.intervals import Interval, PredictionContext, context, machine_interval, widest
from hwopt.catalog.systems import usual_rack
from hwopt.cli.cluster_flags import MACHINE, REQUESTS, RUN, RUN_WORDS, SERVICE, TRAINING, run_words
from hwopt.cli.flags import Flag, foreign
from hwopt.design.provenance import Provenance
from hwopt.errors import UserError
from hwopt.output.text.service import requests_line, service_document
from hwopt.plan import Disaggregated
from hwopt.run_words import BY_NAME, WORDS
from hwopt.workload.operators import Operators

_KINDS = {
    "prices": "prices", "site": "sites", "storage": "storages", "recovery": "recoveries", "pool": "pools", "cooling": "cooling",
    "scale_up": "links", "scale_out": "links", "rack": "racks",
}  # fmt: skip
"""Role of a record in a cluster -> type of catalog entry."""


_SIZES = ("tokens", "global_batch", "sequence_length")
"""Settings of a run whose default is the workload's."""

_TITLED = ("chip", "decode_chip", "precision", "site", "date")
"""Settings of a cluster that every title names; it names others where `--choices` lists them."""


@dataclass(frozen=True)
class ClusterRequest:
    """Request for a workload on a cluster, built from flags."""

    options: argparse.Namespace
    workload: Any
    plan: Callable[[], Any]  # returns the plan of the flags; None to search for the best one
    stack: str | None  # software stack unless a flag names one; None for the chip's own
    measured: Callable[[PredictionContext], Interval | None]  # prediction interval of a measured cluster
    requests: dict[str, Any]  # further requirements, as JSON
    words: str  # further requirements, in words

    @property
    def decode_chip(self) -> str | None:
        """Return the chip of the decode group, where it differs from that of the prefill group; else None."""
        other = getattr(self.options, "decode_chip", None)
        slug = lambda chip: catalog.record("chips", chip).slug
        return other if other is not None and slug(other) != slug(self.options.chip) else None

    @property
    def chips(self) -> tuple[str, ...]:
        """Return the names of the chips: one, or those of prefill and decode."""
        return (self.options.chip,) if self.decode_chip is None else (self.options.chip, self.decode_chip)

    def cluster(self, chips: int) -> Any:
        """Return the cluster with a number of chips; a pair of clusters where prefill and decode have different chips."""
        if self.decode_chip is not None:
            return catalog.cluster_pair(self.options.chip, self.decode_chip, chips, **_values(self.options, MACHINE))
        values: dict[str, Any] = {"stack": self.stack, **_values(self.options, MACHINE), "slice": self._slice(chips)}
        return catalog.cluster(self.options.chip, chips, **values)

    def _slice(self, chips: int) -> str | None:
        """Return the shape of the slices of which a torus consists: as requested, else the largest; None without slices."""
        shape = self.options.slice
        if shape and chips % (each := catalog.slice_of(self.options.chip, shape).chips):
            raise UserError(f"slice = {shape}: {chips} chips are not a whole number of slices of {each} chips")
        return (
            shape
            if shape or self.options.domain or self.decode_chip is not None
            else catalog.largest_slice(self.options.chip, chips)
        )

    @property
    def kinds(self) -> dict[str, "ClusterRequest"]:
        """Return the request on each type of chip alone, by chip group; for a single type the request itself."""
        if self.decode_chip is None:
            return {"": self}
        chips = {"prefill": self.options.chip, "decode": self.decode_chip}
        return {group: _alone(self.options, chip) for group, chip in chips.items()}

    @property
    def records(self) -> dict[str, catalog.Record]:
        """Return the catalog records that state a cluster's prices, by role; for a single type of chip."""
        options, chip = self.options, catalog.record("chips", self.options.chip)
        named = {
            "prices": options.prices,
            "site": options.site,
            "storage": options.storage,
            "recovery": options.recovery,
        }
        named["pool"] = options.pool or str(chip.text.get("pool", "none"))
        named["cooling"] = options.cooling or catalog.default_cooling(options.chip, options.site)
        named |= {"scale_up": chip.text["scale_up"], "scale_out": chip.text["scale_out"]}
        named["rack"] = usual_rack(catalog.system_of(options.chip))
        if options.fabric:
            named["scale_out"] = catalog.record("fabrics", options.fabric).text["link"]
        return {"chip": chip} | {role: catalog.record(_KINDS[role], str(name)) for role, name in named.items()}

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the references of cluster and workload without duplicates; the data behind the constants comes first."""
        if len(self.kinds) > 1:
            return tuple(dict.fromkeys(source for each in self.kinds.values() for source in each.sources))
        options = self.options
        further = {
            "stack": catalog.record("stacks", options.stack or self.software),
            "workload": catalog.record("workloads", options.workload),
        }
        for name, kind in (("fabric", "fabrics"), ("reliability", "reliability"), ("operation", "operations")):
            if getattr(options, name):
                further[name] = catalog.record(kind, getattr(options, name))
        return Provenance(self.records | further, options.constants).sources

    def interval(self, report: Any, plan: Any) -> Interval | None:
        """Return the prediction interval; None for disaggregated plans on one type of chip, which were never measured."""
        if len(self.kinds) > 1:
            return widest([each.measured(PredictionContext()) for each in self.kinds.values()])
        return None if plan.disaggregated else self.measured(context(report, self.options.chips, plan))

    def evidence(self, plan: Any) -> Evidence | None:
        """Return the measured runs with the features of a plan."""
        each = [(catalog.record("chips", one.options.chip), one.software) for one in reversed(self.kinds.values())]
        return machine_evidence(self.workload, self.cluster(self.options.chips), plan, each)

    @property
    def software(self) -> str:
        """Return the name of the software stack: the stated one, or that of the chip."""
        named = self.options.stack or self.stack
        return catalog.record("stacks", named or catalog.default_stack(self.options.chip, date=self.options.date)).slug

    @property
    def document(self) -> dict[str, Any]:
        """Return the request as JSON."""
        other = {} if self.decode_chip is None else {"decode_chip": self.decode_chip}
        named = {name: getattr(self.options, name) for name in ("workload", "chip", "chips", "precision")}
        return (
            named
            | other
            | (
                {"slice": shape}
                if isinstance(self.options.chips, int) and (shape := self._slice(self.options.chips))
                else {}
            )
            | {"approximations": catalog.approximations(self.options.workload)}
            | self.requests
        )

    @property
    def title(self) -> str:
        """Return the request in words."""
        options, workload = self.options, catalog.named(self.options.workload)
        cluster = f"{workload} on {options.chips:,} x {options.chip}"
        if self.decode_chip is not None:
            of = f"{options.chip} for prefill and {self.decode_chip} for decode"
            cluster = f"{workload} on {options.chips:,} chips, {of}"
        further = [name for name in getattr(options, "choices", None) or {} if name not in _TITLED]
        chosen = "".join(f", {name} {getattr(options, name) or 'none'}" for name in further)
        dated = f", date {options.date} ({options.stack or self.stack})" if options.date else ""
        asked = escape.line(f"{cluster}, {options.precision}, site {options.site}{dated}{chosen}{self.operated}")
        return f"{asked}{self.words}{self._foreign_software}"

    @property
    def operated(self) -> str:
        """Return a title suffix: the operation in use and that of the constants file; empty for published constants."""
        words = catalog.operation_words(self.options.constants, self.options.operation)
        return words and f"; {words}"

    @property
    def _foreign_software(self) -> str:
        """Return a note where the two groups run software of different vendors: their KV-cache transfer was never measured."""
        stacks = [str(each.stack) for each in self.kinds.values()]
        makes = {re.sub(r"-\d{4}$", "", each) for each in stacks}  # ignore the release year
        if self.options.stack or len(makes) == 1:
            return ""
        words = "the transfer of keys and values from one to the other is an assumption (--stack)"
        return f"\n  software       {' and '.join(stacks)}: {words}"


def cluster_request(options: argparse.Namespace, flags: Iterable[Flag]) -> ClusterRequest:
    """Return the request (a workload on a cluster) that a command's flags state, for its mode: training or serving.

    **Raises:** `UserError` for flags of other modes, and for formats that the chip does not compute in.
    """
    if stranger := foreign(options, flags, options.mode):
        flag, modes = stranger
        others = " or ".join(filter(None, (", ".join(modes.names[:-1]), modes.names[-1])))
        raise UserError(
            f"{flag} applies to {modes.words}, not to mode {options.mode}: remove it, or use --mode {others}"
        )
    if not _as_published(options):
        catalog.check_precision(options.chip, options.precision)
        if getattr(options, "decode_chip", None) is not None:
            catalog.check_precision(options.decode_chip, options.precision)
        _split_plan(options)
    work = _request(options)
    if getattr(options, "anchor", None) is None or catalog.Anchor.read(options.constants):
        return work
    _anchor(options, work)
    return _request(options)


def _request(options: argparse.Namespace) -> ClusterRequest:
    return _training(options) if options.mode in TRAINING.names else _serving(options)


def _anchor(options: argparse.Namespace, work: ClusterRequest) -> None:
    """Scale the constants to the measured run of `--anchor`.

    **Raises:** `UserError` as in `hwopt.calibration.fit.anchor.anchored`, and for two types of chips.
    """
    from hwopt.calibration.fit.anchor import anchored
    from hwopt.design.anchored_question import AnchoredQuestion

    if not hasattr(options, "plan"):
        raise UserError(
            f"--anchor: hwopt {options.command} takes none, because its groups have plans of their own; remove it"
        )
    if work.decode_chip is not None or getattr(options, "prefill_plan", None) is not None:
        raise UserError("--anchor: applies to one group of chips, not to disaggregated serving; remove it")
    chips = options.chips if isinstance(options.chips, int) else None
    of = lambda operation: eqx.tree_at(lambda c: c.operation, work.cluster(options.chips), catalog.operation(operation))
    asked = AnchoredQuestion(
        options.workload, work.workload, options.mode in TRAINING.names, options.chip, str(options.stack or work.stack), chips,
        options.plan, options.operation, of, options.command == "estimate",
    )  # fmt: skip
    options.constants = anchored(options.anchor, options.constants, asked)


def _as_published(options: argparse.Namespace) -> bool:
    """Return whether a service has the formats of the published checkpoint, because no flag states those of its GEMMs."""
    stated = {*options.given, *(getattr(options, "choices", None) or {})}
    return options.mode in SERVICE.names and "precision" not in stated and bool(catalog.checkpoint(options.workload))


def _split_plan(options: argparse.Namespace) -> None:
    """Move the words of a run from the text of `--plan` to their flags. A text of words alone leaves the plan to the search.

    **Raises:** `UserError` for a word that is given twice, and for an unknown value.
    """
    for part in str(getattr(options, "plan", "") or "").split(",") if options.mode in TRAINING.names else ():
        name, _, value = map(str.strip, part.partition("="))
        if name.lower() in BY_NAME:
            flag = RUN_WORDS[BY_NAME[name.lower()].name]
            if getattr(options, flag.attribute) is not None:
                raise UserError(f"--plan {part.strip()}: {flag.name} is given too; keep one of them")
            setattr(options, flag.attribute, flag.kind.read(f"--plan {name}", value))
            options.given = {**options.given, flag.attribute: f"{flag.name} {value}"}
            options.plan = ",".join(each for each in str(options.plan).split(",") if each != part) or None


def _alone(options: argparse.Namespace, chip: str) -> ClusterRequest:
    """Return the request for a service on one type of chip."""
    asked = copy.copy(options)
    asked.chip, asked.decode_chip = chip, None
    return _serving(asked)


def _values(options: argparse.Namespace, flags: Iterable[Flag]) -> dict[str, Any]:
    """Return the values of the flags that are set, by attribute name."""
    values = {each.attribute: getattr(options, each.attribute) for each in flags}
    return {name: value for name, value in values.items() if value is not None}


def _training(options: argparse.Namespace) -> ClusterRequest:
    stated, run = run_words(options), catalog.training_run(options.workload, **_values(options, RUN))
    for name in (
        each.name for each in WORDS if each.experts and each.name in stated and not catalog.has_experts(run.model)
    ):
        raise UserError(
            f"{RUN_WORDS[name].name} {stated[name]}: {catalog.named(options.workload)} has no experts; remove it"
        )

    def plan() -> Any:
        words = options.plan
        return words and catalog.plan(run, options.chips, sites=options.sites, **catalog.parse_plan(words))

    table = isinstance(run.model, Operators)
    units, total = run.model.unit_of_work, float(run.tokens / run.tokens_per_unit)
    words = f"\n{total:.4g} {escape.line(units)}s in steps of {escape.line(run.step_words)}"
    assumed = [flag.name for flag in RUN if flag.attribute in _SIZES and flag.attribute not in options.given]
    words += f" (assumed from the workload: {', '.join(assumed)})" if assumed and not table else ""
    words += f"; one sample: {escape.line(run.model.sample)}" if table and run.model.sample != "sequence" else ""
    constants = catalog.calibration(options.constants)
    stack = catalog.default_stack(options.chip, options.workload, options.date)
    measured = partial(machine_interval, run, options.chip, options.stack or stack, constants)
    if (trained := float(run.trainable_fraction)) < 1.0:
        words += f"\n{100.0 * trained:.3g} % of the weights train; the loss is that of training all of them"
    words += f"\nmemory formats: {escape.line(options.memory_formats)}" if options.memory_formats else ""
    size = {
        "global_batch": run.global_batch_sequences,
        "sequence_length": run.sequence_length,
        "training_tokens": run.tokens,
    }
    words += f"\nrun: {', '.join(f'{name}={value}' for name, value in stated.items())}" if stated else ""
    asked: dict[str, Any] = {name: float(value) for name, value in size.items()}
    stated_too = {"run_words": stated, "memory_formats": options.memory_formats}
    asked |= {name: each for name, each in stated_too.items() if each}
    return ClusterRequest(options, run, plan, stack, measured, asked, words)


def _serving(options: argparse.Namespace) -> ClusterRequest:
    asked, formats = _values(options, REQUESTS), None
    if _as_published(options):
        chips = [chip for chip in (options.chip, getattr(options, "decode_chip", None)) if chip is not None]
        formats = catalog.stored_formats(options.workload, chips)
        asked |= {"precision": None, "chips": chips}
    service = catalog.service(options.workload, **asked)
    if formats is not None:
        options.precision = formats.precision
    stack = catalog.serving_stack(options.chip, options.date)
    return ClusterRequest(
        options,
        service,
        lambda: _serving_plan(options, service),
        stack,
        partial(machine_interval, service, options.chip, stack, catalog.calibration(options.constants)),
        service_document(service, options.mode),
        f", mode {options.mode}\n{requests_line(service, formats.words if formats else '')}",
    )


def _serving_plan(options: argparse.Namespace, service: Any) -> Any:
    decode, prefill, apart = options.plan, options.prefill_plan, options.prefill_chips
    if decode is not None and options.decode_chip is not None and (prefill is None or apart is None):
        raise UserError(
            "--decode-chip: the prefill chips need a plan of their own: add --prefill-plan and --prefill-chips, "
            "or remove --plan to search for the best plans"
        )
    of = lambda text, chips: catalog.serving_plan(service, chips, **catalog.parse_serving_plan(text))
    if prefill is None and apart is None:
        return decode and of(decode, options.chips)
    if prefill is None or apart is None or decode is None:
        raise UserError(
            "disaggregated serving needs three flags: --plan (for decode), --prefill-plan and --prefill-chips"
        )
    if apart >= options.chips:
        raise UserError(
            f"--prefill-chips {apart}: must be less than --chips {options.chips}; the remaining chips decode"
        )
    return Disaggregated(prefill=of(prefill, apart), decode=of(decode, options.chips - apart))
