"""Interruptions and checkpoints: the interval is the best one, the loss behaves, its form is what is claimed."""

from __future__ import annotations

import math
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from hwopt import catalog
from hwopt.catalog.load import record
from hwopt.catalog.names import data_root, names
from hwopt.catalog.peripherals import reliability
from hwopt.errors import UserError
from hwopt.hardware.peripherals import Reliability
from hwopt.model.facility import reliability as model
from hwopt.model.numerics.maximum import hard_maximum, soft_maximum
from hwopt.solver.jit_options import quick_jit
from tests.in_numpy import in_numpy, once

FIELDS = tuple(Reliability.__dataclass_fields__)
RATE = 1.35e8  # of storage a chip, B/s
BOLTZMANN_EV = 8.617333e-5

# Spans of what a design may hold: chips, junction, bytes of a checkpoint, and the fields in their order.
SPANS = (
    (1.0, 1e6), (300.0, 380.0), (1e9, 1e14),
    (1e-8, 1e-5), (1e-11, 1e-8), (1e-10, 1e-7), (1e-11, 1e-8), (1e-10, 1e-7), (1e-10, 1e-7), (1e-10, 1e-7), (1e-11, 1e-8),
    (0.001, 0.1), (320.0, 360.0),
    (10.0, 3600.0), (1e9, 1e11), (0.1, 60.0), (1e7, 1e10),
)  # fmt: skip


def machine(
    held: Reliability, area=8e-4, stacks=5.0, ports=1.0, server=8.0, rack=16.0, loop=10.0
) -> types.SimpleNamespace:
    """What of a cluster fails: servers of eight chips, two to a rack, ten racks to a row, by default."""
    return types.SimpleNamespace(
        reliability=held,
        chip=types.SimpleNamespace(heat_area_m2=area, hbm_stacks=stacks),
        network=types.SimpleNamespace(
            bandwidth_bytes_per_s=np.array([1.0, ports, ports]),
            lane_bytes_per_s=np.array([1.0, 1.0]),
            switches_per_port=np.array([0.0, 3 / 64, 2 / 64]),
        ),
        cooling=types.SimpleNamespace(loop_racks=loop),
        rack=types.SimpleNamespace(server_chips=server, chips=rack),
    )


def mtbf_s(held: Reliability, chips, junction_k):
    return model.job_mtbf_s(model.interruptions(machine(held), chips, junction_k))


def random_points(n: int, seed: int = 0) -> np.ndarray:
    low, high = np.log(np.array(SPANS)).T
    return np.exp(np.random.default_rng(seed).uniform(low, high, (n, len(SPANS))))


def lost(x, maximum=hard_maximum):
    """The lost fraction of a design as one vector."""
    chips, junction, size, *rest, rate = x
    held = Reliability(*rest)
    save, drain = model.save_s(size, chips, held), model.drain_s(size, chips, rate)
    restart = held.restart_s + drain
    return model.lost_fraction(save, mtbf_s(held, chips, junction), drain, restart, maximum)


def stretched(x):
    """Logarithm of run time over useful time, which does not saturate."""
    chips, junction, size, *rest, rate = x
    held = Reliability(*rest)
    save, drain = model.save_s(size, chips, held), model.drain_s(size, chips, rate)
    mtbf = mtbf_s(held, chips, junction)
    interval = model.checkpoint_interval_s(save, mtbf, drain, hard_maximum)
    return model.log_multiplier_at(interval, save, mtbf, drain, held.restart_s + drain)


def daly(interval, save, restart, mtbf):
    """Time added by interruptions, as a renewal process gives it."""
    return mtbf * np.exp(restart / mtbf) * np.expm1((interval + save) / mtbf) / interval - 1.0


def assert_log_log_convex(function, points, tolerance=1e-9):
    """The Hessian of log f in the logarithms of its inputs has no negative eigenvalue."""
    matrices = in_numpy(jax.hessian(lambda y: jnp.log(function(jnp.exp(y)))))(np.log(points))
    assert np.isfinite(matrices).all()
    eigenvalues = np.linalg.eigvalsh(0.5 * (matrices + matrices.transpose(0, 2, 1)))
    assert (eigenvalues[:, 0] >= -tolerance * np.maximum(1.0, eigenvalues[:, -1])).all(), eigenvalues[:, 0].min()


def assert_convex_between(function, points):
    """Also across kinks: log f of the middle is not above the mean of the ends."""
    log_f = in_numpy(lambda y: jnp.log(function(jnp.exp(y))))
    a, b = np.split(np.log(points), 2)
    middle, ends = log_f(0.5 * (a + b)), 0.5 * (log_f(a) + log_f(b))
    assert (middle <= ends + 1e-9).all()


def assert_gradients(function, points, step=1e-5):
    """Elasticities equal central differences."""
    log_f = lambda y: jnp.log(function(jnp.exp(y)))
    y = np.log(points)
    exact, value = in_numpy(jax.grad(log_f))(y), in_numpy(log_f)
    for i in range(y.shape[1]):
        shift = step * np.eye(y.shape[1])[i]
        differences = (value(y + shift) - value(y - shift)) / (2 * step)
        np.testing.assert_allclose(exact[:, i], differences, rtol=1e-6, atol=1e-6)


def apart(points: np.ndarray) -> np.ndarray:
    """Points away from the kink where the drain binds."""
    with jax.enable_x64(True):

        def ratio(x):
            chips, junction, size, *rest, rate = x
            held = Reliability(*rest)
            mtbf = mtbf_s(held, chips, junction)
            best = model.checkpoint_interval_s(model.save_s(size, chips, held), mtbf, 0.0 * mtbf, hard_maximum)
            return jnp.log(best / model.drain_s(size, chips, rate))

        return points[np.abs(in_numpy(ratio)(points)) > 1e-3]


@pytest.mark.parametrize("name", names("reliability"))
def test_every_entry_loads(name):
    held = reliability(name)
    for field in FIELDS:
        part = getattr(held, field)
        assert isinstance(part, np.ndarray) and part.dtype == np.float64 and part.ndim == 0 and part >= 0


def test_an_unknown_fleet_and_an_unknown_machine_are_refused(tmp_path):
    with pytest.raises(UserError, match="did you mean"):
        reliability("fleet-men")
    good = (data_root() / "reliability" / "fleet-mean.toml").read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(good.replace('counted_on = "a100-80"', 'counted_on = "a1000"'), encoding="utf-8")
    with pytest.raises(UserError, match="a1000"):
        reliability(path)


def test_rate_at_the_reference_is_the_published_one_of_the_machine_it_was_counted_on():
    """And dies and stacks alone grow with heat, by 0.64 of Llama 3's causes. The machine is in air."""
    for name in names("reliability"):
        entry, held = record("reliability", name), reliability(name)
        split = entry if "causes.dies" in entry.quantities else record("reliability", "llama3-2024")
        over = entry.si("oversubscription", 1.0)
        counted = catalog.cluster(
            entry.text["counted_on"],
            1024,
            reliability=name,
            rack_chips=split.si("rack_chips"),
            cooling="air",
            oversubscription=over,
        )
        with jax.enable_x64(True):
            rates = [model.interruptions(counted, 1000.0, held.reference_junction_k + k) for k in (0.0, 10.0)]
            base, warmer = (np.array([float(rate) for rate in each]) for each in rates)
        assert base.sum() == pytest.approx(1000 * entry.si("failures"), rel=1e-12)
        counts = np.array([split.si(f"causes.{cause}") for cause in model.Interruptions._fields])
        np.testing.assert_allclose(base / base.sum(), counts / counts.sum(), rtol=1e-9)
        grown = np.where(np.arange(8) < 2, np.exp(10.0 * float(held.failure_growth_per_k)), 1.0)
        np.testing.assert_allclose(warmer, base * grown, rtol=1e-9)


def test_larger_packages_and_more_parts_fail_more_often():
    """Two dies and twice the stacks fail twice as often as one package; fewer servers, racks and ports less."""
    held = reliability()
    base = model.interruptions(machine(held), 1000.0, 343.15)
    double = model.interruptions(machine(held, area=16e-4, stacks=10.0), 1000.0, 343.15)
    assert float(double.dies / base.dies) == pytest.approx(2) and float(double.stacks / base.stacks) == pytest.approx(2)
    fewer = model.interruptions(machine(held, ports=0.5, server=16.0, rack=32.0), 1000.0, 343.15)
    for name in ("links", "switches", "hosts", "racks", "cooling"):
        assert float(getattr(fewer, name) / getattr(base, name)) == pytest.approx(0.5)
    assert float(fewer.software) == float(base.software)
    shared = model.interruptions(machine(held, loop=20.0), 1000.0, 343.15)
    assert float(shared.cooling / base.cooling) == pytest.approx(0.5) and float(shared.racks) == float(base.racks)


def test_the_line_through_arrhenius_lies_above_it():
    reference = float(reliability().reference_junction_k)
    growth = 0.7 / (BOLTZMANN_EV * reference**2)
    for celsius, most in ((50.0, 1.095), (90.0, 1.085)):
        kelvin = celsius + 273.15
        arrhenius = np.exp(0.7 / BOLTZMANN_EV * (1 / reference - 1 / kelvin))
        assert 1.0 <= np.exp(growth * (kelvin - reference)) / arrhenius < most


def test_the_interval_is_the_best_and_the_loss_that_of_a_renewal_process():
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        for _ in range(200):
            mtbf = 10 ** rng.uniform(2, 7)
            save, drain, restart = mtbf * 10.0 ** rng.uniform((-6, -6, -4), (1, 0, 0))
            interval = float(model.checkpoint_interval_s(save, mtbf, drain, hard_maximum))
            best = minimize_scalar(
                lambda y, s=save, m=mtbf, d=drain, r=restart: daly(np.exp(y), s, d + r, m),
                bounds=(np.log(drain), np.log(max(drain, interval)) + 3.0), method="bounded", options={"xatol": 1e-9},
            )  # fmt: skip
            assert interval >= drain * (1 - 1e-12)
            share = float(model.lost_fraction(save, mtbf, drain, restart, hard_maximum))
            assert 1.0 / (1.0 - share) - 1.0 <= best.fun * (1 + 1e-6) + 1e-12
            assert share == pytest.approx(
                1.0 - 1.0 / (1.0 + daly(interval, save, drain + restart, mtbf)), rel=1e-9, abs=1e-12
            )
            if interval > drain * (1 + 1e-6):
                assert interval == pytest.approx(np.exp(best.x), rel=1e-3)


def test_young_is_its_limit_where_a_save_is_short():
    with jax.enable_x64(True):
        for ratio in (1e-4, 1e-6, 1e-8):
            interval = float(model.checkpoint_interval_s(ratio, 1.0, 0.0, hard_maximum))
            assert interval == pytest.approx(np.sqrt(2 * ratio), rel=np.sqrt(ratio))


def test_the_product_of_series_is_the_multiplier():
    rng = np.random.default_rng(3)
    with jax.enable_x64(True):
        for _ in range(200):
            mtbf = 10 ** rng.uniform(2, 7)
            interval, save, drain, restart = mtbf * 10.0 ** rng.uniform(-5, 0.3, 4)
            one, other = (
                f(interval, save, mtbf, drain, restart) for f in (model.log_multiplier_at, model.multiplier_at)
            )
            if float(one) < np.log(model.MOST_MULTIPLIER):
                assert float(jnp.log(other)) == pytest.approx(float(one), rel=1e-8, abs=1e-12)


def test_worse_chips_more_of_them_and_slower_saves_lose_more():
    with jax.enable_x64(True):
        gradient = in_numpy(jax.grad(stretched))(random_points(500))
    names_of = ("chips", "junction", "bytes", *FIELDS, "storage")
    for name in (
        "junction",
        "bytes",
        "die_failures_per_m2_s",
        "host_failures_per_s",
        "restart_s",
        "snapshot_overhead_s",
    ):
        assert (gradient[:, names_of.index(name)] > 0).all(), name
    for name in ("snapshot_bandwidth_bytes_per_s", "storage"):
        assert (gradient[:, names_of.index(name)] < 0).all(), name


def test_more_chips_lose_more_where_the_save_is_all_overhead():
    held = reliability()
    with jax.enable_x64(True):
        chips = np.geomspace(100, 1e5, 20)
        shares = [float(lost(np.array([n, 343.15, 1e9, *(getattr(held, f) for f in FIELDS), RATE]))) for n in chips]
    assert (np.diff(shares) > 0).all()


def test_without_failures_nothing_is_lost():
    held = reliability()
    fields = [*(float(getattr(held, field)) for field in FIELDS), RATE]
    with jax.enable_x64(True):
        share = lost(np.array([1e4, 343.15, 1e12, *[1e-30] * 8, *fields[8:]]))
        assert float(model.goodput(share)) == pytest.approx(1.0, abs=1e-9)
        assert float(model.time_multiplier(share)) == pytest.approx(1.0, abs=1e-9)


def test_beyond_the_cap_numbers_stay_finite_and_the_margin_says_so():
    for share in (0.1, 0.949, 0.951, 2.0, 1e6, 1e30):
        value, slope = jax.value_and_grad(lambda x: model.time_multiplier(x))(jnp.float32(share))
        assert np.isfinite(value) and np.isfinite(slope) and 1.0 <= value <= 20.001
        assert (slope == 0.0) == (share > model.LARGEST_LOST)


# Growth with heat and its reference temperature are constants: no variables of the claim.
FREE = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16])


def of_free(row, maximum=hard_maximum):
    """The lost fraction in the variables of the claim, the rest as in a row."""
    return lambda x: lost(jnp.asarray(row, x.dtype).at[FREE].set(x), maximum)


def multiplier(x, maximum=hard_maximum):
    """Run time over useful time, in the form that readers take, at the best interval."""
    chips, junction, size, *rest, rate = x
    held = Reliability(*rest)
    save, drain = model.save_s(size, chips, held), model.drain_s(size, chips, rate)
    mtbf = mtbf_s(held, chips, junction)
    interval = model.checkpoint_interval_s(save, mtbf, drain, maximum)
    return model.multiplier_at(interval, save, mtbf, drain, held.restart_s + drain)


@pytest.mark.parametrize("temperature", [None, 0.05, 0.5])
def test_the_multiplier_is_log_log_convex(temperature):
    """At the best interval too: the least over one variable of what is convex in all."""
    maximum = hard_maximum if temperature is None else soft_maximum(jnp.asarray(temperature))
    points = random_points(3000, seed=5)[:, FREE]
    whole = random_points(1)[0]
    of = lambda x: multiplier(jnp.asarray(whole, x.dtype).at[FREE].set(x), maximum)
    with jax.enable_x64(True):
        below = points[in_numpy(of)(points) < 10.0][:300]
    assert len(below) == 300
    assert_log_log_convex(of, below, 1e-6)


def test_gradients_equal_differences():
    assert_gradients(stretched, apart(random_points(200, seed=3)))


def test_float32_is_finite_and_close_to_float64():
    points = random_points(2000, seed=4)
    for function in (lost, lambda x: model.time_multiplier(lost(x))):
        both = quick_jit(jax.vmap(jax.value_and_grad(function)))
        value32, slope32 = map(np.asarray, both(points.astype(np.float32)))
        value64 = in_numpy(function)(points)
        assert np.isfinite(slope32).all() and np.isfinite(value32).all()
        near = value64 < 10
        np.testing.assert_allclose(value32[near], value64[near], rtol=2e-3, atol=1e-7)


# Recovery ------------------------------------------------------------------------------------------------------------


def with_spares(chips: float, **changed):
    """A cluster whose job goes on with spares, and its interruptions."""
    cluster = catalog.cluster("h100-sxm", chips, recovery="hot-spares", rack_chips=16)
    for name, value in changed.items():
        cluster = eqx.tree_at(lambda c, name=name: getattr(c.recovery, name), cluster, np.float64(value))
    with jax.enable_x64(True):
        stops = model.interruptions(cluster, chips, cluster.reliability.reference_junction_k)
        return cluster, stops, float(model.hot_spares(cluster, chips, stops))


@pytest.mark.parametrize("chips", [64.0, 16384.0, 524288.0])
def test_spares_are_servers_under_repair_and_a_margin(chips):
    cluster, stops, spares = with_spares(chips)
    stops = model.Interruptions(*map(float, stops))
    day = float(cluster.recovery.repair_s)
    mean = day * float(stops.dies + stops.stacks + stops.hosts + stops.links)
    taken_along = 16 * stops.racks + 160 * stops.cooling + chips * float(cluster.reliability.switch_failures_per_s)
    assert spares == pytest.approx(8 * (mean + 3 * math.sqrt(mean)) + day * taken_along, rel=1e-9)
    enough = poisson_at_most(math.floor(mean + 3 * math.sqrt(mean)), mean)
    assert enough > 0.97  # of the time; the normal quantile of 99.87 % where servers are many
    assert with_spares(chips, repair_s=2 * day)[2] > 1.4 * spares > with_spares(chips, spare_deviations=1.0)[2]


def poisson_at_most(most: int, mean: float) -> float:
    return sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(most + 1))


def test_without_spares_a_fleet_restarts_as_it_does():
    cluster, _, spares = with_spares(4096.0, hot_spares=0.0)
    assert spares == 0.0
    assert float(model.recovery_s(cluster)) == float(cluster.reliability.restart_s)
    assert float(model.recovery_s(with_spares(4096.0)[0])) == float(cluster.recovery.swap_s)


def test_spares_are_log_log_convex():
    """In the rates of what fails and the time of a repair."""
    cluster = catalog.cluster("h100-sxm", 4096.0, recovery="hot-spares")

    def of(x):
        stops = model.Interruptions(*x[:7], jnp.ones_like(x[0]))
        return model.hot_spares(eqx.tree_at(lambda c: c.recovery.repair_s, cluster, x[7]), x[8], stops)

    points = np.exp(np.random.default_rng(8).uniform(np.log(1e-9), np.log(1e-3), (200, 9)))
    points[:, 7:] *= 1e9
    assert_log_log_convex(of, points, 1e-6)


def test_saves_go_to_other_hosts_or_to_storage():
    away, near = (catalog.cluster("h100-sxm", 4096.0, recovery=name) for name in ("hot-spares", "in-memory"))
    rates = once(model.saved_bytes_per_s_per_chip)
    assert rates(away) == away.storage.checkpoint_bytes_per_s_per_chip
    assert rates(near) == near.recovery.peer_bytes_per_s_per_chip
