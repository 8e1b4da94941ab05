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
from typing import ClassVar

import numpy as np

from hwopt.convex.signomial import Algebra, Signomial, number
from hwopt.design.problem import Problem
from hwopt.design.variables import Design
from hwopt.optim.boxes import FIXED_SLACK, SLIP, Boxes, DesignLattice, inside
from hwopt.optim.whole_plans import divisors
from hwopt.plan import stage_layers

_PLAN_VALUES = ("tp", "ep", "pp", "virtual_stages", "micro_batch", "chips_per_rack", "hbm_stacks", "dies")
"""Coordinates that are variables of a problem by the same name."""


@dataclass(frozen=True)
class Lattice(DesignLattice):
    """The whole-number designs of a question about training."""

    COORDINATES: ClassVar[tuple[str, ...]] = (
        "tp", "ep", "pp", "virtual_stages", "micro_batch", "dp", "micro_batches", "groups", "chips_per_rack", "hbm_stacks", "dies",
    )  # fmt: skip
    GAINS: ClassVar[tuple[float, ...]] = (0.1, 0.05, 0.02, 0.005, 0.01, 0.08, 0.06, 0.15, 0.1, 0.1, 0.1)  # as seen
    COUNTS: ClassVar[tuple[str, ...]] = ("dp", "micro_batches")

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

    def held(self, name: str) -> float:
        """What the template holds of a whole number that is not free."""
        run, cluster, plan, project = self.problem.template
        values = {
            "chips": cluster.chips, "global_batch_sequences": run.global_batch_sequences, "chips_per_rack": cluster.rack.chips,
            "scale_up_domain": cluster.network.size[0],
            "hbm_stacks": project.design.hbm_stacks if project else 1.0, "dies": project.design.dies if project else 1.0,
        }  # fmt: skip
        return float(values[name] if name in values else getattr(plan, name))

    @cached_property
    def _stages(self) -> tuple[np.ndarray, np.ndarray]:
        return self.stage_table(self.whole("pp")[1], self.whole("virtual_stages")[1])

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
            groups = (max(1, math.ceil(domain[0] / t * (1 - SLIP))), math.floor(domain[1] / t * (1 + SLIP)))
            counts = [(1, max(1, math.floor(most))) for most in (chips[1], batch[1])]
            corners = [(t, t), (e, e), *rest, *counts, groups, *others]
            low.append([a for a, _ in corners])
            high.append([b for _, b in corners])
        corners = (np.asarray(each, np.int64).reshape(-1, len(self.COORDINATES)) for each in (low, high))
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
                            min(int(high[self.at["virtual_stages"]]), max(1, (self.layers + 2) // p))
                            if most and p > 1
                            else 1
                        )
                        for name, value in (("pp", p), ("virtual_stages", v), ("micro_batch", b)):
                            corner_low[self.at[name]] = max(low[self.at[name]], value)
                            corner_high[self.at[name]] = min(high[self.at[name]], value)
                        made.append((corner_low, corner_high))
        if not made:
            return roots
        return self.shrunk(Boxes(*(np.unique(np.stack(made), axis=0).transpose(1, 0, 2))))[0]

    def shrunk(self, boxes: Boxes) -> tuple[Boxes, np.ndarray]:
        """Boxes without corners in which no design is valid; empty ones left out. And the numbers of those that are left."""
        low, high = boxes.low.copy(), boxes.high.copy()
        chips, batch = self.range("chips"), self.range("global_batch_sequences")

        def at_least(name: str, value: np.ndarray) -> None:
            low[:, self.at[name]] = np.maximum(low[:, self.at[name]], np.ceil(value * (1 - SLIP)).astype(np.int64))

        def at_most(name: str, value: np.ndarray) -> None:
            most = np.floor(np.minimum(value, 1e15) * (1 + SLIP)).astype(np.int64)
            high[:, self.at[name]] = np.minimum(high[:, self.at[name]], most)

        for _ in range(3):
            t, ep = low[:, self.at["tp"]], low[:, self.at["ep"]]
            lows = {name: low[:, i].astype(float) for name, i in self.at.items()}
            highs = {name: np.maximum(high[:, i], 1).astype(float) for name, i in self.at.items()}
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
            low[:, self.at[d]] = -(-low[:, self.at[d]] // step) * step
            high[:, self.at[d]] = high[:, self.at[d]] // step * step
        left = np.flatnonzero((low <= high).all(axis=1))
        return Boxes(low[left], high[left]), left

    def valid(self, points: np.ndarray) -> np.ndarray:
        """Which whole-number designs (design, coordinate) are ones of the lattice."""
        if not len(points):
            return np.zeros(0, bool)
        boxes = Boxes(points.astype(np.int64), points.astype(np.int64))
        t, ep, p, v, b, d, m, g, *_ = boxes.low.T
        chips, batch, domain = self.range("chips"), self.range("global_batch_sequences"), self.range("scale_up_domain")

        fits = inside(t * p * self.context * d, chips) & inside(d * b * m, batch) & inside(t * g, domain)
        for name in _PLAN_VALUES:
            fits &= inside(self.column(boxes, name)[0], self.range(name))
        schedule = (p * v <= self.layers + 2) & ((v == 1) | ((m >= p) & (p > 1)))
        return fits & schedule & (d % self.replica_step(t, ep) == 0)

    def values(self, algebra: Algebra, boxes: Boxes) -> tuple[dict[str, Signomial], dict[str, Signomial]]:
        """The problem's variables over boxes, and the constraints (not above 1) that tie the whole ones together."""
        atoms = self.atoms(algebra, boxes)
        times, over = algebra.times, algebra.over
        t, p, b, d, m = (atoms[name] for name in ("tp", "pp", "micro_batch", "dp", "micro_batches"))
        v = atoms["virtual_stages"]
        chips = times(times(times(t, p), number(float(self.context))), d)
        batch = times(times(d, b), m)
        domain = times(t, atoms["groups"])
        made = {name: atoms[name] for name in _PLAN_VALUES}
        made |= {"chips": chips, "global_batch_sequences": batch, "scale_up_domain": domain}
        stages, chunks = self.column(boxes, "pp"), self.column(boxes, "virtual_stages")
        for name, table in zip(("fullest_stage", "last_stage"), self._stages, strict=True):
            made[name] = self.over_box(algebra, name, table, stages, chunks)
        for each in self.problem.variables:
            if each.name not in made:
                made[each.name] = algebra.variable(each.name, each.lower, each.upper)
        interleaved = number((self.column(boxes, "virtual_stages")[0] > 1).astype(float))
        ties = {"order": times(interleaved, over(p, m)), "chunks": over(times(p, v), number(self.layers + 2.0))}
        for name, value in (("chips", chips), ("global_batch_sequences", batch), ("scale_up_domain", domain)):
            low, high = self.range(name)
            slack = SLIP if high > 1.001 * low else FIXED_SLACK
            ties |= {f"least {name}": over(number(low * (1 - slack)), value)}
            ties |= {f"most {name}": over(value, number(high * (1 + slack)))}
        names = {each.name for each in self.problem.variables}
        return {n: x for n, x in made.items() if n in names}, {n: x for n, x in ties.items() if x.constant is None}

    def rounded(self, box: Boxes, relaxed: np.ndarray) -> list[Boxes]:
        """Boxes with all but replicas and micro-batches at whole numbers next to a relaxed point."""
        p, v, n, g = (self.at[name] for name in ("pp", "virtual_stages", "chips_per_rack", "groups"))
        shape = [column for name, column in self.at.items() if name not in self.COUNTS]
        point = np.clip(np.round(relaxed), box.low, box.high).astype(np.int64)
        made = []
        near = [{c: side(relaxed[c])} for c in (n, g) for side in (math.floor, math.ceil)]
        for change in ({}, *near):
            low, high = box.low.copy(), box.high.copy()
            low[shape] = high[shape] = point[shape]
            for column, value in change.items():
                low[column] = high[column] = np.clip(value, box.low[column], box.high[column])
            chunks = 1 if low[p] == 1 else min(int(low[v]), (self.layers + 2) // int(low[p]))
            if chunks >= box.low[v]:
                low[v] = high[v] = chunks
                made.append(Boxes(low[None], high[None]))
        return made

    def counted(self, box: Boxes, relaxed: np.ndarray) -> list[np.ndarray]:
        """Whole numbers of replicas and micro-batches around a relaxed point, batches as full as they may be."""
        t, e, b, d, m = (self.at[name] for name in ("tp", "ep", "micro_batch", "dp", "micro_batches"))
        step = int(self.replica_step(box.low[t], box.low[e]))
        most = self.range("global_batch_sequences")[1] * (1 + SLIP) / box.low[b]
        made = []
        for count in {math.floor(relaxed[m]), math.ceil(relaxed[m]), round(relaxed[m]) + 1}:
            if count < 1:
                continue
            fullest = int(most // count) // step * step
            near = [math.floor(relaxed[d] / step) * step + k * step for k in range(-1, 4)]
            for replicas in {fullest, fullest - step, *near}:
                if replicas >= 1:
                    point = box.low.copy()
                    point[d], point[m] = replicas, count
                    made.append(point)
        return made

    def count(self) -> float:
        """Whole-number designs of the lattice."""
        roots = self.roots()
        chips, batch = self.range("chips"), self.range("global_batch_sequences")
        total = 0.0
        for low, high in zip(roots.low, roots.high, strict=True):
            a, b = dict(zip(self.COORDINATES, low, strict=True)), dict(zip(self.COORDINATES, high, strict=True))
            step = int(self.replica_step(a["tp"], a["ep"]))
            d = np.arange(a["dp"], b["dp"] + 1, step)[:, None]
            sizes = np.arange(a["micro_batch"], b["micro_batch"] + 1)[None, :]
            least = np.maximum(1, np.ceil(batch[0] / (d * sizes) * (1 - SLIP)))
            most = np.floor(batch[1] / (d * sizes) * (1 + SLIP))
            plans = 0.0
            for p in range(int(a["pp"]), int(b["pp"]) + 1):
                n = a["tp"] * self.context * p * d
                inside = (n >= chips[0] * (1 - SLIP)) & (n <= chips[1] * (1 + SLIP))
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
        known = {*Lattice.COORDINATES, "chips", "global_batch_sequences", "scale_up_domain"}
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
        at = dict(zip(self.COORDINATES, (int(x) for x in point), strict=True))
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
