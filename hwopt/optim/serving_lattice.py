"""What a machine that serves counts in whole numbers: replicas of one or of two groups of chips, their plans and batches.

Coordinates are degrees, batches and replicas themselves, and groups g of tensor-parallel ranks in a scale-up domain,
`domain = t g`. The chips are those of the replicas. A machine of one group has its prefill coordinates at 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from hwopt.convex.signomial import Algebra, Signomial, number
from hwopt.design.problem import Problem
from hwopt.design.variables import Design
from hwopt.optim.boxes import FIXED_SLACK, SLIP, Boxes, DesignLattice, inside
from hwopt.optim.whole_plans import divisors
from hwopt.plan import Disaggregated, stage_layers

_SAMPLED_STAGES = (1, 2, 4, 8)
_NEAR_ROOTS = 9


@dataclass(frozen=True)
class ServingLattice(DesignLattice):
    """The whole-number designs of a question about serving."""

    COORDINATES: ClassVar[tuple[str, ...]] = (
        "tp", "ep", "pp", "batch", "replicas", "groups", "chips_per_rack", "hbm_stacks", "dies",
        "prefill_tp", "prefill_ep", "prefill_pp", "prefill_batch", "prefill_replicas",
    )  # fmt: skip
    GAINS: ClassVar[tuple[float, ...]] = (0.1, 0.1, 0.1, 0.3, 0.02, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)
    COUNTS: ClassVar[tuple[str, ...]] = ("batch", "replicas", "prefill_replicas")

    @cached_property
    def apart(self) -> bool:
        """Whether prompts have chips of their own."""
        return isinstance(self.problem.template.plan, Disaggregated)

    def held(self, name: str) -> float:
        """What the template holds of a whole number that is not free."""
        _, cluster, plan, project = self.problem.template
        if name.startswith("prefill_") and not self.apart:
            return 1.0
        group, plain = (plan.prefill, name.removeprefix("prefill_")) if name.startswith("prefill_") else (plan, name)
        if self.apart and group is plan:
            group = plan.decode
        values = {
            "chips_per_rack": cluster.rack.chips, "scale_up_domain": cluster.network.size[0],
            "hbm_stacks": project.design.hbm_stacks if project else 1.0, "dies": project.design.dies if project else 1.0,
        }  # fmt: skip
        fields = {"batch": "micro_batch", "replicas": "dp"}
        return float(values[name] if name in values else getattr(group, fields.get(plain, plain)))

    def _degrees(self, prefix: str) -> Iterator[tuple[int, int]]:
        """(tp, ep) of a group: whole heads a chip, whole experts a rank."""
        model = self.problem.template.workload.model
        heads, experts = round(float(model.heads)), max(1, round(float(model.experts)))
        if prefix and not self.apart:
            return iter([(1, 1)])
        (low_t, high_t), (low_e, high_e) = self.whole(prefix + "tp"), self.whole(prefix + "ep")
        tps = [t for t in divisors(heads) if low_t <= t <= high_t]
        return itertools.product(tps, [e for e in divisors(experts) if low_e <= e <= high_e])

    def roots(self) -> Boxes:
        """Boxes that together hold all designs: one for each choice of tensor and expert parallel degrees."""
        domain = self.range("scale_up_domain")
        shared = ("chips_per_rack", "hbm_stacks", "dies") if self.prefix else ()
        same = {name: (1, 1) if name in shared else self.whole(name) for name in self.COORDINATES if name != "groups"}
        low, high = [], []
        for (t, e), (pt, pe) in itertools.product(self._degrees(""), self._degrees("prefill_")):
            groups = (max(1, math.ceil(domain[0] / t * (1 - SLIP))), math.floor(domain[1] / t * (1 + SLIP)))
            if self.prefix:  # another machine's domain
                groups = (1, 1)
            fixed = {"tp": t, "ep": e, "prefill_tp": pt, "prefill_ep": pe}
            corners = same | {name: (value, value) for name, value in fixed.items()} | {"groups": groups}
            low.append([corners[name][0] for name in self.COORDINATES])
            high.append([corners[name][1] for name in self.COORDINATES])
        ends = (np.asarray(each, np.int64).reshape(-1, len(self.COORDINATES)) for each in (low, high))
        return self.shrunk(Boxes(*ends))[0]

    def samples(self) -> Boxes:
        """Boxes of few stages, prompts one at a time; not all designs."""
        roots = self.roots()
        made = []
        for low, high in zip(roots.low, roots.high, strict=True):
            for stages in _SAMPLED_STAGES:
                one_low, one_high = low.copy(), high.copy()
                for name, value in (("pp", stages), ("prefill_pp", 1), ("prefill_batch", 1)):
                    one_low[self.at[name]] = max(low[self.at[name]], value)
                    one_high[self.at[name]] = min(high[self.at[name]], value)
                made.append((one_low, one_high))
        if not made:
            return roots
        return self.shrunk(Boxes(*(np.unique(np.stack(made), axis=0).transpose(1, 0, 2))))[0]

    @staticmethod
    def _step(t: np.ndarray, ep: np.ndarray) -> np.ndarray:
        """What replicas are multiples of: whole sets of experts."""
        return ep // np.gcd(ep, t)

    def shrunk(self, boxes: Boxes) -> tuple[Boxes, np.ndarray]:
        """Boxes with replicas at whole sets of experts and no more stages than layers; empty ones left out."""
        low, high = boxes.low.copy(), boxes.high.copy()
        for prefix in ("", "prefill_"):
            t, e, p, d = (self.at[prefix + name] for name in ("tp", "ep", "pp", "replicas"))
            high[:, p] = np.minimum(high[:, p], self.layers + 2)
            step = self._step(low[:, t], low[:, e])
            low[:, d] = -(-low[:, d] // step) * step
            high[:, d] = high[:, d] // step * step
        left = np.flatnonzero((low <= high).all(axis=1))
        return Boxes(low[left], high[left]), left

    def valid(self, points: np.ndarray) -> np.ndarray:
        """Which whole-number designs (design, coordinate) are ones of the lattice."""
        if not len(points):
            return np.zeros(0, bool)
        boxes = Boxes(points.astype(np.int64), points.astype(np.int64))
        value = {name: boxes.low[:, column] for name, column in self.at.items()}
        fits = np.ones(len(points), bool)
        if not self.prefix:
            fits &= inside(value["tp"] * value["groups"], self.range("scale_up_domain"))
        for name in self.COORDINATES:
            if name != "groups" and (name in self.variables or not self.prefix):
                fits &= inside(value[name], self.range(name))
        heads, experts = (round(float(getattr(self.problem.template.workload.model, n))) for n in ("heads", "experts"))
        for prefix in ("", "prefill_"):
            fits &= (heads % value[prefix + "tp"] == 0) & (max(experts, 1) % value[prefix + "ep"] == 0)
            step = self._step(value[prefix + "tp"], value[prefix + "ep"])
            fits &= (value[prefix + "replicas"] % step == 0) & (value[prefix + "pp"] <= self.layers + 2)
        return fits

    def values(self, algebra: Algebra, boxes: Boxes) -> tuple[dict[str, Signomial], dict[str, Signomial]]:
        """The problem's variables over boxes, and the constraints (not above 1) that tie the whole ones together."""
        made = self.atoms(algebra, boxes)
        domain = algebra.times(made["tp"], made.pop("groups"))
        made["scale_up_domain"] = domain
        most = max(self.whole("pp")[1], self.whole("prefill_pp")[1])
        one = np.ones(len(boxes), np.int64)
        tables = self.stage_table(min(most, self.layers + 2), 1)
        for prefix in ("", "prefill_"):
            for name, table in zip(("fullest_stage", "last_stage"), tables, strict=True):
                made[prefix + name] = self.over_box(
                    algebra, prefix + name, table, self.column(boxes, prefix + "pp"), (one, one)
                )
        for each in self.problem.variables:
            if each.name not in made:
                made[each.name] = algebra.variable(each.name, each.lower, each.upper)
        held = {n: x for n, x in made.items() if n in self.variables}
        if self.prefix:
            return held, {}
        low, high = self.range("scale_up_domain")
        slack = SLIP if high > 1.001 * low else FIXED_SLACK
        ties = {
            "least scale_up_domain": algebra.over(number(low * (1 - slack)), domain),
            "most scale_up_domain": algebra.over(domain, number(high * (1 + slack))),
        }
        return held, {n: x for n, x in ties.items() if x.constant is None}

    def rounded(self, box: Boxes, relaxed: np.ndarray) -> list[Boxes]:
        """Boxes with all but batch and replicas at whole numbers next to a relaxed point."""
        shape = [column for name, column in self.at.items() if name not in self.COUNTS]
        point = np.clip(np.round(relaxed), box.low, box.high).astype(np.int64)
        sides = [
            {self.at[name]: side(relaxed[self.at[name]])}
            for name in ("groups", "chips_per_rack")
            for side in (math.floor, math.ceil)
        ]
        made = []
        for change in ({}, *sides):
            low, high = box.low.copy(), box.high.copy()
            low[shape] = high[shape] = point[shape]
            for column, value in change.items():
                low[column] = high[column] = np.clip(value, box.low[column], box.high[column])
            made.append(Boxes(low[None], high[None]))
        return made

    def counted(self, box: Boxes, relaxed: np.ndarray) -> list[np.ndarray]:
        """Whole batches and replicas around a relaxed point."""
        choices = []
        for prefix, name in (("", "batch"), ("", "replicas"), ("prefill_", "replicas")):
            column = self.at[prefix + name]
            step = 1
            if name == "replicas":
                step = int(self._step(box.low[self.at[prefix + "tp"]], box.low[self.at[prefix + "ep"]]))
            near = math.floor(relaxed[column] / step) * step
            wanted = {np.clip(near + k * step, box.low[column], box.high[column]) for k in (0, 1)}
            choices.append([(column, int(value)) for value in sorted(wanted)])
        made = []
        for choice in itertools.product(*choices):
            point = box.low.copy()
            for column, value in choice:
                point[column] = value
            made.append(point)
        return made

    def near(self, relaxed: Mapping[str, float]) -> list[dict[str, float]]:
        """Whole-number designs around a relaxed one, those with the nearest degrees. **Arguments:** values by variable."""
        roots = self.roots()
        wanted = {name: relaxed.get(name, self.range(name)[0]) for name in self.COORDINATES if name != "groups"}
        degrees = [name for name in self.COORDINATES if name.endswith(("tp", "ep"))]
        apart = sum(abs(np.log(self.column(roots, name)[0] / wanted[name])) for name in degrees)
        found: dict[tuple, np.ndarray] = {}
        for i in np.argsort(apart, kind="stable")[:_NEAR_ROOTS]:
            wanted["groups"] = relaxed.get("scale_up_domain", self.range("scale_up_domain")[0]) / roots.low[i][0]
            at = np.array([wanted[name] for name in self.COORDINATES])
            for shape in self.rounded(roots[i], at):
                points = self.counted(shape[0], at)
                found |= {tuple(point): point for point in points}
        points = np.stack(list(found.values())) if found else np.zeros((0, len(self.COORDINATES)), np.int64)
        return [self.design(point) for point in points[self.valid(points)]]

    def count(self) -> float:
        """Whole-number designs of the lattice."""
        total = 0.0
        roots = self.roots()
        for low, high in zip(roots.low, roots.high, strict=True):
            sizes = dict(zip(self.COORDINATES, (high - low + 1).astype(float), strict=True))
            for prefix in ("", "prefill_"):
                t, e, d = (self.at[prefix + name] for name in ("tp", "ep", "replicas"))
                sizes[prefix + "replicas"] = (high[d] - low[d]) // int(self._step(low[t], low[e])) + 1
            total += math.prod(sizes.values())
        return total

    def says(self) -> str:
        """What the lattice covers, in words."""
        words = {
            "tp": "tensor parallel degrees that divide the heads", "ep": "expert parallel degrees that divide the experts",
            "pp": "any number of stages, uneven ones too", "batch": "sequences a replica", "replicas": "replicas",
            "prefill_tp": "the same of the chips for prompts", "scale_up_domain": "domains of whole groups",
            "chips_per_rack": "chips in a rack", "hbm_stacks": "HBM stacks", "dies": "dies",
        }  # fmt: skip
        free = [text for name, text in words.items() if self.range(name)[0] < self.range(name)[1]]
        kind = "prompts on chips of their own" if self.apart else "prompts beside answers"
        return f"{', '.join(free) or 'one'}; {kind}; the rest continuous"

    @staticmethod
    def covers(problem: Problem) -> str:
        """Why a question has no lattice of this kind; empty where it has one."""
        known = {*ServingLattice.COORDINATES, "scale_up_domain"}
        strange = [each.name for each in problem.variables if each.whole and each.name not in known]
        return f"whole-number variables {', '.join(strange)} are not branched on" if strange else ""

    def point(self, design: Design) -> np.ndarray:
        """Whole numbers of a design, the inverse of `design`."""
        _, cluster, plan, project = design
        decode = plan.decode if self.apart else plan
        held = [
            decode.tp, decode.ep, decode.pp, decode.micro_batch, decode.dp, cluster.network.size[0] / decode.tp,
            cluster.rack.chips, project.design.hbm_stacks if project else 1.0, project.design.dies if project else 1.0,
        ]  # fmt: skip
        prefill = plan.prefill if self.apart else None
        held += [prefill.tp, prefill.ep, prefill.pp, prefill.micro_batch, prefill.dp] if prefill else [1.0] * 5
        return np.array([round(float(value)) for value in held], np.int64)

    def design(self, point: np.ndarray) -> dict[str, float]:
        """Values of the problem's whole variables at a point of the lattice."""
        made = {name: float(value) for name, value in zip(self.COORDINATES, point, strict=True)}
        made["scale_up_domain"] = made["tp"] * made.pop("groups")
        for prefix in ("", "prefill_"):
            stages = stage_layers(self.layers, round(made[prefix + "pp"]), 1)
            made |= dict(zip((prefix + "fullest_stage", prefix + "last_stage"), stages, strict=True))
        return {name: value for name, value in made.items() if name in self.variables}
