"""Interruptions and checkpoints against published runs; nothing here was fitted to them."""

from __future__ import annotations

import types

import jax
import pytest

from hwopt import catalog
from hwopt.catalog.load import record
from hwopt.catalog.peripherals import reliability, storage
from hwopt.model.facility import reliability as model
from hwopt.model.numerics.maximum import hard_maximum

ADAM = types.SimpleNamespace(weight_bytes=2.0, master_bytes=4.0, moment_bytes=8.0, trainable_fraction=1.0)
LLAMA_CHIPS, LLAMA_S, LLAMA_PARAMETERS = 16384.0, 54 * 86400.0, 405.85e9
BLOOM_CHIPS, BLOOM_PARAMETERS = 384.0, 176.247e9
BLOOM_RATE = storage("shared-flash", "bloom-2022").checkpoint_bytes_per_s_per_chip
HOUR_S = 3600.0


def fleet(name: str, chip: str = "h100-sxm"):
    """Servers of eight, two to a rack, seven to one above a pod, as Llama 3's were."""
    return catalog.cluster(chip, 16384, reliability=name, rack_chips=16, oversubscription=7.0)


def goodput(name: str, chips: float, parameters: float) -> float:
    held, rate = reliability(name), storage("shared-flash", name).checkpoint_bytes_per_s_per_chip
    with jax.enable_x64(True):
        size = model.checkpoint_bytes(parameters, ADAM)
        mtbf = model.job_mtbf_s(model.interruptions(fleet(name), chips, held.reference_junction_k))
        save, drain = model.save_s(size, chips, held), model.drain_s(size, chips, rate)
        return float(model.goodput(model.lost_fraction(save, mtbf, drain, held.restart_s + drain, hard_maximum)))


def interruptions(name: str, chips: float, time_s: float) -> float:
    return sum(causes(name, chips, time_s).values())


def causes(name: str, chips: float, time_s: float, chip: str = "h100-sxm") -> dict[str, float]:
    """Interruptions by cause, at the junction at which fleets are counted."""
    cluster = fleet(name, chip)
    with jax.enable_x64(True):
        rates = model.interruptions(cluster, chips, cluster.reliability.reference_junction_k)
        return {cause: float(time_s * rate) for cause, rate in rates._asdict().items()}


def test_llama_3_405b_from_other_fleets():
    """Published: 419 unplanned interruptions in 54 days, more than 90 % of time effective."""
    assert "llama" not in record("reliability", "fleet-mean").citation("failures").lower()
    assert interruptions("fleet-mean", LLAMA_CHIPS, LLAMA_S) == pytest.approx(419, rel=0.15)  # 431
    assert 0.90 < goodput("fleet-mean", LLAMA_CHIPS, LLAMA_PARAMETERS) < 0.95  # 0.914


def test_llama_3_405b_from_its_own_rate():
    assert interruptions("llama3-2024", LLAMA_CHIPS, LLAMA_S) == pytest.approx(419, rel=1e-3)
    assert 0.90 < goodput("llama3-2024", LLAMA_CHIPS, LLAMA_PARAMETERS) < 0.95  # 0.916


def test_llama_3_405b_by_cause_from_other_fleets():
    """Published by cause: 268 of chips and their memory, 41 of hosts, 42 of the network, 5 of racks, 63 of software.

    The split of causes is Llama 3's own (no other fleet publishes counts), the rate and the machine it was counted on are not: a
    check of the arithmetic between A100 and H100, not of the split.
    """
    found = causes("fleet-mean", LLAMA_CHIPS, LLAMA_S)
    whole = sum(found.values())
    for cause, count in {"dies": 196, "stacks": 72, "hosts": 41, "racks": 5, "software": 63}.items():
        assert 100 * found[cause] / whole == pytest.approx(100 * count / 419, abs=5)
    assert 100 * (found["links"] + found["switches"]) / whole == pytest.approx(100 * 42 / 419, abs=5)


def test_switches_live_as_those_of_a_cloud():
    """Published: 2 % of 180,000 switches fail within three months, 8 % a year."""
    one = float(reliability("llama3-2024").switch_failures_per_s)
    assert 100.0 * one * 365.25 / 4 * 24 * HOUR_S == pytest.approx(2.0, rel=0.25)


def test_network_and_hosts_of_a_cluster_of_h200_beside_ours():
    """Published of about 205 events on H200: GPUs and hosts 61 %, InfiniBand 29 %; by Llama 3's split 74 and 10 % (a gap).

    Links and switches together, as the cluster counts its network.
    """
    found = causes("fleet-mean", 4096.0, LLAMA_S, "h200")
    whole = sum(found.values())
    machines = (found["dies"] + found["stacks"] + found["hosts"]) / whole
    assert machines - 0.61 == pytest.approx(0.13, abs=0.03)
    assert (found["links"] + found["switches"]) / whole - 0.292 == pytest.approx(-0.19, abs=0.03)


def test_a_wafer_and_a_package_of_two_dies_fail_more_often_than_one_die():
    one, two, wafer = (sum(causes("fleet-mean", 1.0, 1.0, chip).values()) for chip in ("h100-sxm", "gb200", "wse-3"))
    assert 1.4 < two / one < 2.0 and wafer / one > 20.0


def test_large_jobs_of_rsc_1_as_its_paper_projects():
    """Published: 1.8 h at 16,384 and 0.23 h at 131,072 GPUs; at 1,024 28.8 h where 7.9 h were measured."""
    for chips, hours in ((16384, 1.8), (131072, 0.23), (1024, 28.8)):
        stops = sum(causes("meta-rsc-1", chips, 1.0, "a100-80").values())
        assert HOUR_S * hours == pytest.approx(1.0 / stops, rel=0.03)
    measured = 7.9 * HOUR_S
    assert 1.0 / sum(causes("meta-rsc-1", 1024, 1.0, "a100-80").values()) / measured == pytest.approx(
        3.65, rel=0.02
    )  # the known shortfall


def test_bloom_checkpoint():
    """Published: 2.3 TB in 40 s. The storage's rate is from the same pair, so only the bytes are predicted."""
    size = model.checkpoint_bytes(BLOOM_PARAMETERS, ADAM)
    assert size == pytest.approx(2.3e12, rel=0.08)  # 2.47e12; 2.24 if the published ones are TiB
    assert model.drain_s(size, BLOOM_CHIPS, BLOOM_RATE) == pytest.approx(40.0, rel=0.08)  # 42.8
    assert model.drain_s(2.3e12, BLOOM_CHIPS, BLOOM_RATE) == pytest.approx(40.0, rel=0.01)


def test_opt_would_lose_most_of_its_time_on_16384_of_its_chips():
    assert goodput("opt-2021", LLAMA_CHIPS, LLAMA_PARAMETERS) < 0.25
    assert goodput("opt-2021", 992.0, 175e9) > 0.85
