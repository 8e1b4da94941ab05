"""Calibrations: shifts of the model's constants, fitted to measured runs, as data files; and the choices of constants."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import jax
import numpy as np

from hwopt import escape
from hwopt.catalog.load import is_path, leaf, read_toml, record
from hwopt.catalog.names import data_root, names
from hwopt.catalog.peripherals import BENCHMARK, PRODUCTION
from hwopt.errors import UserError, suggest
from hwopt.hardware.calibration import CONSTANTS, OF_MACHINES, OWN, Scopes, family_of, moved
from hwopt.hardware.cluster import Cluster
from hwopt.stack import Stack
from hwopt.units import pretty, read_amount

SPEED_OF_LIGHT, LITERATURE, CALIBRATED = "speed-of-light", "literature", "calibrated"

MODES = (SPEED_OF_LIGHT, LITERATURE, CALIBRATED)
"""Sources of the model's constants: peak rates only; datasheets, papers and estimates; the same, fitted to published runs."""

PUBLISHED = "published"
"""Name of the calibration behind the mode `calibrated`."""


@dataclass(frozen=True)
class Calibration:
    """Fitted shifts of the model's constants (`hwopt.hardware.calibration`), and the errors of predictions with them.

    Without shifts it means literature constants.
    """

    title: str
    scopes: Scopes = field(default_factory=lambda: Scopes(()))
    shifts: np.ndarray = field(default_factory=lambda: np.zeros(0))
    sd: np.ndarray = field(default_factory=lambda: np.zeros(0))  # of the posterior
    left_out: Mapping[str, np.ndarray] = field(default_factory=dict)  # source of runs -> shifts fitted without it
    intervals: Mapping[str, float] = field(default_factory=dict)  # term -> coefficient (`hwopt.calibration.intervals`)
    note: str = ""
    runs: int = 0
    own: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict
    )  # machine of the user's own runs -> terms of its intervals
    operation: str = (
        ""  # of the fitted runs: benchmark or production; empty for a mixture, or where the file does not state it
    )
    date: str = ""  # month to which the runs were collected: the reference date of questions, in the shipped file

    def widths(self, family: str, stack: str) -> Mapping[str, float]:
        """Return the coefficients of the prediction intervals for a machine, by term.

        They come from the user's own runs on this machine where the calibration file has them, else from its general intervals.
        """
        return self.own.get(machine_key(family, stack), self.intervals)

    def totals(self, family: str, stack: str, without: str = "") -> dict[str, float]:
        """Return the total shift of each constant on a machine, summed over all scopes.

        **Arguments:**

        - `family`: of the chip (its architecture).
        - `stack`: name in the catalog.
        - `without`: a source of measured runs that the fit must not have seen, where the file contains such shifts.
        """
        shifts = self.left_out.get(without, self.shifts)
        total = self.scopes.membership(family_of(family), line_of(stack), software_family(stack)) @ shifts
        return {constant.name: float(value) for constant, value in zip(CONSTANTS, total, strict=True)}

    def knows(self, kind: str, name: str, without: str = "") -> bool:
        """Return whether the fit included runs of this chip family or this stack; without such runs, its constants are not
        shifted.

        **Arguments:** `kind`: the type of scope; `name` of the family or stack; `without` as in `totals`.
        """
        wanted, shifts = f"{kind}:{family_of(name)}", self.left_out.get(without, self.shifts)
        return any(
            scope == wanted and (shift != 0.0 or not self.runs)
            for (_, scope), shift in zip(self.scopes.entries, shifts, strict=True)
        )


def machine_key(family: str, stack: str) -> str:
    """Return the key that groups runs of one machine in a calibration: chip family and stack, named as in
    `Calibration.totals`.
    """
    return f"{family_of(family)} {stack}"


def usual_operation(constants: str | Path = CALIBRATED) -> str:
    """Return the operation to assume where none is stated: that of the runs behind the constants.

    A benchmark at the speed of light; production for published constants, and for a file that does not state it.
    """
    fitted = calibration(constants)
    return BENCHMARK if fitted is None else fitted.operation or PRODUCTION


def operation_words(constants: str | Path, asked: str | Path | None) -> str:
    """Describe the operation in use and that of the runs behind a constants file; return "" for the modes."""
    anchor = Anchor.read(constants)
    fitted = calibration(constants) if is_path(constants) or anchor else None
    if fitted is None:
        return ""
    used, runs = str(asked or usual_operation(constants)), "the anchor" if anchor else f"the runs behind {constants}"
    if not fitted.operation:
        return f"{used} operation: {constants} does not state that of its runs"
    if used == fitted.operation:
        return f"{used} operation, as {runs}"
    return f"{used} operation as requested, although {runs} {'is' if anchor else 'are'} of {fitted.operation} operation"


def calibration(name: str | Path = CALIBRATED) -> Calibration | None:
    """Return the calibration of a mode; None for the speed of light.

    **Arguments:** `name`: one of `MODES`, the path of a `.toml` file that `hwopt calibrate` wrote, or an `Anchor` as text.

    **Raises:** `UserError` for an unknown mode or a bad file.
    """
    if anchor := Anchor.read(name):
        return anchor.calibration()
    if is_path(name):
        return _parsed(read_toml(Path(name)), str(name))
    if name == SPEED_OF_LIGHT:
        return None
    if name == LITERATURE:
        return Calibration("literature constants, fitted to nothing")
    if name == CALIBRATED:
        return _published()
    raise UserError(f"unknown constants '{name}': {suggest(str(name), MODES)}, or a .toml file of `hwopt calibrate`")


@cache
def calibration_table(name: str) -> Mapping[str, Any]:
    """Return the content of a file of `hwopt/data/calibrations`, such as the half widths of intervals."""
    return read_toml(Path(str(data_root() / "calibrations" / f"{name}.toml")))


@cache
def _published() -> Calibration:
    return _parsed(calibration_table(PUBLISHED), f"hwopt/data/calibrations/{PUBLISHED}.toml")


MOST_LEVEL, FAR_LEVEL = math.log(10.0), math.log(2.0)
"""Absolute logarithm of measured over predicted time above which an anchor is refused, or called far off. Of the published
training runs, predicted without their study, none is off by a factor above 9.9, and 1 in 20 by a factor above 2.1."""

_FAR_OFF = "; far off: check workload, plan and software"

_MOST_DIGITS = 6
"""Significant digits of the times in an anchor's text, from which it is read back."""

_OWN_LEVEL_SD = next(each.prior[OWN] for each in CONSTANTS if each.name == "level")


MOST_ANCHORS = 3
"""Number of runs up to which each further one counts: weights and widths are learned from anchors of one run and of three."""


class Anchor(NamedTuple):
    """Measured runs of the machine in question: they scale the global step-time factor of a calibration.

    The factor becomes `(measured / predicted)^w` with the geometric means of n runs and `w = n / (n + k)`. The calibration itself
    counts as k runs. This number and the half width of the interval afterwards are learned from published clusters: one or three
    plans given, the others predicted (`results/benchmarks/own_runs.py`). An anchor is written as the name of the constants, so
    that answers state it and commands accept it in `--constants`.
    """

    base: str  # constants that predicted the run
    measured_s: float
    predicted_s: float
    machine: str  # `machine_key` of chip and stack
    operation: str
    runs: int = 1

    def __str__(self) -> str:
        measured, predicted = (pretty(each, "s", _MOST_DIGITS) for each in (self.measured_s, self.predicted_s))
        far = _FAR_OFF if abs(math.log(self.measured_s / self.predicted_s)) > FAR_LEVEL else ""
        times = f"{measured} measured, {predicted} predicted before"
        runs = "run" if self.runs == 1 else f"{self.runs} runs"
        return f"{self.base}, anchored on your {runs}: {times} ({self.machine}; {self.operation}{far})"

    @staticmethod
    def read(text: object) -> "Anchor | None":
        """Return the anchor that a text states; None for other texts. **Raises:** `UserError` for invalid times."""
        match = _ANCHORED.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            return None
        measured, predicted = (read_amount(match[name], "s") for name in ("measured", "predicted"))
        return Anchor(match["base"], measured, predicted, match["machine"], match["operation"], int(match["runs"] or 1))

    @property
    def weight(self) -> float:
        """Return the exponent of measured over predicted time."""
        runs = min(self.runs, MOST_ANCHORS)
        return runs / (runs + self._learned["prior_runs"])

    @property
    def _learned(self) -> Mapping[str, float]:
        return calibration_table("own_runs")["anchored_service" if self._serves else "anchored"]

    @property
    def _serves(self) -> bool:
        return serves(self.machine.rpartition(" ")[2])

    def calibration(self) -> Calibration:
        """Return the constants with the anchor's level and intervals.

        **Raises:** `UserError` for times that are not positive or that differ by more than `MOST_LEVEL`, and for constants that
        nothing scales: those at the speed of light, and those with an anchor.
        """
        base, times = calibration(self.base), self.measured_s / self.predicted_s if self.predicted_s > 0.0 else math.nan
        if base is None or Anchor.read(self.base):
            raise UserError(f"anchor: constants '{self.base}' take no anchor")
        if not math.exp(-MOST_LEVEL) <= times <= math.exp(MOST_LEVEL):
            measured, predicted = (pretty(each, "s") for each in (self.measured_s, self.predicted_s))
            raise UserError(
                f"anchor: the measured time {measured} is {times:.3g} times the predicted {predicted}: check its unit, and that "
                "workload, plan and software are those of the run"
            )
        level, learned, weight = ("level", OWN), self._learned, self.weight
        narrower = learned["base"] + learned["log_runs"] * math.log(min(self.runs, MOST_ANCHORS))
        known = dict(zip(base.scopes.entries, zip(base.shifts, base.sd, strict=True), strict=True))
        before = 0.0 if self._serves else known.get(level, (0.0,))[0]
        known[level] = (before + weight * math.log(times), _OWN_LEVEL_SD * math.sqrt(1.0 - weight))
        shifts, sd = np.array(list(known.values())).T
        widths = {name: learned["published"] * x for name, x in base.intervals.items()}
        if widths:
            missed = (1.0 - weight) * abs(math.log(times))  # the interval contains the run itself
            narrowest = math.log(max(missed, 1e-6) * (1.0 + 1e-6))
            widths |= {
                "base": max(widths["base"] + narrower, narrowest),
                MEMORY: base.intervals.get(MEMORY, 0.1),
                ANCHORED: narrower,
            }
        return replace(
            base, title=str(self), scopes=Scopes(tuple(known)), shifts=shifts, sd=sd, left_out={}, runs=base.runs + self.runs,
            own={self.machine: widths} | dict(base.own), operation=self.operation,
        )  # fmt: skip


_ANCHORED = re.compile(
    r"(?P<base>.{1,4000}), anchored on your (?:run|(?P<runs>[1-9][0-9]{0,5}) runs): (?P<measured>[^,]{1,40}) measured, "
    rf"(?P<predicted>[^,]{{1,40}}) predicted before \((?P<machine>[^();]{{3,200}}); "
    rf"(?P<operation>{BENCHMARK}|{PRODUCTION})(?:{_FAR_OFF})?\)"
)


def forget_calibrations() -> None:
    """Discard the cached calibration, so that the shipped file is read again when next needed."""
    calibration_table.cache_clear()
    _published.cache_clear()


ANCHORED = "anchored"
"""Key of what an anchor adds to the log half width of a service."""

MEMORY = "memory_half_width"
"""Key of the half width of a chip's peak memory, in log units."""

_FARTHEST = 20.0
"""Maximum plausible shift. Larger ones are typing errors: e^20 is half a billion."""


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_numbers(table: object) -> TypeGuard[Mapping[str, float]]:
    return isinstance(table, Mapping) and all(_is_number(x) and math.isfinite(x) for x in table.values())


def _pair(value: object) -> tuple[float, float] | None:
    """Return shift and standard deviation of an entry; None for anything but two finite numbers of a plausible size."""
    parts = (value.get("shift"), value.get("sd")) if isinstance(value, Mapping) else ()
    pair = [part for part in parts if _is_number(part) and math.isfinite(part) and abs(part) < _FARTHEST]
    return (pair[0], pair[1]) if len(pair) == 2 else None


def _parsed(table: Mapping[str, object], where: str) -> Calibration:
    wanted = {"title", "note", "runs", "shifts", "left_out", "intervals", "own", "operation", "date"}
    for key in table:
        if key not in wanted:
            raise UserError(f"{where}: unknown key '{key}': {suggest(key, wanted)}")
    shifts = table.get("shifts")
    if not isinstance(shifts, Mapping):
        raise UserError(f"{where}: 'shifts' is missing; is this a file of `hwopt calibrate`?")
    entries: dict[tuple[str, str], tuple[float, float]] = {}
    known = {constant.name: constant for constant in CONSTANTS}
    for key, value in shifts.items():
        name, at, scope = key.partition("@")
        if not at or name not in known:
            raise UserError(f"{where}: unknown constant '{key}': {suggest(name, known)}")
        if scope.split(":")[0] not in known[name].prior:
            raise UserError(f"{where}: '{name}' has no scope '{scope}': {suggest(scope, list(known[name].prior))}")
        pair = _pair(value)
        if pair is None:
            raise UserError(f"{where}: '{key}' must be {{ shift, sd }}, two finite numbers below {_FARTHEST:g}")
        entries[name, scope] = pair
    left_out = table.get("left_out", {})
    if not isinstance(left_out, Mapping) or not all(
        isinstance(row, list) and len(row) == len(entries) and all(map(_is_number, row)) for row in left_out.values()
    ):
        raise UserError(f"{where}: 'left_out' must hold one number per shift for each source")
    intervals = table.get("intervals", {})
    if not _are_numbers(intervals):
        raise UserError(f"{where}: 'intervals' must be a table of numbers")
    own = table.get("own", {})
    if not isinstance(own, Mapping) or not all(_are_numbers(each) and "base" in each for each in own.values()):
        raise UserError(f"{where}: 'own' must hold a table of numbers, including `base`, for each machine")
    operation, runs = table.get("operation", ""), table.get("runs", 0)
    if operation not in ("", BENCHMARK, PRODUCTION):
        raise UserError(
            f"{where}: operation = {operation!r}: must be '{BENCHMARK}' or '{PRODUCTION}', the operation of the fitted runs"
        )
    return Calibration(
        title=escape.sentence(str(table.get("title", where))),
        scopes=Scopes(tuple(entries)),
        shifts=np.array([shift for shift, _ in entries.values()]),
        sd=np.array([sd for _, sd in entries.values()]),
        left_out={source: np.array(row, float) for source, row in left_out.items()},
        intervals={term: float(x) for term, x in intervals.items()},
        note=escape.sentence(str(table.get("note", ""))),
        runs=runs if isinstance(runs, int) else 0,
        own={machine: {term: float(x) for term, x in each.items()} for machine, each in own.items()},
        operation=str(operation),
        date=escape.sentence(str(table.get("date", ""))),
    )


def with_constants(cluster: Cluster, fitted: Calibration | None, family: str, stack: str, without: str = "") -> Cluster:
    """Return a cluster of literature constants with those of a calibration instead.

    Serving stacks keep their own software constants and get none of the software shifts, which correct estimates for
    training software. Chips and links are the same for both; their constants are shifted.

    **Arguments:** `fitted` as returned by `calibration`; `family` of the chip; `stack` by name; `without` as in
    `Calibration.totals`.

    **Returns:** a cluster whose leaves are still NumPy arrays.
    """
    if fitted is None:
        return speed_of_light(cluster)
    if not fitted.scopes.entries:
        return cluster
    totals = fitted.totals(family, stack, without)
    if serves(stack):
        totals = {name: value for name, value in totals.items() if name in OF_MACHINES}
    shifts = {name: np.float64(value) for name, value in totals.items() if value}
    built_up = jax.tree.map(leaf, moved(cluster, shifts, np))
    if serves(stack) and machine_key(family, stack) in fitted.own:  # a measured service anchors it
        level = dict(zip(fitted.scopes.entries, fitted.shifts, strict=True))["level", OWN]
        built_up = replace(built_up, stack=replace(built_up.stack, pass_level=leaf(math.exp(level))))
    return built_up


OTHERS = "others"
"""Family of stacks that share no code with any measured stack."""


@cache
def software_family(stack: str) -> str:
    """Return the family of a stack: stacks of a family share most of their code. A user's own stack belongs to `OTHERS`."""
    return str(record("stacks", stack).text.get("family", OTHERS)) if stack in names("stacks") else OTHERS


@cache
def line_of(stack: str) -> tuple[str, ...]:
    """Return a stack and the stacks that its users had before, newest first. A user's own stack has none before it."""
    older = str(record("stacks", stack).text.get("follows", "")) if stack in names("stacks") else ""
    return (stack, *line_of(older)) if older else (stack,)


@cache
def serves(stack: str) -> bool:
    """Return whether a stack of the catalog is an inference engine."""
    return stack in names("stacks") and record("stacks", stack).text.get("purpose") == "serving"


def speed_of_light(cluster: Cluster) -> Cluster:
    """Return a cluster at its peak rates: all efficiencies 1, no launch or host overhead, full overlap of all that can
    overlap.

    Latency and the memory that a framework takes remain.
    """

    def at(module: Any, ones: tuple[str, ...], zeros: tuple[str, ...] = ()) -> Any:
        best = {name: np.ones_like(getattr(module, name)) for name in ones}
        return replace(module, **best, **{name: np.zeros_like(getattr(module, name)) for name in zeros})

    return replace(
        cluster,
        chip=at(cluster.chip, ("matmul_efficiency", "hbm_efficiency")),
        network=at(cluster.network, ("efficiency",), ("ramp",)),
        stack=at(cluster.stack, _BEST_AT_ONE, _BEST_AT_ZERO),
    )


_BEST_AT_ONE = (
    "attention_forward_efficiency", "attention_backward_efficiency", "gemm_efficiency_factor", "expert_gemm_factor",
    "routing_passes", "elementwise_passes", "recompute_stops_early", "dispatch_deduplicated", "tp_overlap", "cp_overlap",
    "ep_overlap", "pp_overlap", "dp_overlap", "gather_efficiency", "optimizer_passes", "level",
)  # fmt: skip
_BEST_AT_ZERO = (
    "gemm_half_size", "cast_passes", "weight_cast_share", "kernel_launch_s", "host_layer_s", "host_moe_layer_s",
    "host_collective_s", "communication_slowdown", "collective_launch_s", "step_overhead_s", "jitter_sigma",
    "gemm_start_s", "cast_start_s", "attention_start_s", "prompt_start_s", "host_sequence_s",
)  # fmt: skip
assert {*_BEST_AT_ONE, *_BEST_AT_ZERO} <= set(Stack.__dataclass_fields__)
