"""Percentiles of a service in closed form beside event simulations of it. From the top of a checkout; half an hour of a processor:

    python -m results.benchmarks.percentiles > results/reference/percentiles.txt

It needs a C compiler, `cc`: p99 to a percent at a load of 0.95 takes tens of millions of requests (`simulated_service.c`). Forms
and their constants were chosen with the cases in view that say so. Those held out were simulated when constants had been chosen.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hwopt.model.numerics.maximum import hard_maximum
from hwopt.model.serving import queueing, tails
from tests.in_numpy import in_numpy
from tests.unit.model.simulated_service import Server

LEVELS = tuple(queueing.LEVELS.values())
LOADS, BURSTS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95), (0.5, 1.0, 2.0, 4.0)
PARTS = 12
"""Simulations of a case, whose spread is the error of all."""

_BINS, _FIRST_BIN, _BINS_OF_E = 8192, 2048, 500.0
"""As of `simulated_service.c`."""


class Case(NamedTuple):
    """A service at a load. Prompts have `replicas` of their own, at `prompt_load`, unless it is 0."""

    server: Server
    load: float
    scvs: tuple[float, float, float]
    streams: int = 1
    prompt_load: float = 0.0
    replicas: int = 1


LONG, FEW = Server(0.02, 0.00015, 0.08, 64, 512), Server(0.02, 0.0004, 0.02, 16, 64)
HALF, MID = Server(0.01, 0.0002, 0.04, 64, 128), Server(0.015, 0.0002, 0.05, 32, 256)
SEEN = {
    "long answers": (LONG, 1, 1.0),
    "few slots, 4 streams": (FEW, 4, 1.0),
    "prompts half": (HALF, 1, 1.0),
    "32 slots": (MID, 1, 0.5),
}


def seen_together() -> list[Case]:
    return [Case(s, load, (c, cp, 1.0), k) for (s, k, cp), load, c in product(SEEN.values(), LOADS, BURSTS)]


def drawn_together(seed: int = 20261, count: int = 48) -> list[Case]:
    """Random services: prompts take 5 to 45 % of a full pass."""
    rng = np.random.default_rng(seed)
    cases = []
    for _ in range(count):
        slots, tokens = int(rng.choice([16, 24, 48, 96])), int(rng.choice([64, 128, 256, 512]))
        empty = rng.uniform(0.006, 0.03)
        grown, prompts = empty * rng.uniform(0.1, 1.0), rng.uniform(0.05, 0.45)
        prompt = (empty + grown) * prompts / (1.0 - prompts) * (tokens - 1) / slots
        scvs = (float(rng.choice(BURSTS)), float(rng.choice([0.3, 1.0, 2.0])), float(rng.choice([0.5, 1.0, 1.5])))
        server = Server(empty, grown / slots, prompt, slots, tokens)
        cases.append(Case(server, float(rng.uniform(0.3, 0.95)), scvs, int(rng.choice([1, 1, 2, 4]))))
    return cases


def drawn_apart(seed: int = 20261, count: int = 48) -> list[Case]:
    rng = np.random.default_rng(seed + 1)
    cases = drawn_together(seed, count)
    return [
        Case(
            each.server._replace(prompt_s=0.0), each.load, each.scvs, each.streams, float(rng.uniform(0.3, 0.9)),
            int(rng.choice([1, 2, 4, 8])),
        )
        for each in cases
    ]  # fmt: skip


def seen_apart() -> list[Case]:
    servers = (Server(0.02, 0.0003, 0.0, 64, 512), Server(0.02, 0.0008, 0.0, 16, 64))
    prompts = ((0.5, 1), (0.8, 4))
    scvs = ((0.5, 1.0, 1.0), (1.0, 1.0, 1.0), (1.0, 0.3, 1.0), (4.0, 0.5, 1.0))
    return [Case(s, load, each, 1, *queue) for s, load, queue, each in product(servers, (0.5, 0.9), prompts, scvs)]


def _closed(two: bool):
    def run(numbers):
        first = tails._first_apart if two else tails._first_beside
        return (
            [first(level, hard_maximum, *numbers) for level in LEVELS],
            [tails._next(level, hard_maximum, *numbers[:11]) for level in LEVELS],
        )

    return run


def numbers_of(case: Case) -> list[np.ndarray]:
    """What `tails` takes: of a group, of requests, and of prompts that have chips of their own."""
    s, k = case.server, case.streams
    rate = case.load * k * s.slots / ((s.tokens - 1) * s.full_s)
    numbers = [s.full_s, s.empty_s, s.prompt_s, rate, s.slots, s.tokens - 1.0, k, *case.scvs, 1.0]
    if case.prompt_load > 0.0:
        prompt_s = case.prompt_load * case.replicas / rate
        numbers += [prompt_s, prompt_s, 1.0, case.replicas]
    return [np.array([float(each)]) for each in numbers]


def in_closed_form(case: Case) -> np.ndarray:
    """p50, p95, p99 of first tokens, then between tokens."""
    return np.ravel(in_numpy(_closed(case.prompt_load > 0.0))(numbers_of(case)))


@cache
def _library() -> ctypes.CDLL:
    """The simulation, compiled."""
    source = Path(__file__).with_name("simulated_service.c")
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "simulated_service.so"
        subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-o", built, source, "-lm"], check=True)
        return ctypes.CDLL(str(built))


class Counted(NamedTuple):
    """What a simulation counts."""

    bins: np.ndarray  # (2, bins) first tokens, and times between tokens, in each
    waits: float  # share of requests that find all slots of their stream taken


def counted(case: Case, count: int, seed: int) -> Counted:
    """A simulation of a case to `count` answers that end, less the first tenth of its requests."""
    s = case.server
    numbers = [s.empty_s, s.each_s, s.prompt_s, s.slots, s.tokens, case.load, *case.scvs]
    numbers = np.array([*numbers, case.streams, case.prompt_load, case.replicas], dtype=float)
    bins, waits = np.zeros((2, _BINS), dtype=np.int64), np.zeros(2, dtype=np.int64)
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (numbers, bins[0], bins[1], waits)]
    done = _library().simulate(
        pointers[0], ctypes.c_int64(count), ctypes.c_int64(count // 10), ctypes.c_uint64(seed), *pointers[1:]
    )
    if done:
        raise RuntimeError(f"{case}: more requests wait, or longer answers, than the simulation has room for")
    return Counted(bins, waits[1] / waits[0])


def _quantiles(bins: np.ndarray, unit: float) -> np.ndarray:
    """p50, p95, p99 of first tokens, then between tokens."""
    found = []
    for each in bins:
        below = np.cumsum(each) / each.sum()
        at = np.searchsorted(below, LEVELS)
        before = np.where(at > 0, below[at - 1], 0.0)
        found.append(at + (LEVELS - before) / (below[at] - before))
    return unit * np.exp((np.concatenate(found) - _FIRST_BIN) / _BINS_OF_E)


def simulated(number: int, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """The same by simulation, and its standard errors. **Arguments:** `number` of the case, for its random numbers."""
    s = case.server
    unit = s.empty_s + s.each_s * s.slots if case.prompt_load else s.full_s
    parts = [counted(case, requests(case), number * 100_003 + part).bins for part in range(1, PARTS + 1)]
    values = np.array([_quantiles(part, unit) for part in parts])
    return _quantiles(np.sum(parts, axis=0), unit), values.std(axis=0, ddof=1) / np.sqrt(PARTS)


def requests(case: Case) -> int:
    """Of one part."""
    load = max(case.load, case.prompt_load)
    return 200_000 if load < 0.75 else 500_000 if load < 0.87 else 1_500_000 if load < 0.92 else 3_000_000


def errors(cases: list[Case], first: int) -> tuple[np.ndarray, np.ndarray]:
    """Relative errors of cases, and the standard errors of their simulations. **Arguments:** number of the `first`."""
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(simulated, range(first, first + len(cases)), cases))
    rows = [
        (in_closed_form(case) / value - 1.0, doubt / value) for case, (value, doubt) in zip(cases, found, strict=True)
    ]
    return np.array([error for error, _ in rows]), np.array([doubt for _, doubt in rows])


WHAT = ("first p50", "first p95", "first p99", "token p50", "token p95", "token p99")


def block(title: str, cases: list[Case], first: int) -> list[str]:
    error, doubt = errors(cases, first)
    lines = [
        f"{title}: {len(cases)} cases",
        f"  {'':12s}{'median':>8s}{'mean':>8s}{'within 5 %':>12s}{'or 2 s.e.':>11s}{'worst':>8s}{'s.e.':>12s}{'worst s.e.':>12s}",
    ]
    for j, name in enumerate(WHAT):
        e, own = np.abs(error[:, j]), doubt[:, j]
        lines.append(
            f"  {name:12s}{np.median(e):8.1%}{e.mean():8.1%}{np.mean(e <= 0.05):12.0%}{np.mean(e <= 0.05 + 2.0 * own):11.0%}"
            f"{e.max():8.0%}{np.median(own):12.1%}{own.max():12.1%}"
        )
    lines.append(f"  {'by load':12s}" + "".join(f"{name:>11s}" for name in WHAT) + "   (median)")
    loads = np.array([case.load for case in cases])
    for low, high in ((0.0, 0.6), (0.6, 0.85), (0.85, 1.0)):
        some = (loads >= low) & (loads < high)
        if some.any():
            lines.append(
                f"  {low:.2f} to {high:.2f}"
                + "".join(f"{each:11.1%}" for each in np.median(np.abs(error[some]), axis=0))
            )
    return [*lines, ""]


def table() -> str:
    lines = [
        "Percentiles in closed form beside event simulations: errors of the time to a first token and between tokens.",
        f"Simulations of {PARTS} times 200,000 to 3,000,000 requests; s.e.: their own standard errors, median and worst case.",
        "'or 2 s.e.' counts what lies within 5 % and two of these. Loads 0.3 to 0.95, arrivals of scv 0.5 to 4.",
        "",
    ]
    first = 0
    for title, cases in (
        ("prompts beside answers, chosen with in view", seen_together()),
        ("prompts beside answers, drawn, seen too", drawn_together()),
        ("prompts on chips of their own, chosen with in view", seen_apart()),
        ("prompts on chips of their own, drawn, seen too", drawn_apart()),
        ("prompts beside answers, held out", drawn_together(20263)),
        ("prompts on chips of their own, held out", drawn_apart(20264)),
    ):
        lines += block(title, cases, first)
        first += len(cases)
    return "\n".join(lines).rstrip()


if __name__ == "__main__":
    print(table())
