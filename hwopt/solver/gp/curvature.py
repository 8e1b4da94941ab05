"""Curvature of a JAX function in log-log space: is log f a convex function of log x?

If it is convex (concave), every local minimum (maximum) is global, and tangents of log f bound it. The analysis applies
the rules of disciplined geometric programming to the function's jaxpr. Terms that are added and later subtracted cancel
first. The rules cover products, powers with fixed exponents, sums, maxima, minima, exponentials and logarithms. Two sides
are checked:

    convex:   t >= f is a convex set of (log x, log t)
    concave:  t <= f is one

A function for which the rules prove neither side is reported as "neither", with the source lines that violate them. It
may still be convex.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from hwopt.errors import UserError
from hwopt.solver.gp.reader import Comparison, Logarithm, NotDGP, read
from hwopt.solver.gp.signomial import Algebra, AtomKind, Signomial, number
from hwopt.trace.source_info import author_frame


@dataclass(frozen=True)
class CurvatureReason:
    """Reason why one side is not proved, with its source location; `side` is "convex", "concave" or "both"."""

    side: str
    what: str
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line} ({self.function})" if self.file else "an unknown line"
        return f"{where}: {self.what}"


@dataclass(frozen=True)
class OutputCurvature:
    """Curvature of one output: "constant", "affine" (a monomial), "convex", "concave", "neither" or "unreadable"."""

    name: str
    curvature: str
    reasons: tuple[CurvatureReason, ...] = ()

    @property
    def convex(self) -> bool:
        """Whether log f is proved to be convex."""
        return self.curvature in ("constant", "affine", "convex")

    @property
    def concave(self) -> bool:
        """Whether log f is proved to be concave."""
        return self.curvature in ("constant", "affine", "concave")


@dataclass(frozen=True)
class Curvatures:
    """Curvatures of all outputs, in the order of their leaves; indexed by number or by name."""

    all: tuple[OutputCurvature, ...]

    def __iter__(self) -> Iterator[OutputCurvature]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, which: int | str) -> OutputCurvature:
        if isinstance(which, int):
            return self.all[which]
        return {each.name: each for each in self.all}[which]

    def __str__(self) -> str:
        return explain(self)


def curvature(function: Callable, *arguments: Any, box: dict[str, Any] | None = None) -> Curvatures:
    """Return the curvature of each scalar output of `function`, as log f of log x, for positive arguments.

    **Arguments:**

    - `function`: a function that JAX can trace.
    - `arguments`: pytrees. Floating arrays and Python numbers are variables, of which only the shapes matter; all other
      leaves are constants.
    - `box`: ranges of the variables, {"low": tree, "high": tree}, each one number for all or a tree prefix of the
      arguments. By default 0 and infinity, so that ranges decide nothing.

    **Returns:** a verdict for each element of each output. "convex" and "concave" are proved; "neither" only means not
    proved.

    **Raises:** `UserError` if a range is empty or contains numbers below zero.
    """
    leaves, tree = jax.tree.flatten(arguments)
    box = {"low": 0.0, "high": np.inf} | (box or {})
    ends = [_spread(box[side], arguments) for side in ("low", "high")]
    if any((low < 0).any() or not (low <= high).all() or np.isinf(low).any() for low, high in zip(*ends, strict=True)):
        raise UserError("box: every range must go from a number not below 0 to one not below that")
    varied = [i for i, leaf in enumerate(leaves) if _varies(leaf)]
    shapes = [jax.ShapeDtypeStruct(np.shape(leaves[i]), np.float64) for i in varied]
    paths: list[str] = []

    def flat(*values):
        filled = list(leaves)
        for i, value in zip(varied, values, strict=True):
            filled[i] = value
        outputs, _ = jax.tree_util.tree_flatten_with_path(function(*jax.tree.unflatten(tree, filled)))
        paths[:] = [jax.tree_util.keystr(path) for path, _ in outputs]
        return [leaf for _, leaf in outputs]

    with jax.enable_x64(True):
        jaxpr = jax.make_jaxpr(flat)(*shapes)
        verdicts: list[OutputCurvature] = []
        for index, (path, aval) in enumerate(zip(paths, jaxpr.out_avals, strict=True)):
            places = list(np.ndindex(aval.shape))
            names = [path + (f"[{', '.join(map(str, place))}]" if place else "") or "output" for place in places]
            algebra = Algebra(granting=False)
            values = [_variables(algebra, ends[0][i], ends[1][i]) for i in varied]
            try:
                output = read(jaxpr, values, algebra, [i == index for i in range(len(paths))])[index]
            except NotDGP as error:
                verdicts += [
                    OutputCurvature(name, "unreadable", (_reason("both", error.what, error.origin),)) for name in names
                ]
                continue
            verdicts += [
                _verdict(name, _element(output, place), algebra) for name, place in zip(names, places, strict=True)
            ]
    return Curvatures(tuple(verdicts))


def explain(verdicts: Curvatures) -> str:
    """Return the verdicts as lines of text: each output, followed by the reasons that break each side."""
    lines = []
    for each in verdicts:
        lines.append(f"{each.name}: {each.curvature}")
        for reason in each.reasons:
            of = "" if reason.side == "both" else f"not known to be {reason.side}: "
            lines.append(f"  {of}{reason}")
    return "\n".join(lines)


_NAMES = {kind: f"a {kind.value}" for kind in AtomKind} | {
    AtomKind.exponential: "an exponential",
    AtomKind.hull: "a choice",
}


def _varies(leaf: Any) -> bool:
    if isinstance(leaf, bool | np.bool_):
        return False
    return isinstance(leaf, int | float) or np.issubdtype(getattr(leaf, "dtype", bool), np.floating)


def _spread(end: Any, arguments: tuple) -> list[np.ndarray]:
    """Broadcast one end of the ranges to every leaf of the arguments, from a tree prefix."""
    spread = lambda value, leaf: np.broadcast_to(np.asarray(value, np.float64), np.shape(leaf) if _varies(leaf) else ())
    return jax.tree.leaves(jax.tree.map(lambda value, part: jax.tree.map(partial(spread, value), part), end, arguments))


def _variables(algebra: Algebra, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    result = np.empty(low.shape, object)
    for place in np.ndindex(low.shape):
        result[place] = algebra.variable("", low[place], high[place])
    return result


def _element(output: np.ndarray, place: tuple[int, ...]) -> Any:
    return number(output[(0, *place)]) if output.dtype != object else output[place]


def _reason(side: str, what: str, origin: Any) -> CurvatureReason:
    frame = author_frame(origin)
    return CurvatureReason(
        side, what, *((frame.file_name, frame.start_line, frame.function_name) if frame else ("", 0, ""))
    )


def _verdict(name: str, f: Any, algebra: Algebra) -> OutputCurvature:
    if isinstance(f, Logarithm):
        f = _logarithm(f, algebra)
    if f is None or isinstance(f, Comparison):
        what = "a truth value" if f is not None else "a logarithm of what may lie on either side of 1"
        return OutputCurvature(name, "neither", (_reason("both", what, algebra.origin),))
    if not algebra.positive(f):
        what = "zero everywhere" if not f.terms else "a value that may be negative or zero"
        return OutputCurvature(name, "neither", (_reason("both", what, f.difference or algebra.origin),))
    sides = {side: _Side(side, algebra, f) for side in ("convex", "concave")}
    proved = [side for side, checked in sides.items() if not checked.reasons]
    reasons = tuple(reason for checked in sides.values() for reason in checked.reasons.values())
    if f.constant is not None:
        return OutputCurvature(name, "constant" if proved else "neither", reasons)
    return OutputCurvature(name, {0: "neither", 1: proved[0] if proved else "", 2: "affine"}[len(proved)], reasons)


def _logarithm(f: Logarithm, algebra: Algebra) -> Signomial | None:
    """Convert an output that is a logarithm to a signomial; return None if it may be negative."""
    atom = algebra.logarithm(f.argument(algebra))
    return None if atom is None else algebra.plus(atom, number(f.shift))


class _Side:
    """Check of one side (convex or concave) of a function, with the reasons that break it.

    A quantity that should be small has the convex forms `t >= sum`, `t >= max` and `t >= exp`.
    """

    def __init__(self, side: str, algebra: Algebra, f: Signomial):
        self.side, self.algebra = side, algebra
        self.reasons: dict[str, CurvatureReason] = {}
        self._asked: set[tuple[int, bool]] = set()
        self.sum(f, side == "convex", algebra.origin)

    def broken(self, what: str, origin: Any) -> None:
        reason = _reason(self.side, what, origin)
        self.reasons.setdefault(str(reason), reason)

    def sum(self, e: Signomial, upper: bool, origin: Any) -> None:
        """Check a sum of terms.

        If the sum should be small (`upper`), all terms must be positive. If it should be large, exactly one term may be
        positive: `t + N <= P`.
        """
        if not all(np.isfinite(c).all() for c in e.terms.values()):
            self.broken("a number that is not finite", origin)
        taken = any((c < 0).any() for c in e.terms.values())
        if upper and taken:
            self.broken("a difference", e.difference or origin)
        if not upper and sum((c > 0).any() for c in e.terms.values()) != 1:
            self.broken("a sum that must be large", origin)
        for key, c in e.terms.items():
            larger = upper or bool((c < 0).any())  # terms that should be small
            for index, power in key:
                self.atom(index, larger == (power > 0))

    def atom(self, index: int, upper: bool) -> None:
        """Check a variable or nonlinear expression of the signomial that should be small (`upper`) or large."""
        if (index, upper) in self._asked:
            return
        self._asked.add((index, upper))
        atom = self.algebra.atoms[index]
        if not atom.positive:
            part = atom.parts[0].difference if atom.parts else None
            self.broken(f"{_NAMES[atom.kind]} that may be negative or zero", part or atom.origin)
        if atom.kind is AtomKind.variable:
            return
        convex = (
            (AtomKind.sum, AtomKind.maximum, AtomKind.exponential)
            if upper
            else (AtomKind.sum, AtomKind.minimum, AtomKind.logarithm)
        )
        if atom.kind not in convex:
            self.broken(f"{_NAMES[atom.kind]} that must be {'small' if upper else 'large'}", atom.origin)
            return
        for part in atom.parts:
            offset = atom.kind is AtomKind.exponential  # a constant summand of the exponent is only a factor
            self.sum(
                Signomial({k: c for k, c in part.terms.items() if k or not offset}, part.difference), upper, atom.origin
            )
