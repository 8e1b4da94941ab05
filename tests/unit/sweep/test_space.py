"""Points of the cube become designs that can be built: in their box, on the lattice, and as the question means them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.design.lattices import lattice_of
from hwopt.errors import UserError
from hwopt.plan import stage_layers
from hwopt.sweeps.samplers import Sobol
from hwopt.sweeps.space import Space
from objectives.loss_under_budget import LossUnderBudget
from objectives.train_cost import TrainCost
from tests.tiers import turn

QUESTIONS = {
    "dense": lambda: TrainCost().problem().continuous,
    "dense, narrowed": lambda: (
        TrainCost()
        .problem()
        .continuous.narrowed(
            {"chips": (8192.0, 9000.0), "tp": (8.0, 16.0), "pp": (7.0, 19.0), "virtual_stages": (2.0, 7.0)}
        )
    ),
    "dense, frozen": lambda: TrainCost().problem().continuous.frozen(["chip", "network", "chips"]),
    "dense, one design": lambda: (
        TrainCost(workload="llama3.1-8b", global_batch=512.0)
        .problem()
        .continuous.narrowed(
            {"chips": (512.0, 512.0), "pp": (1.0, 1.0), "virtual_stages": (1.0, 1.0), "micro_batch": (1.0, 1.0)}
        )
    ),
    "experts": lambda: TrainCost(workload="mixtral-8x7b", global_batch=512.0).problem().continuous,
    "many experts": lambda: TrainCost(workload="deepseek-v3", global_batch=4096.0).problem().continuous,
    "many experts, narrowed": lambda: (
        TrainCost(workload="deepseek-v3", global_batch=4096.0)
        .problem()
        .continuous.narrowed({"ep": (16.0, 64.0), "tp": (1.0, 8.0), "chips": (2000.0, 2100.0)})
    ),
    "drawn chip": lambda: TrainCost(design="h100-sxm").problem().continuous,
}
COUNT = 4096


@pytest.fixture(scope="module")
def problems():
    return {name: make() for name, make in QUESTIONS.items()}


def cube(space, count=COUNT, seed=0, kind=np.float32):
    rng = np.random.default_rng(seed)
    # The ends of the cube as well.
    made = rng.uniform(size=(len(space.coordinates), count)).astype(kind)
    made[:, 0], made[:, 1] = 0.0, np.nextafter(kind(1), kind(0))
    return dict(zip(space.coordinates, jnp.asarray(made), strict=True))


def drawn(problem, seed=0, kind=np.float32):
    """Designs of random points, a float64 column for each variable, and how far outside they are."""
    space = Space(problem)
    with jax.enable_x64(kind == np.float64):
        columns = space.drawn(cube(space, COUNT, seed, kind))
        outside = np.broadcast_to(np.asarray(space.outside(columns)), (COUNT,))
        return {name: np.broadcast_to(np.asarray(x, np.float64), (COUNT,)) for name, x in columns.items()}, outside


def points(problem, columns):
    """Integers of designs, as the lattice lists them; and how far the numbers are from them."""
    lattice = lattice_of(problem)

    def get(name):
        if name in columns:
            return columns[name]
        held = lattice.quantities[name].low if name in lattice.quantities else lattice.by_name[name].lower
        return np.full(COUNT, float(held))

    t, p, b = get("tp"), get("pp"), get("micro_batch")
    d = get("chips") / (t * p * get("cp"))
    counts = {"dp": d, "micro_batches": get("global_batch_sequences") / (d * b), "groups": get("scale_up_domain") / t}
    exact = np.stack([counts[name] if name in counts else get(name) for name in lattice.names], axis=1)
    return np.round(exact).astype(np.int64), np.abs(exact - np.round(exact)).max(axis=1)


def in_both(names):
    """Each with one kind of numbers by default, in turn, with the other in the search tier."""
    for place, name in enumerate(names):
        for number, kind in enumerate((np.float32, np.float64)):
            marks = () if (place + number + turn()) % 2 else pytest.mark.search
            yield pytest.param(name, kind, marks=marks, id=f"{name}-{kind.__name__}")


@pytest.mark.parametrize(("name", "kind"), list(in_both(QUESTIONS)))
def test_designs_inside_are_on_the_lattice_and_in_the_box(problems, name, kind):
    problem = problems[name]
    columns, outside = drawn(problem, kind=kind)
    lattice, inside = lattice_of(problem), outside == 0
    # A held domain leaves few degrees, a held count of chips few stages: the rest is kept and marked.
    assert inside.mean() > (0.02 if "narrowed" in name or "frozen" in name else 0.3)
    held, error = points(problem, columns)
    assert error[inside].max() < 1e-4
    slack = 1e-6 if kind == np.float32 else 1e-9
    for each in problem.variables:
        if each.category != "lookup":
            x = columns[each.name][inside]
            assert (x >= each.lower * (1 - 1.1e-6)).all() and (x <= each.upper * (1 + 1.1e-6)).all()
            if each.integer:
                np.testing.assert_allclose(x / each.step, np.round(x / each.step), rtol=slack)
    assert lattice.valid(held[inside]).all()
    model = problem.template.workload.model
    assert (round(float(model.heads)) % held[inside, lattice.at["tp"]] == 0).all()
    assert (max(1, round(float(model.experts))) % held[inside, lattice.at["ep"]] == 0).all()


@pytest.mark.parametrize("name", QUESTIONS)
def test_designs_outside_are_not_on_the_lattice(problems, name):
    """What is marked is marked for a reason."""
    columns, outside = drawn(problems[name], 1)
    lattice, wrong = lattice_of(problems[name]), np.flatnonzero(outside > 0)
    held, error = points(problems[name], columns)
    for row in wrong[:500]:
        beyond = any(
            not each.lower * (1 - 1e-7) <= columns[each.name][row] <= each.upper * (1 + 1e-7)
            for each in problems[name].variables
            if each.category != "lookup"
        )
        assert beyond or error[row] > 1e-4 or not lattice.valid(held[row : row + 1])[0]


@pytest.mark.parametrize("name", QUESTIONS)
def test_stages_are_filled_as_the_plan_says(problems, name):
    columns, _ = drawn(problems[name])
    layers = round(float(problems[name].template.workload.model.layers))
    for row in range(0, COUNT, 9):
        wanted = stage_layers(layers, int(columns["pp"][row]), int(columns["virtual_stages"][row]))
        found = columns["fullest_stage"][row], columns["last_stage"][row]
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_stages_of_every_count():
    problem = TrainCost().problem().continuous
    space = Space(problem)
    pairs = np.array([(p, v) for p in range(1, 129) for v in range(1, 17) if p * v <= 128], float)
    given = {name: jnp.asarray(space.variables[name].lower) for name in space.variables}
    columns = space.as_listed(given | {"pp": jnp.asarray(pairs[:, 0]), "virtual_stages": jnp.asarray(pairs[:, 1])})
    wanted = np.array([stage_layers(126, int(p), int(v)) for p, v in pairs])
    np.testing.assert_allclose(columns["fullest_stage"], wanted[:, 0], rtol=1e-6)
    np.testing.assert_allclose(columns["last_stage"], wanted[:, 1], rtol=1e-6)


def test_what_is_frozen_stays(problems):
    columns, outside = drawn(problems["dense, frozen"])
    for each in problems["dense, frozen"].variables:
        if each.category == "chip" or each.category == "network":
            held = columns[each.name][outside == 0]
            if each.least_frozen is None:
                np.testing.assert_allclose(held, each.lower, rtol=1e-6)
            else:  # a frozen clock is the most that the chip runs at
                assert (held <= each.upper * (1 + 1e-6)).all()


def test_continuous_variables_are_log_uniform(problems):
    problem = problems["dense"]
    columns, _ = drawn(problem)
    for each in problem.variables:
        if not each.integer and each.category != "lookup":
            at = np.log(columns[each.name] / each.lower) / np.log(each.upper / each.lower)
            np.testing.assert_allclose(
                np.quantile(at, [0.1, 0.25, 0.5, 0.75, 0.9]), [0.1, 0.25, 0.5, 0.75, 0.9], atol=0.03
            )


def test_counts_are_about_log_uniform_and_degrees_as_likely(problems):
    problem, space = problems["dense"], Space(problems["dense"])
    names = space.coordinates
    sampler = Sobol(names, 1 << 14, 0)
    tables, starts = jnp.asarray(sampler.tables(1 << 14)), jnp.asarray(sampler.starts(np.array([0]), 1 << 14))
    columns = space.drawn(dict(zip(names, sampler.columns(tables, starts, np.dtype(np.float32)), strict=True)))
    degrees, counts = np.unique(np.asarray(columns["tp"]), return_counts=True)
    assert degrees.tolist() == [1, 2, 4, 8, 16, 32, 64]  # of 128 heads
    np.testing.assert_allclose(counts / (1 << 14), 1 / 7, atol=1e-3)
    b = np.asarray(columns["micro_batch"])
    shares = [np.log((k + 1) / k) / np.log(9) for k in range(1, 9)]
    np.testing.assert_allclose([(b == k).mean() for k in range(1, 9)], shares, atol=2e-3)
    assert abs(np.median(np.log(columns["chips"])) - np.log(64 * 4e5) / 2) < 1.0
    assert problem.variables[0].name == "chips"


@pytest.mark.parametrize("name", QUESTIONS)
def test_nearest_leaves_valid_designs_as_they_are(problems, name):
    space = Space(problems[name])
    columns, outside = drawn(problems[name], 2)
    inside = outside == 0
    held = {n: jnp.asarray(x, jnp.float32) for n, x in columns.items() if n in space.variables}
    again = space.nearest(held)
    for variable, x in held.items():
        found = np.broadcast_to(again[variable], COUNT)
        np.testing.assert_array_equal(found[inside], np.asarray(x)[inside], variable)


def test_nearest_rounds_what_is_near(problems):
    space = Space(problems["dense"])
    wanted = {name: each.lower for name, each in space.variables.items()}
    wanted |= {"tp": 7.0, "pp": 15.6, "virtual_stages": 2.2, "chips": 16000.0, "global_batch_sequences": 2048.0}
    wanted |= {"micro_batch": 1.0, "scale_up_domain": 71.0, "chips_per_rack": 31.6}
    found = space.nearest({name: jnp.asarray([x], jnp.float32) for name, x in wanted.items()})
    # 125 replicas of 128 chips; 16 micro-batches of each.
    expected = {"tp": 8, "pp": 16, "chips": 16000, "global_batch_sequences": 2000, "scale_up_domain": 72}
    expected |= {"virtual_stages": 2, "micro_batch": 1, "chips_per_rack": 32}
    assert {name: float(np.ravel(found[name])[0]) for name in expected} == expected
    assert float(np.max(space.outside(found))) == 0.0


BROKEN = {
    "tp": 3.0, "pp": 2.5, "virtual_stages": 1.5, "chips": 16384.0 - 64.0, "global_batch_sequences": 2047.0,
    "scale_up_domain": 12.0, "chips_per_rack": 8.5, "micro_batch": 3.0,
}  # fmt: skip
GIVEN = {
    "tp": 8.0, "pp": 16.0, "virtual_stages": 1.0, "chips": 16384.0, "global_batch_sequences": 2048.0,
    "scale_up_domain": 8.0, "chips_per_rack": 8.0, "micro_batch": 1.0,
}  # fmt: skip


def as_listed(space, changed):
    values = {name: each.lower for name, each in space.variables.items()} | GIVEN | changed
    columns = space.as_listed({name: jnp.asarray([x], jnp.float32) for name, x in values.items()})
    return columns, float(np.max(space.outside(columns)))


def test_what_is_given_stays_and_is_inside(problems):
    columns, outside = as_listed(Space(problems["dense"]), {})
    assert outside == 0.0
    assert all(float(np.ravel(columns[name])[0]) == x for name, x in GIVEN.items())


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_built_is_marked(problems, name):
    _, outside = as_listed(Space(problems["dense"]), {name: BROKEN[name]})
    assert outside >= 1.0


@pytest.mark.parametrize("changed, beyond", [({"chips": 2**19, "global_batch_sequences": 4096.0}, 4096 / 2150.4)])
def test_how_far_outside_the_box(problems, changed, beyond):
    _, outside = as_listed(
        Space(problems["dense"]), {"chips": 409600.0, "tp": 64.0, "scale_up_domain": 64.0, "pp": 50.0}
    )
    assert outside == 1.0 or outside == pytest.approx(np.log(409600 / 4e5), rel=1e-3)
    _, outside = as_listed(Space(problems["dense"]), changed)
    assert outside == pytest.approx(np.log(beyond), rel=1e-3)


@pytest.mark.parametrize("ep, replicas, fits", [(8.0, 8, True), (8.0, 4, False), (4.0, 4, True), (3.0, 6, False)])
def test_replicas_hold_whole_sets_of_experts(ep, replicas, fits):
    space = Space(TrainCost(workload="mixtral-8x7b", global_batch=512.0).problem().continuous)
    held = {"tp": 1.0, "pp": 16.0, "chips": 16.0 * replicas, "ep": ep, "global_batch_sequences": 512.0}
    if replicas == 6:
        held["global_batch_sequences"] = 510.0
    _, outside = as_listed(space, held)
    assert (outside == 0.0) is fits


def test_unknown_names_are_refused(problems):
    space = Space(problems["dense"])
    with pytest.raises(UserError, match="'chip' is not a variable of 'train_cost'") as caught:
        space.completed({"chip": [1.0]})
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="fullest_stage"):
        space.completed({"fullest_stage": [1.0]})
    assert space.completed({"tp": [2.0]})["chips"] == 16384.0


def test_boxes_without_a_divisor_are_refused():
    space = Space(TrainCost().problem().continuous.narrowed({"tp": (9.0, 15.0)}))
    with pytest.raises(UserError, match=r"no tp between 9 and 15 fits the model"):
        space.drawn(cube(space, 4))


def test_free_shapes_are_integers():
    """Layers and width of the model are variables: integers, width in steps, degrees powers of two."""
    problem = LossUnderBudget().problem().continuous
    space = Space(problem)
    columns, outside = drawn(problem)
    inside = outside == 0
    assert inside.mean() > 0.3
    assert (columns["layers"] % 1 == 0).all() and (columns["hidden"] % 2048 == 0).all()
    assert len(np.unique(columns["layers"])) > 100 and len(np.unique(columns["hidden"])) == 32
    assert set(np.unique(columns["tp"])) == {1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0}
    for row in np.flatnonzero(inside)[:300]:
        layers, p, v = (int(columns[name][row]) for name in ("layers", "pp", "virtual_stages"))
        assert p * v <= layers + 2
        found = columns["fullest_stage"][row], columns["last_stage"][row]
        np.testing.assert_allclose(found, stage_layers(layers, p, v), rtol=1e-6)
    held = {n: jnp.asarray(x, jnp.float32) for n, x in columns.items() if n in space.variables}
    again = space.nearest(held)
    for name, x in held.items():
        np.testing.assert_array_equal(np.broadcast_to(again[name], COUNT)[inside], np.asarray(x)[inside], name)


def test_random_boxes():
    """Narrow boxes of random places: whatever is inside is a design."""
    rng = np.random.default_rng(3)
    question = TrainCost(workload="mixtral-8x7b", global_batch=512.0).problem().continuous
    names = (
        "chips",
        "pp",
        "virtual_stages",
        "micro_batch",
        "scale_up_domain",
        "global_batch_sequences",
        "chips_per_rack",
    )
    found = 0
    for _ in range(12):
        boxes = {}
        for each in question.variables:
            if each.name in names and rng.uniform() < 0.6:
                ends = np.exp(np.sort(rng.uniform(np.log(each.lower), np.log(each.upper), 2)))
                boxes[each.name] = tuple(np.round(ends)) if rng.uniform() < 0.5 else tuple(ends)
                boxes[each.name] = tuple(np.clip(boxes[each.name], each.lower, each.upper))
        problem = question.narrowed(boxes)
        columns, outside = drawn(problem, 5)
        inside = outside == 0
        held, _ = points(problem, columns)
        found += inside.sum()
        valid = lattice_of(problem).valid(held[inside])
        assert valid.all(), (boxes, held[inside][~valid][0])
    assert found > 1000
