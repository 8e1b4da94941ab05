"""What a design counts in whole numbers: boxes of them, how boxes shrink and split, and what they mean for the model.

A box holds every whole-number design between two corners. Its coordinates are the degrees themselves and three counts from
which the rest follows: replicas d, micro-batches m, and groups g of tensor-parallel ranks in a scale-up domain,

    chips = t p c d,   global batch = d b m,   domain = t g,

so that a plan always uses every chip, every replica gets the same work, and domains hold whole groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hwopt.convex.signomial import Algebra, Kind, Signomial, number
from hwopt.design.problem import Problem
from hwopt.design.variables import Design, Variable
from hwopt.optim.whole_plans import divisors
from hwopt.plan import stage_layers

COORDINATES = (
    "tp", "ep", "pp", "virtual_stages", "micro_batch", "dp", "micro_batches", "groups", "chips_per_rack", "hbm_stacks", "dies",
)  # fmt: skip
"""Order of the columns of every box."""

_AT = {name: column for column, name in enumerate(COORDINATES)}

_PLAN_VALUES = ("tp", "ep", "pp", "virtual_stages", "micro_batch", "chips_per_rack", "hbm_stacks", "dies")
"""Coordinates that are variables of a problem by the same name."""

_SLIP = 1e-9
"""Relative rounding of bounds on products of whole numbers."""

_FIXED_SLACK = 1e-4
"""Room that a fixed product of whole numbers gets in a relaxation, which an interior point needs; points have none."""


@dataclass(frozen=True)
class Boxes:
    """Boxes of whole-number designs: corners, (box, coordinate) each, both inside."""

    low: np.ndarray
    high: np.ndarray

    def __len__(self) -> int:
        return len(self.low)

    def __getitem__(self, index) -> Boxes:
        return Boxes(self.low[index], self.high[index])

    def column(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        return self.low[:, _AT[name]], self.high[:, _AT[name]]

    @property
    def points(self) -> np.ndarray:
        """Which of them hold a single design."""
        return (self.low == self.high).all(axis=1)


def joined(boxes: list[Boxes]) -> Boxes:
    """All of them in one."""
    return Boxes(np.concatenate([b.low for b in boxes]), np.concatenate([b.high for b in boxes]))


@dataclass(frozen=True)
class Lattice:
    """The whole-number designs of a question."""

    problem: Problem

    @cached_property
    def variables(self) -> dict[str, Variable]:
        return {each.name: each for each in self.problem.variables}

    @cached_property
    def layers(self) -> int:
        return round(float(self.problem.template.workload.model.layers))

    @cached_property
    def context(self) -> int:
        return round(float(self.problem.template.plan.cp))

    @cached_property
    def sites(self) -> int:
        """Sites that share the replicas equally."""
        return round(float(self.problem.template.cluster.sites.count))

    def replica_step(self, t: np.ndarray, ep: np.ndarray) -> np.ndarray:
        """What replicas are multiples of: whole sets of experts, as many in each site."""
        return self.sites * (ep // np.gcd(ep, t * self.context))

    def range(self, name: str) -> tuple[float, float]:
        """Box of a design variable; a point where the question does not free it."""
        if name in self.variables:
            return self.variables[name].lower, self.variables[name].upper
        run, cluster, plan, project = self.problem.template
        held = {
            "chips": cluster.chips, "global_batch_sequences": run.global_batch_sequences, "chips_per_rack": cluster.rack.chips,
            "scale_up_domain": cluster.network.size[0],
            "hbm_stacks": project.design.hbm_stacks if project else 1.0, "dies": project.design.dies if project else 1.0,
        }  # fmt: skip
        value = float(held[name] if name in held else getattr(plan, name))
        return value, value

    def whole(self, name: str) -> tuple[int, int]:
        """Whole numbers in the box of a variable."""
        low, high = self.range(name)
        return math.ceil(low * (1 - _SLIP)), math.floor(high * (1 + _SLIP))

    @cached_property
    def _stages(self) -> tuple[np.ndarray, np.ndarray]:
        """`stage_layers` of every (pp, chunks): fullest, last."""
        most_p, most_v = self.whole("pp")[1], self.whole("virtual_stages")[1]
        table = np.full((2, most_p + 1, most_v + 1), np.nan)
        for p in range(1, most_p + 1):
            for v in range(1, most_v + 1):
                if p * v <= self.layers + 2:
                    table[:, p, v] = stage_layers(self.layers, p, v)
        return table[0], table[1]

    def roots(self) -> Boxes:
        """Boxes that together hold all designs: one for each pair of tensor and expert parallel degrees."""
        model = self.problem.template.workload.model
        heads, experts = round(float(model.heads)), round(float(model.experts))
        low_t, high_t = self.whole("tp")
        low_e, high_e = self.whole("ep")
        degrees = [
            (t, e)
            for t in divisors(heads)
            for e in divisors(max(experts, 1))
            if low_t <= t <= high_t and low_e <= e <= high_e
        ]
        rest = [self.whole(name) for name in ("pp", "virtual_stages", "micro_batch")]
        chips, batch, domain = self.range("chips"), self.range("global_batch_sequences"), self.range("scale_up_domain")
        others = [self.whole(name) for name in ("chips_per_rack", "hbm_stacks", "dies")]
        low, high = [], []
        for t, e in degrees:
            groups = (max(1, math.ceil(domain[0] / t * (1 - _SLIP))), math.floor(domain[1] / t * (1 + _SLIP)))
            counts = [(1, max(1, math.floor(most))) for most in (chips[1], batch[1])]
            corners = [(t, t), (e, e), *rest, *counts, groups, *others]
            low.append([a for a, _ in corners])
            high.append([b for _, b in corners])
        corners = (np.asarray(each, np.int64).reshape(-1, len(COORDINATES)) for each in (low, high))
        return self.shrunk(Boxes(*corners))[0]

    def samples(self) -> Boxes:
        """Boxes of common plans: stages in powers of two, chunks one or as many as fit, small micro-batches; not all designs."""
        roots = self.roots()
        made = []
        stages = [2**k for k in range(8)]
        for low, high in zip(roots.low, roots.high, strict=True):
            for p in stages:
                for most in (False, True):
                    for b in (1, 2):
                        corner_low, corner_high = low.copy(), high.copy()
                        v = (
                            min(int(high[_AT["virtual_stages"]]), max(1, (self.layers + 2) // p))
                            if most and p > 1
                            else 1
                        )
                        for name, value in (("pp", p), ("virtual_stages", v), ("micro_batch", b)):
                            corner_low[_AT[name]] = max(low[_AT[name]], value)
                            corner_high[_AT[name]] = min(high[_AT[name]], value)
                        made.append((corner_low, corner_high))
        if not made:
            return roots
        return self.shrunk(Boxes(*(np.unique(np.stack(made), axis=0).transpose(1, 0, 2))))[0]

    def shrunk(self, boxes: Boxes) -> tuple[Boxes, np.ndarray]:
        """Boxes without corners in which no design is valid; empty ones left out. And the numbers of those that are left."""
        low, high = boxes.low.copy(), boxes.high.copy()
        chips, batch = self.range("chips"), self.range("global_batch_sequences")

        def at_least(name: str, value: np.ndarray) -> None:
            low[:, _AT[name]] = np.maximum(low[:, _AT[name]], np.ceil(value * (1 - _SLIP)).astype(np.int64))

        def at_most(name: str, value: np.ndarray) -> None:
            most = np.floor(np.minimum(value, 1e15) * (1 + _SLIP)).astype(np.int64)
            high[:, _AT[name]] = np.minimum(high[:, _AT[name]], most)

        for _ in range(3):
            t, ep = low[:, _AT["tp"]], low[:, _AT["ep"]]
            lows = {name: low[:, i].astype(float) for name, i in _AT.items()}
            highs = {name: np.maximum(high[:, i], 1).astype(float) for name, i in _AT.items()}
            p, v, b, d, m = ("pp", "virtual_stages", "micro_batch", "dp", "micro_batches")
            at_most(p, (self.layers + 2) / lows[v])
            at_most(v, np.where(highs[p] == 1, 1.0, (self.layers + 2) / lows[p]))
            at_least(d, chips[0] / (t * self.context * highs[p]))
            at_most(d, chips[1] / (t * self.context * lows[p]))
            at_least(p, chips[0] / (t * self.context * highs[d]))
            at_most(p, chips[1] / (t * self.context * lows[d]))
            for one, (two, three) in {d: (b, m), b: (d, m), m: (d, b)}.items():
                at_least(one, batch[0] / (highs[two] * highs[three]))
                at_most(one, batch[1] / (lows[two] * lows[three]))
            interleaved = lows[v] > 1
            at_least(m, np.where(interleaved, lows[p], 0.0))
            at_most(p, np.where(interleaved, highs[m], np.inf))
            at_most(v, np.where(lows[p] > highs[m], 1.0, np.inf))
            step = self.replica_step(t, ep)
            low[:, _AT[d]] = -(-low[:, _AT[d]] // step) * step
            high[:, _AT[d]] = high[:, _AT[d]] // step * step
        left = np.flatnonzero((low <= high).all(axis=1))
        return Boxes(low[left], high[left]), left

    def valid(self, points: np.ndarray) -> np.ndarray:
        """Which whole-number designs (design, coordinate) are ones of the lattice."""
        if not len(points):
            return np.zeros(0, bool)
        boxes = Boxes(points.astype(np.int64), points.astype(np.int64))
        t, ep, p, v, b, d, m, g, *_ = boxes.low.T
        chips, batch, domain = self.range("chips"), self.range("global_batch_sequences"), self.range("scale_up_domain")

        def inside(value: np.ndarray, ends: tuple[float, float]) -> np.ndarray:
            return (value >= ends[0] * (1 - _SLIP)) & (value <= ends[1] * (1 + _SLIP))

        fits = inside(t * p * self.context * d, chips) & inside(d * b * m, batch) & inside(t * g, domain)
        for name in _PLAN_VALUES:
            fits &= inside(boxes.column(name)[0], self.range(name))
        schedule = (p * v <= self.layers + 2) & ((v == 1) | ((m >= p) & (p > 1)))
        return fits & schedule & (d % self.replica_step(t, ep) == 0)

    def values(self, algebra: Algebra, boxes: Boxes) -> tuple[dict[str, Signomial], dict[str, Signomial]]:
        """The problem's variables over boxes, and the constraints (not above 1) that tie the whole ones together."""
        atoms: dict[str, Signomial] = {}
        for name in COORDINATES:
            low, high = (x.astype(float) for x in boxes.column(name))
            fixed = (low == high).all()
            atoms[name] = number(low) if fixed else algebra.variable(name, low, high)
            if not fixed:
                algebra.narrow.add(len(algebra.atoms) - 1)
        times, over = algebra.times, algebra.over
        t, p, b, d, m = (atoms[name] for name in ("tp", "pp", "micro_batch", "dp", "micro_batches"))
        v = atoms["virtual_stages"]
        chips = times(times(times(t, p), number(float(self.context))), d)
        batch = times(times(d, b), m)
        domain = times(t, atoms["groups"])
        made = {name: atoms[name] for name in _PLAN_VALUES}
        made |= {"chips": chips, "global_batch_sequences": batch, "scale_up_domain": domain}
        made |= self._stage_values(algebra, boxes)
        for each in self.problem.variables:
            if each.name not in made:
                made[each.name] = algebra.variable(each.name, each.lower, each.upper)
        interleaved = number((boxes.column("virtual_stages")[0] > 1).astype(float))
        ties = {"order": times(interleaved, over(p, m)), "chunks": over(times(p, v), number(self.layers + 2.0))}
        for name, value in (("chips", chips), ("global_batch_sequences", batch), ("scale_up_domain", domain)):
            low, high = self.range(name)
            slack = _SLIP if high > 1.001 * low else _FIXED_SLACK
            ties |= {f"least {name}": over(number(low * (1 - slack)), value)}
            ties |= {f"most {name}": over(value, number(high * (1 + slack)))}
        names = {each.name for each in self.problem.variables}
        return {n: x for n, x in made.items() if n in names}, {n: x for n, x in ties.items() if x.constant is None}

    def _stage_values(self, algebra: Algebra, boxes: Boxes) -> dict[str, Signomial]:
        """Layers of the fullest and of the last stage over the mean, or their ranges."""
        (p0, p1), (v0, v1) = boxes.column("pp"), boxes.column("virtual_stages")
        made = {}
        for name, table in zip(("fullest_stage", "last_stage"), self._stages, strict=True):
            low, high = np.empty(len(boxes)), np.empty(len(boxes))
            seen: dict[tuple, tuple[float, float]] = {}
            for i, corner in enumerate(zip(p0, p1, v0, v1, strict=True)):
                if corner not in seen:
                    part = table[corner[0] : corner[1] + 1, corner[2] : corner[3] + 1]
                    seen[corner] = (
                        (float(np.nanmin(part)), float(np.nanmax(part))) if not np.isnan(part).all() else (1.0, 1.0)
                    )
                low[i], high[i] = seen[corner]
            if (low == high).all():
                made[name] = number(low)
            else:
                made[name] = algebra.atom(Kind.hull, (), low, high, name)
                algebra.narrow.add(len(algebra.atoms) - 1)
        return made

    def split(self, boxes: Boxes, columns: np.ndarray, parts: int = 2) -> tuple[Boxes, np.ndarray]:
        """Parts of each box along a coordinate, of equal ratio and at least one number each; and the number of each one's box."""
        rows = np.arange(len(boxes))
        low, high = boxes.low[rows, columns], boxes.high[rows, columns]
        made, first = [], low
        for part in range(1, parts + 1):
            share = part / parts
            last = np.floor(low ** (1.0 - share) * (high + 0.5) ** share).astype(np.int64) if part < parts else high
            last = np.clip(np.maximum(last, first), None, high)
            piece = Boxes(boxes.low.copy(), boxes.high.copy())
            piece.low[rows, columns], piece.high[rows, columns] = first, last
            made.append(piece)
            first = last + 1  # beyond the end where nothing is left: an empty box, which is left out
        pieces, left = self.shrunk(joined(made))
        return pieces, left % len(boxes)

    def count(self) -> float:
        """Whole-number designs of the lattice."""
        roots = self.roots()
        chips, batch = self.range("chips"), self.range("global_batch_sequences")
        total = 0.0
        for low, high in zip(roots.low, roots.high, strict=True):
            a, b = dict(zip(COORDINATES, low, strict=True)), dict(zip(COORDINATES, high, strict=True))
            step = int(self.replica_step(a["tp"], a["ep"]))
            d = np.arange(a["dp"], b["dp"] + 1, step)[:, None]
            sizes = np.arange(a["micro_batch"], b["micro_batch"] + 1)[None, :]
            least = np.maximum(1, np.ceil(batch[0] / (d * sizes) * (1 - _SLIP)))
            most = np.floor(batch[1] / (d * sizes) * (1 + _SLIP))
            plans = 0.0
            for p in range(int(a["pp"]), int(b["pp"]) + 1):
                n = a["tp"] * self.context * p * d
                inside = (n >= chips[0] * (1 - _SLIP)) & (n <= chips[1] * (1 + _SLIP))
                chunks = min(int(b["virtual_stages"]), (self.layers + 2) // p) if p > 1 else 1
                if chunks < a["virtual_stages"]:
                    continue
                single = np.maximum(0, most - least + 1) if a["virtual_stages"] == 1 else 0.0 * most
                several = chunks - max(int(a["virtual_stages"]), 2) + 1
                plans += float(
                    (inside * (single + max(0, several) * np.maximum(0, most - np.maximum(least, p) + 1))).sum()
                )
            rest = [b[name] - a[name] + 1 for name in ("groups", "chips_per_rack", "hbm_stacks", "dies")]
            total += plans * math.prod(rest)
        return total

    def says(self) -> str:
        """What the lattice covers, in words."""
        plan = self.problem.template.plan
        words = {
            "tp": "tensor parallel degrees that divide the heads", "ep": "expert parallel degrees that divide the experts",
            "pp": "any number of stages, uneven ones too", "virtual_stages": "chunks a stage", "micro_batch": "micro-batches",
            "chips": "replicas", "global_batch_sequences": "full batches", "scale_up_domain": "domains of whole groups",
            "chips_per_rack": "chips in a rack", "hbm_stacks": "HBM stacks", "dies": "dies",
        }  # fmt: skip
        free = [text for name, text in words.items() if self.range(name)[0] < self.range(name)[1]]
        recompute = "full" if float(plan.recompute_full) else "selective" if float(plan.recompute_attention) else "no"
        sharding = "ZeRO-3" if float(plan.weights_sharded) else "ZeRO-2" if float(plan.gradients_sharded) else "ZeRO-1"
        split = f", the same replicas at each of {self.sites} sites" if self.sites > 1 else ""
        return f"{', '.join(free) or 'one'}; {recompute} recomputation and {sharding}{split}; the rest continuous"

    @staticmethod
    def covers(problem: Problem) -> str:
        """Why a question has no lattice of this kind; empty where it has one."""
        known = {*COORDINATES, "chips", "global_batch_sequences", "scale_up_domain"}
        strange = [each.name for each in problem.variables if each.whole and each.name not in known]
        return f"whole-number variables {', '.join(strange)} are not branched on" if strange else ""

    def point(self, design: Design) -> np.ndarray:
        """Whole numbers of a design, the inverse of `design`."""
        run, cluster, plan, project = design
        held = (
            plan.tp, plan.ep, plan.pp, plan.virtual_stages, plan.micro_batch, plan.dp,
            run.global_batch_sequences / (plan.dp * plan.micro_batch), cluster.network.size[0] / plan.tp, cluster.rack.chips,
            project.design.hbm_stacks if project else 1.0, project.design.dies if project else 1.0,
        )  # fmt: skip
        return np.array([round(float(value)) for value in held], np.int64)

    def design(self, point: np.ndarray) -> dict[str, float]:
        """Values of the problem's whole variables at a point of the lattice."""
        at = dict(zip(COORDINATES, (int(x) for x in point), strict=True))
        fullest, last = stage_layers(self.layers, at["pp"], at["virtual_stages"])
        made: dict[str, float] = {name: at[name] for name in _PLAN_VALUES}
        made |= {
            "chips": at["tp"] * at["pp"] * self.context * at["dp"],
            "global_batch_sequences": at["dp"] * at["micro_batch"] * at["micro_batches"],
            "scale_up_domain": at["tp"] * at["groups"],
            "fullest_stage": fullest,
            "last_stage": last,
        }
        return {name: float(value) for name, value in made.items() if name in self.variables}
