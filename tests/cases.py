"""Random but plausible inputs of the model: from a 50 M model on one V100-like chip to 2 T on a million Rubin-like ones."""

from __future__ import annotations

import jax
import numpy as np

from hwopt.hardware.chip import Chip
from hwopt.hardware.cluster import Cluster
from hwopt.hardware.facility import Cooling, Facility, Rack
from hwopt.hardware.network import Network
from hwopt.hardware.peripherals import MemoryPool, Operation, Recovery, Reliability, Sites, Storage
from hwopt.hardware.prices import Prices
from hwopt.plan import Plan
from hwopt.quantity import quantities
from hwopt.stack import Capabilities, Stack
from hwopt.workload.learning import LossLaw
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer
from tests.rotation import sample

KINDS = ("gpt", "dense", "moe", "mla")
SMALLEST, LARGEST = 5e7, 2e12  # parameters
YEAR_S = 365.25 * 86400.0

NO_SHELVES = dict(storage__usd_per_byte=0.0, storage__power_w_per_byte=0.0, storage__carbon_kg_per_byte=0.0)
"""Changes of a cluster whose storage capacity costs nothing: each group of a fleet has its own, whatever its size."""

SAME_AT_ANY_SIZE = NO_SHELVES | dict(recovery__hot_spares=0.0, prices__redesign_usd=0.0, prices__least_order=0.0)
"""A machine of which twice the chips cost and draw twice as much."""


class _Draw:
    """Columns of n random numbers."""

    def __init__(self, rng: np.random.Generator, n: int):
        self.rng, self.n = rng, n

    def uniform(self, low, high):
        return self.rng.uniform(low, high, self.n)

    def log(self, low, high):
        return np.exp(self.rng.uniform(np.log(low), np.log(high), self.n))

    def choice(self, *values):
        return self.rng.choice(np.array(values, float), self.n)

    def coin(self, probability=0.5):
        return self.rng.uniform(size=self.n) < probability

    def either(self, probability, then, otherwise):
        return np.where(self.coin(probability), then, otherwise)


def _transformer(draw: _Draw, kind: np.ndarray) -> dict:
    """Shapes of `kind` (indices into `KINDS`), of any size."""
    gpt, moe, mla = kind == 0, kind >= 2, kind == 3
    whole = draw.coin()
    near = lambda x: np.where(whole, np.maximum(np.round(x), 1.0), x)
    head_dim = draw.choice(64, 96, 128, 192)
    hidden = near(draw.log(512, 20480) / head_dim) * head_dim
    heads = hidden / head_dim
    layers = near(np.clip(hidden / 110 * draw.log(0.5, 2.0), 6, 160))
    grouped = np.minimum(draw.choice(1, 2, 4, 8, 16), heads)  # 1: multi-query
    experts = np.where(moe, near(draw.log(4, 512)), 0.0)
    per_token = np.where(moe, np.minimum(draw.choice(1, 2, 4, 6, 8), experts), 0.0)
    dense_first = np.minimum(draw.choice(0, 0, 1, 3), layers)
    learned = gpt | draw.coin(0.1)
    return dict(
        layers=layers,
        hidden=hidden,
        ffn=near(np.where(gpt, 4.0, draw.uniform(2.0, 6.0)) * hidden),
        mlp_matrices=np.where(gpt, 2.0, 3.0),
        heads=heads,
        kv_heads=np.where(gpt | mla | draw.coin(0.3), heads, grouped),
        qk_dim=np.where(mla, head_dim + 64, head_dim),
        v_dim=head_dim,
        query_rank=np.where(mla & draw.coin(0.7), near(hidden * draw.uniform(0.1, 0.4)), 0.0),
        kv_rank=np.where(mla, near(hidden * draw.uniform(0.05, 0.2)), 0.0),
        rope_dim=np.where(mla, 64.0, 0.0),
        vocab=near(draw.log(2e4, 3e5)),
        tied_embeddings=draw.choice(0, 1),
        learned_positions=np.where(learned, draw.choice(1024, 2048, 8192), 0.0),
        moe_layers=np.where(moe, np.where(draw.coin(0.2), layers / 2, layers - dense_first), 0.0),
        experts=experts,
        experts_per_token=per_token,
        shared_experts=np.where(moe, draw.choice(0, 1, 2), 0.0),
        expert_ffn=np.where(moe, near(hidden * draw.log(0.1, 3.0)), 0.0),
        local_layers_fraction=draw.either(0.3, draw.uniform(0.2, 0.9), 0.0),
        window_tokens=draw.either(0.5, draw.log(300, 2e4), 1e9),
        parallel_layers=np.resize([0.0, 0.0, 1.0, 0.0], draw.n),
        routed_groups=np.where(moe, np.resize([0.0, 4.0, 0.0, 1.0, 2.0], draw.n), 0.0),
        misaligned_heads=np.resize([0.0, 0.0, 0.0, 1.0], draw.n),
    )


def _rough_parameters(w: dict) -> np.ndarray:
    attention = 2 * w["hidden"] ** 2 * (1 + w["kv_heads"] / w["heads"])
    dense = w["mlp_matrices"] * w["hidden"] * w["ffn"] * (w["layers"] - w["moe_layers"])
    routed = w["moe_layers"] * (w["experts"] + w["shared_experts"]) * w["mlp_matrices"] * w["hidden"] * w["expert_ffn"]
    return w["layers"] * attention + dense + routed + 2 * w["vocab"] * w["hidden"]


def _plausible_transformers(rng: np.random.Generator, kind: np.ndarray) -> Transformer:
    """Shapes between `SMALLEST` and `LARGEST`; the others are drawn again."""
    shapes = _transformer(_Draw(rng, len(kind)), kind)
    while True:
        size = _rough_parameters(shapes)
        wrong = np.flatnonzero((size < SMALLEST) | (size > LARGEST))
        if not len(wrong):
            return Transformer(**shapes)
        again = _transformer(_Draw(rng, len(wrong)), kind[wrong])
        for name, column in shapes.items():
            column[wrong] = again[name]


def _shares(draw: _Draw) -> np.ndarray:
    """Shares of the six formats: one format, or a mix of two or three."""
    weights = draw.rng.exponential(size=(draw.n, 6))
    rank = np.argsort(np.argsort(draw.rng.uniform(size=(draw.n, 6)), axis=1), axis=1)
    weights[rank >= draw.choice(1, 1, 2, 3)[:, None]] = 0.0
    return weights / weights.sum(1, keepdims=True)


def _law(draw: _Draw) -> LossLaw:
    """Near the published laws: a critical batch that grows with the tokens, with the loss, or with both."""
    of_loss, of_both = draw.coin(0.3), draw.coin(0.1)
    grows = of_loss | of_both
    return LossLaw(
        irreducible_loss=draw.uniform(1.6, 1.9),
        parameter_coefficient=draw.log(350, 600),
        parameter_exponent=draw.uniform(0.33, 0.36),
        token_coefficient=draw.log(400, 3000),
        token_exponent=draw.uniform(0.28, 0.38),
        critical_batch_tokens=np.where(grows, draw.log(1.5e8, 3e8), draw.log(1.3e6, 7e6)),
        critical_reference_tokens=draw.log(1e10, 5e10),
        critical_token_exponent=np.where(of_loss, 0.0, draw.uniform(0.3, 0.5)),
        critical_loss_exponent=np.where(grows, np.where(of_both, draw.uniform(0.5, 2), draw.uniform(3, 4.77)), 0.0),
        repetition_epochs=draw.uniform(10, 20),
        moe_exponent=draw.either(0.5, 0.5, draw.uniform(0, 1)),
        replica_exponent=np.resize([0.0116, 0.0, 0.02], draw.n),
    )


def _run(draw: _Draw, model: Transformer, replicas_times_micro_batches: np.ndarray) -> TrainingRun:
    return TrainingRun(
        model=model,
        law=_law(draw),
        sequence_length=draw.either(0.5, draw.choice(1024, 2048, 4096, 8192, 131072), draw.log(512, 131072)),
        global_batch_sequences=replicas_times_micro_batches,
        tokens=draw.log(1e9, 1e14),
        unique_tokens=draw.log(1e11, 1e15),
        gemm_precision=_shares(draw),
        weight_bytes=draw.choice(1, 2, 2, 4),
        master_bytes=draw.choice(0, 2, 4, 4),
        moment_bytes=draw.choice(2, 4, 8, 8),
        activation_bytes=draw.choice(1, 2, 2, 2, 4),
        causal_fraction=draw.choice(0.5, 0.5, 0.6, 1),
        trainable_fraction=draw.either(0.7, 1.0, draw.log(1e-3, 1)),
        checkpoint_interval_s=np.resize([0.0, 0.0, 0.0, 900.0], draw.n),
        input_bytes_per_token=draw.either(0.6, 4.0, draw.log(2, 1e6)),
        routing_imbalance=np.where(model.experts > 0, draw.uniform(1, 1.6), 1.0),
    )


def _chip(draw: _Draw) -> Chip:
    """GPU-like chips, and SRAM machines whose whole memory is fast and small: dies, and half of them whole wafers."""
    sram_machine = draw.coin(0.15)
    wafer = sram_machine & draw.coin()
    bf16 = np.where(sram_machine, draw.log(1e14, 1e17), draw.log(5e13, 1.5e16))
    factors = (
        draw.choice(1 / 16, 1 / 8, 1 / 2),
        draw.choice(1 / 8, 1 / 2),
        1.0,
        draw.choice(1, 2),
        draw.choice(1, 2),
        draw.choice(1, 2, 4),
    )
    clock = draw.either(0.5, 1.0, draw.uniform(0.5, 1.3))
    threshold = draw.uniform(0.2, 0.7)
    bandwidth = np.where(sram_machine, draw.log(2e13, 2e16), draw.log(6e11, 3e13))
    energy = np.where(sram_machine, draw.log(1e-14, 3e-13), draw.log(5e-13, 6e-11))
    core = np.where(wafer, draw.log(5e3, 2e4), draw.log(150, 2000))
    leakage, standby = core * draw.uniform(0.03, 0.25), draw.log(20, 300)
    volts = threshold + (1 - threshold) * clock
    full_load = standby + bandwidth * energy + leakage * volts + core * volts**2 * clock
    area = np.clip(full_load / draw.log(2e5, 1.2e6), 2e-4, 1.7e-3)
    own = _Draw(np.random.default_rng(1), draw.n)  # what only export rules ask leaves all else as it was drawn
    return Chip(
        peak_flops_per_s=np.stack([bf16 * f * draw.uniform(0.9, 1.1) for f in factors], 1),
        matmul_efficiency=draw.rng.uniform(0.35, 0.98, (draw.n, 6)),
        clock_ratio=clock,
        sold_clock_ratio=own.either(0.5, 1.0, clock),
        threshold_voltage_fraction=threshold,
        sram_bytes=np.where(sram_machine, draw.log(2e8, 5e10), draw.log(4e6, 3e8)),
        hbm_bandwidth_bytes_per_s=bandwidth,
        hbm_capacity_bytes=np.where(sram_machine, draw.log(2e8, 5e10), draw.log(1.2e10, 1e12)),
        hbm_efficiency=draw.uniform(0.6, 0.95),
        power_cap_w=full_load * draw.either(0.5, draw.log(3, 30), draw.uniform(0.5, 1.1)),
        standby_power_w=standby,
        scale_up_idle_j_per_byte=draw.log(1e-12, 1e-11),
        leakage_power_w=leakage,
        leakage_per_k=draw.uniform(0.01, 0.07),
        core_power_w=core,
        hbm_energy_j_per_byte=energy,
        host_bytes_per_s=own.either(0.2, 0.0, own.log(1e10, 2e11)),
        nic_link_bytes_per_s=own.either(0.5, 0.0, own.log(5e10, 4e11)),
        host_slowness=np.resize([1.0, 1.7, 1.0], draw.n),
        silicon_area_m2=np.where(wafer, 0.046, 0.8 * area),
        logic_area_m2=np.where(wafer, 0.046, area * own.choice(1.0, 1.6)),
        heat_area_m2=np.where(wafer, 0.046, area),
        hbm_stacks=np.where(sram_machine, 0.0, draw.choice(2, 4, 5, 6, 8, 12, 16)),
        wafers=np.where(wafer, draw.uniform(1, 1.5), area / 0.05 * draw.uniform(1, 3)),
        package_area_m2=np.where(sram_machine, 0.0, area * draw.uniform(1.5, 3.5)),
        embodied_carbon_kg=np.where(wafer, draw.log(500, 5000), draw.log(20, 500)),
    )


def _cooling(draw: _Draw, chip: Chip) -> Cooling:
    """Air to two-phase; in a few rows the coolant is warmer than the junction may be."""
    wafer = chip.heat_area_m2 > 0.01
    drawn = _any_cooling(draw, wafer)
    return replace(drawn, usual_coolant_k=drawn.coolant_temperature_k + np.resize([0.0, 5.0, -5.0], draw.n))


def _any_cooling(draw: _Draw, wafer: np.ndarray) -> Cooling:
    return Cooling(
        sink_resistance_k_per_w=np.where(wafer | draw.coin(0.4), 0.0, draw.log(0.003, 0.05)),
        area_resistance_k_m2_per_w=draw.log(1.5e-5, 6e-5),
        coolant_temperature_k=draw.either(0.02, draw.uniform(380, 400), draw.uniform(288, 323)),
        junction_limit_k=draw.either(0.5, 358.15, draw.uniform(353, 378)),
        heat_flux_limit_w_per_m2=draw.log(8e5, 5e6),
        rack_limit_w=draw.log(1.5e4, 6e5),
        loop_racks=draw.choice(1, 4, 8, 10),
        fan_fraction=draw.either(0.3, 0.0, draw.uniform(0.01, 0.2)),
        plant_fraction=draw.log(0.005, 0.1),
        approach_k=draw.uniform(4, 15),
        range_k=np.resize([10.0, 4.0, 20.0, 8.0], draw.n),
        other_share=np.resize([1.0, 0.25, 0.6], draw.n),
        captured_fraction=draw.either(0.4, 1.0, draw.uniform(0.6, 1)),
        capital_usd_per_w=draw.either(0.3, 0.0, draw.uniform(0.1, 1.5)),
        usual_coolant_k=np.zeros(draw.n),
    )


def _topology(draw: _Draw, domain: np.ndarray) -> dict:
    """Switches, full meshes and tori of one to three dimensions; the outermost tier is switched.

    A domain of 2^D chips sits on a kink of a torus of D dimensions, a domain of one chip on that of a group's first member.
    """
    dimensions = draw.rng.choice([1.0, 1.0, 1.0, 2.0, 3.0], (draw.n, 3))
    dimensions[(domain == 4.0) | (domain == 8.0)] = 1.0
    direct = (draw.rng.uniform(size=(draw.n, 2)) < 0.4) & (domain != 1.0)[:, None]
    jitter = draw.coin(0.4)[:, None] * (draw.rng.uniform(size=(draw.n, 3)) < 0.7)
    return dict(
        dimensions=dimensions,
        links=np.where(direct, np.where(dimensions[:, :2] > 1.0, 2.0 * dimensions[:, :2], 7.0), 1.0),
        sharing=direct * draw.rng.choice([0.2, 0.35, 1.0, 1.4], (draw.n, 2)),
        crossings=direct * (dimensions > 1.0)[:, :2] * dimensions[:, :2] / 4.0,
        tree_step=draw.rng.choice([1.0, 2.0, 2.5, 1e9], (draw.n, 3)),
        latency_tail_s=jitter * np.exp(draw.rng.uniform(np.log(1e-7), np.log(1e-4), (draw.n, 3))),
        bandwidth_spread=jitter * draw.rng.uniform(0.0, 0.4, (draw.n, 3)),
    )


def _pool(draw: _Draw) -> MemoryPool:
    """None, host memory in the price of the host, and stores of their own."""
    own = draw.coin()
    return MemoryPool(
        capacity_bytes=draw.either(0.2, 1.0, draw.log(1e10, 3e13)),
        reserved=draw.either(0.5, 0.0, draw.log(0.05, 0.5)),
        bandwidth_bytes_per_s=draw.log(1e10, 1e12),
        shares_link=draw.coin(0.9),
        update_bandwidth_bytes_per_s=draw.log(1e10, 1e12),
        power_w_per_byte=own * draw.log(1e-11, 1e-9),
        energy_j_per_byte=own * draw.log(1e-11, 1e-9),
        usd_per_byte=own * draw.log(1e-9, 2e-8),
        usd_per_byte_per_s=own * draw.log(1e-9, 2e-7),
        carbon_kg_per_byte=own * draw.log(5e-11, 1e-9),
    )


def _storage(draw: _Draw) -> Storage:
    return Storage(
        capacity_bytes=draw.log(1e11, 1e16),
        data_copies=np.resize([1.0, 3.0, 10.0], draw.n),
        checkpoints=np.resize([2.0, 200.0, 20.0, 50.0], draw.n),
        usd_per_byte=draw.either(0.2, 0.0, draw.log(1e-11, 3e-10)),
        usd_per_byte_per_s=draw.log(1e-6, 1e-5),
        power_w_per_byte=draw.log(1e-12, 1e-11),
        energy_j_per_byte=draw.log(3e-8, 5e-7),
        carbon_kg_per_byte=np.resize([3e-11, 1.6e-10, 2e-12], draw.n),
        checkpoint_bytes_per_s_per_chip=draw.log(2e7, 1e9),
        input_bytes_per_s_per_chip=draw.log(1e7, 1e10),
    )


def _sites(draw: _Draw, plan: Plan) -> Sites:
    """One site, or a few with a replica each."""
    return Sites(
        count=draw.either(0.7, 1.0, np.minimum(draw.choice(2, 3, 8), np.maximum(np.floor(plan.dp), 1.0))),
        bandwidth_bytes_per_s=draw.log(1e8, 1e13),
        latency_s=draw.log(1e-4, 0.2),
        efficiency=draw.uniform(0.3, 0.95),
        bytes_per_parameter=draw.choice(0.5, 2, 4),
        overlap=draw.choice(0, 0, 0.5, 1),
        lease_usd_per_byte=draw.log(1e-14, 1e-11),
        fixed_usd=draw.log(1e6, 1e8),
    )


def _network(draw: _Draw) -> Network:
    domain = draw.either(0.6, draw.choice(1, 4, 8, 16, 64, 72, 144, 576), draw.log(1, 1e4))
    inner = draw.log(2e10, 2e12)
    outer = np.minimum(inner, draw.log(3e9, 2e11))
    bandwidth = np.stack([inner, outer, outer * draw.uniform(0.05, 1)], 1)
    return Network(
        size=np.stack([domain, domain * draw.log(1, 4096)], 1),
        bandwidth_bytes_per_s=bandwidth,
        lane_bytes_per_s=np.stack([inner / 18.0, outer], 1),
        efficiency=draw.rng.uniform(0.4, 0.97, (draw.n, 3)),
        latency_s=np.stack([draw.log(3e-7, 1e-5), draw.log(1e-6, 3e-5), draw.log(3e-6, 1e-3)], 1),
        ramp=np.resize([0.0, 0.5, 1.0, 1.0, 1.0], (draw.n, 3)),
        reduction_factor=draw.rng.choice([0.5, 1.0, 1.0, 0.7], (draw.n, 3)),
        **_topology(draw, domain),
        level_chips=draw.either(0.3, 1e9, draw.choice(8, 16, 64, 72)),
        level_latency_s=draw.either(0.3, 0.0, draw.log(1e-7, 1e-6)),
        flat_rings=np.resize([0.0, 0.0, 1.0], draw.n),
        switches_per_port=np.stack(
            [np.zeros(draw.n), (taken := draw.either(0.2, 0.0, draw.log(0.01, 0.1))), taken / 2], 1
        ),
        switch_price_share=np.stack([np.zeros(draw.n), draw.uniform(0, 1), draw.uniform(0, 1)], 1),
        switch_power_share=np.stack([np.zeros(draw.n), draw.uniform(0, 1), draw.uniform(0, 1)], 1),
        energy_j_per_byte=np.stack([draw.log(1e-12, 1e-10), draw.log(1e-11, 5e-10), draw.log(1e-11, 1e-9)], 1),
    )


def _rack(draw: _Draw) -> Rack:
    """From one chip to a domain of 144; scale-up domains may fit inside, fill or leave it."""
    chips = draw.either(0.7, draw.choice(1, 4, 8, 16, 32, 64, 72, 144), draw.log(1, 144))
    return Rack(
        chips=chips,
        sold_chips=np.resize([0.0, 0.0, 1.0, 1.125], draw.n) * chips,
        server_chips=np.full(draw.n, 8.0),
        system_chips=np.full(draw.n, 8.0),
        busbar_limit_w=draw.log(1.5e4, 6e5),
        chip_weight_kg=draw.uniform(8, 25),
        empty_weight_kg=draw.uniform(100, 300),
        weight_limit_kg=draw.uniform(900, 2500),
        floor_area_m2=draw.uniform(1.5, 4),
        price_usd=draw.log(5e3, 5e4),
        carbon_kg=np.resize([1000.0, 300.0, 3000.0], draw.n),
        cable_area_m2_per_byte_per_s=draw.log(2e-16, 2e-15),
        cable_limit_m2=draw.log(0.01, 0.2),
        cable_weight_kg_per_byte_per_s=draw.log(2e-13, 4e-12),
        optics_energy_j_per_byte=draw.log(2e-11, 4e-10),
        optics_usd_per_byte_per_s=draw.log(1e-8, 5e-8),
    )


def _facility(draw: _Draw) -> Facility:
    return Facility(
        host_power_w=draw.log(50, 600),
        idle_host_fraction=draw.uniform(0.2, 0.8),
        supply_efficiency=draw.uniform(0.88, 0.98),
        distribution_efficiency=draw.uniform(0.9, 0.99),
        other_fraction=draw.either(0.3, 0.0, draw.uniform(0.0, 0.1)),
        wet_bulb_k=(wet_bulb := draw.uniform(272, 300)),
        wet_bulb_spread_k=(spread := draw.uniform(2, 12)),
        design_wet_bulb_k=wet_bulb + 2.65 * spread,  # 0.4 % of the hours are above
        room_temperature_k=draw.uniform(291, 308),
        room_approach_k=draw.uniform(4, 12),
        room_range_k=np.resize([12.0, 6.0, 20.0], draw.n),
        room_plant_fraction=draw.log(0.01, 0.1),
        chiller_cop=draw.uniform(3, 8),
        electricity_usd_per_j=draw.uniform(0.02, 0.3) / 3.6e6,
        carbon_kg_per_j=draw.log(0.01, 0.8) / 3.6e6,
        construction_usd_per_w=draw.uniform(5, 20),
        construction_lifetime_s=draw.uniform(10, 30) * YEAR_S,
        construction_carbon_kg_per_w=draw.log(0.3, 3),
    )


def _reliability(draw: _Draw) -> Reliability:
    """From the best fleets to the worst: with a million chips a job of the latter never gets ahead."""
    return Reliability(
        die_failures_per_m2_s=(rate := draw.log(1e-6, 1e-4) / 3600.0) * (share := draw.uniform(0.4, 0.8)) / 1.2e-3,
        stack_failures_per_s=rate * draw.either(0.2, 0.0, 0.04),
        host_failures_per_s=rate * (1.0 - share) * 2.0,
        link_failures_per_s=rate * (1.0 - share) * 0.3,
        switch_failures_per_s=rate * draw.either(0.2, 0.0, draw.uniform(0.1, 1)),
        rack_failures_per_s=rate * 0.2,
        loop_failures_per_s=rate * draw.either(0.2, 0.0, draw.uniform(0.1, 2)),
        software_failures_per_chip_s=rate * (1.0 - share) * 0.4,
        failure_growth_per_k=draw.either(0.2, 0.0, draw.uniform(0.02, 0.09)),
        reference_junction_k=draw.uniform(333, 353),
        restart_s=draw.log(60, 7200),
        snapshot_bandwidth_bytes_per_s=draw.log(5e9, 6e10),
        snapshot_overhead_s=draw.either(0.2, 0.0, draw.log(0.3, 30)),
    )


def _recovery(draw: _Draw) -> Recovery:
    """Back through storage, with spares that stand ready, and with saves in the memory of others."""
    return Recovery(
        hot_spares=(hot := draw.choice(0, 0, 1)),
        swap_s=draw.log(10, 300),
        repair_s=draw.log(3600, 6e5),
        spare_deviations=draw.uniform(1, 4),
        peer_bytes_per_s_per_chip=hot * draw.either(0.5, 0.0, draw.log(1e9, 4e10)),
    )


def _operation(draw: _Draw) -> Operation:
    """A benchmark, or a long run on a good or bad machine."""
    return Operation(
        stall_fraction=draw.either(0.4, 0.0, draw.uniform(0.0, 0.2)),
        straggler_sigma=draw.either(0.4, 0.0, draw.uniform(0.0, 0.08)),
    )


def _prices(draw: _Draw) -> Prices:
    return Prices(
        chip_base_usd=draw.log(500, 5e4),
        hbm_usd_per_byte=draw.log(5, 40) * 1e-9,
        hbm_usd_per_byte_per_s=draw.log(1e-10, 2e-9),
        network_usd_per_byte_per_s=np.stack([draw.log(1e-9, 2e-8), draw.log(1e-8, 3e-7), draw.log(1e-8, 1e-6)], 1),
        domain_usd_per_chip=draw.log(50, 3000),
        reference_domain=draw.choice(8, 72),
        host_usd=draw.log(500, 2e4),
        server_lifetime_s=draw.uniform(3, 7) * YEAR_S,
        spares_fraction=draw.uniform(0.0, 0.1),
        maintenance_per_s=draw.uniform(0.01, 0.1) / YEAR_S,
        capital_rate_per_s=draw.either(0.2, 0.0, draw.uniform(0.03, 0.12)) / YEAR_S,
        occupancy=draw.either(0.4, 1.0, draw.uniform(0.4, 1)),
        margin=draw.either(0.5, 0.0, draw.uniform(0.1, 1)),
        owned=draw.choice(0, 1),
        redesign_usd=draw.either(0.8, 0.0, draw.log(1e6, 1e8)),
        least_order=draw.either(0.8, 0.0, draw.log(100, 1e5)),
        host_carbon_kg=draw.log(50, 1000),
        network_carbon_kg_per_usd=np.resize([0.035, 0.01, 0.09, 0.06], draw.n),
    )


def _stack(draw: _Draw) -> Stack:
    """From ideal (no launch, all hidden) to poor; half of the fields sit on the ideal value in ideal rows."""
    ideal = draw.coin(0.15)
    good = lambda best, else_: np.where(ideal & draw.coin(), best, else_)
    overlap = lambda: draw.either(0.4, draw.choice(0, 1), draw.uniform(0, 1))
    return Stack(
        capabilities=Capabilities(**{name: np.ones(draw.n) for name in quantities(Capabilities)}),
        attention_forward_efficiency=good(1.0, draw.uniform(0.1, 0.85)),
        attention_backward_efficiency=good(1.0, draw.uniform(0.1, 0.75)),
        attention_scores_stored=draw.choice(0, 0, 0, 1),
        dropout_masks=draw.choice(0, 0, 1),
        gemm_half_size=good(0.0, draw.uniform(10, 300)),
        gemm_efficiency_factor=good(1.0, draw.uniform(0.4, 1.0)),
        elementwise_passes=good(1.0, draw.uniform(1, 4)),
        cast_passes=good(0.0, draw.uniform(0, 3)),
        kernel_launch_s=good(0.0, draw.log(3e-7, 1e-5)),
        host_layer_s=good(0.0, draw.log(1e-5, 3e-3)),
        host_moe_layer_s=good(0.0, draw.log(1e-5, 1e-2)),
        host_collective_s=np.resize([0.0, 2e-4, 0.0, 1e-3], draw.n),
        expert_gemm_factor=np.resize([1.0, 0.7, 0.9], draw.n),
        routing_passes=np.resize([1.0, 2.5, 1.5, 1.0], draw.n),
        expert_start_s=np.resize([0.0, 4e-5, 0.0], draw.n),
        expert_unpacking=np.resize([1.0, 0.5, 1.0, 0.4, 1.0], draw.n),
        expert_tile_share=np.resize([1.0, 0.3, 1.0, 0.5, 0.3], draw.n),
        direct_reduce_s=np.resize([1.0, 6e-6, 3e-5], draw.n),
        tokens_gathered=np.resize([0.0, 0.0, 1.0, 0.0, 0.0], draw.n),
        gathered_launch_s=np.resize([0.0, 1e-5], draw.n),
        passes_graphed=np.resize([0.0, 1.0], draw.n),
        recompute_stops_early=np.resize([1.0, 0.0, 0.0], draw.n),
        weight_cast_share=np.resize([0.0, 1.0, 0.3], draw.n),
        dispatch_deduplicated=np.resize([0.0, 1.0], draw.n),
        dispatch_bytes_share=np.resize([1.0, 0.5, 1.0], draw.n),
        gather_efficiency=np.resize([1.0, 0.4, 1.0, 1.0], draw.n),
        tp_overlap=overlap(),
        cp_overlap=overlap(),
        ep_overlap=overlap(),
        pp_overlap=overlap(),
        dp_overlap=overlap(),
        two_batch_overlap=np.resize([0.9, 0.6, 1.0], draw.n),
        communication_slowdown=good(0.0, draw.uniform(0, 0.4)),
        collective_launch_s=good(0.0, draw.log(1e-6, 5e-5)),
        gradient_bytes=draw.choice(2, 4),
        optimizer_passes=good(1.0, draw.uniform(1, 3)),
        step_overhead_s=good(0.0, draw.log(1e-4, 0.2)),
        jitter_sigma=good(0.0, draw.uniform(0, 0.03)),
        memory_reserve_bytes=draw.log(1e6, 8e9),
        fragmentation=draw.uniform(0, 0.2),
        residual_tensors=np.resize([2.0, 3.0, 4.0], draw.n),
        product_kept=np.resize([0.0, 1.0, 1.0, 0.0, 1.0], draw.n),
        cast_inputs_kept=np.resize([1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0], draw.n),
        logit_bytes=np.resize([2.0, 6.0, 14.0, 4.0], draw.n),
        master_kept=np.resize([1.0, 0.5], draw.n),
        layers_whole=np.resize([2.0, 0.5, 1.0, 2.0], draw.n),
        gathered_inputs_kept=np.resize([0.0, 1.0, 0.0, 0.8, 0.0], draw.n),
        activation_kept=np.resize([0.0, 0.0, 1.0], draw.n),
        gradient_copy_bytes=np.resize([0.0, 2.0, 0.0], draw.n),
        share_gradient_bytes=np.resize([0.0, 0.0, 0.0, 4.0], draw.n),
        table_gradient_bytes=np.resize([0.0, 4.0, 0.0, 0.0], draw.n),
        first_stage_full=np.resize([0.0, 0.0, 1.0, 0.0, 0.0], draw.n),
        level=draw.either(0.6, 1.0, draw.uniform(0.8, 1.6)),
        cache_sharded=np.resize([0.0, 1.0, 0.0, 0.0, 0.0], draw.n),
        gemm_row_share=np.resize([1.0, 0.3, 1.0, 0.6], draw.n),
        gemm_start_s=np.resize([0.0, 0.0, 4e-6], draw.n),
        expert_row_share=np.resize([1.0, 0.7, 1.0, 1.0, 0.5], draw.n),
        elementwise_kernels=np.resize([8.0, 4.0, 8.0, 6.0, 8.0], draw.n),
        cast_start_s=np.resize([0.0, 1e-5, 0.0, 0.0], draw.n),
        attention_start_s=np.resize([0.0, 1e-5, 0.0], draw.n),
        prompt_start_s=np.resize([0.0, 0.0, 4e-5], draw.n),
        host_sequence_s=np.resize([0.0, 2e-5, 0.0, 0.0, 1e-4], draw.n),
        layouts_sharded=np.zeros(draw.n),  # of the search alone, as the next four
        pipelined=np.ones(draw.n),
        redundant_experts=np.zeros(draw.n),
        two_batches=np.zeros(draw.n),
        cache_split=np.zeros(draw.n),
        cache_rereads=np.resize([0.0, 0.0, 0.6, 0.0, 1.0, 0.0, 0.0], draw.n),
        logarithmic_passes=np.resize([0.0, 0.0, 1.0], draw.n),
    )


def _plan(draw: _Draw, w: Transformer) -> Plan:
    """Whole or fractional degrees of 1 to 1e6 chips; experts fit inside tp cp dp; a third of the degrees are exactly 1."""
    whole = draw.coin()
    near = lambda x: np.where(whole, np.round(x), x)
    parts = draw.rng.dirichlet([1.0, 1.0, 1.5, 0.5], draw.n) * (draw.rng.uniform(size=(draw.n, 4)) < 0.75)
    degrees = np.exp(parts * np.log(draw.log(1, 1e6))[:, None]).T
    tp = near(np.minimum(degrees[0], w.heads))
    pp = near(np.clip(degrees[1], 1.0, np.maximum(np.floor(w.layers), 1.0)))
    dp, cp = near(degrees[2]), near(np.minimum(degrees[3], 64))
    inside = tp * cp * dp
    ep = np.maximum(near(np.minimum(w.experts, inside) ** draw.uniform(0, 1)), 1.0)
    ep = np.where(w.experts > 0, np.minimum(ep, inside), 1.0)
    room = np.where(
        whole, np.floor(inside / ep), 0.9 * inside / ep
    )  # fractional degrees stay off the tie of one replica
    expert_tp = draw.either(0.5, 1.0, np.maximum(np.minimum(tp, room), 1.0))
    chunks = np.minimum(w.layers / pp, 8.0)
    level = draw.choice(0, 1, 2, 3)
    fullest = np.where((pp > 1) & draw.coin(), 1.0 + draw.uniform(0, 0.5), 1.0)
    least = np.maximum(pp - fullest * (pp - 1.0), 0.0)  # the other stages hold at most `fullest` each
    return Plan(
        tp=tp,
        pp=pp,
        dp=dp,
        cp=cp,
        ep=ep,
        expert_tp=expert_tp,
        virtual_stages=draw.either(0.5, 1.0, np.maximum(near(chunks ** draw.uniform(0, 1)), 1.0)),
        micro_batch=near(draw.choice(1, 1, 2, 4) * draw.either(0.7, 1.0, draw.uniform(1, 2))),
        fullest_stage=fullest,
        last_stage=np.where(fullest > 1, least + (fullest - least) * draw.uniform(0, 1), 1.0),
        sequence_parallel=draw.choice(0, 1),
        optimizer_sharded=1.0 * (level >= 1),
        gradients_sharded=1.0 * (level >= 2),
        weights_sharded=1.0 * (level >= 3),
        shard_groups=draw.either(0.7, 1.0, np.maximum(near((dp * cp) ** draw.uniform(0, 1)), 1.0)),
        recompute_full=draw.either(0.6, draw.choice(0, 1), draw.uniform(0, 1)),
        recompute_attention=draw.either(0.6, draw.choice(0, 1), draw.uniform(0, 1)),
        bubble_fraction=draw.either(0.7, 1.0, draw.uniform(0, 1)),
        weights_offloaded=draw.either(0.8, 0.0, draw.choice(1, 0.5)),
        optimizer_offloaded=draw.either(0.7, 0.0, draw.choice(1, 0.5)),
        activations_offloaded=draw.either(0.7, 0.0, draw.choice(1, 0.3)),
        local_steps=draw.either(0.6, 1.0, draw.choice(10, 500)),
    )


def random_cases(rng: np.random.Generator, n: int, kind: str | None = None) -> tuple[TrainingRun, Cluster, Plan]:
    """n cases, stacked along the first axis of every leaf; `kind` one of `KINDS`, or a mix of all."""
    draw = _Draw(rng, n)
    kinds = rng.integers(0, len(KINDS), n) if kind is None else np.full(n, KINDS.index(kind))
    model = _plausible_transformers(rng, kinds)
    plan = _plan(draw, model)
    batches = draw.either(0.5, np.round(draw.log(1, 500)), draw.log(1, 500))
    run = _run(draw, model, plan.dp * plan.micro_batch * batches)
    used = plan.tp * plan.pp * plan.dp * plan.cp
    chip, sites = _chip(draw), _sites(draw, plan)
    cluster = Cluster(
        chip=chip,
        chips=draw.either(0.8, used, np.maximum(used * draw.log(0.5, 2), sites.count)),
        network=_network(draw),
        pool=_pool(draw),
        storage=_storage(draw),
        sites=sites,
        cooling=_cooling(draw, chip),
        rack=_rack(draw),
        facility=_facility(draw),
        reliability=_reliability(draw),
        prices=_prices(draw),
        stack=_stack(draw),
        recovery=_recovery(draw),
        operation=_operation(draw),
    )
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (run, cluster, plan))


def take(cases, index):
    """One case, or the cases of a slice."""
    return jax.tree.map(lambda leaf: leaf[index], cases)


def random_case(rng: np.random.Generator, kind: str | None = None) -> tuple[TrainingRun, Cluster, Plan]:
    """One case with scalar float64 leaves."""
    return take(random_cases(rng, 1, kind), 0)


def stack_cases(cases) -> tuple[TrainingRun, Cluster, Plan]:
    """Single cases as one, with a leading axis for `jax.vmap`."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *cases)


def sampled(cases, n: int):
    """n of stacked cases."""
    return take(cases, sample(count(cases), n))


def count(cases) -> int:
    """How many cases are stacked."""
    return len(jax.tree.leaves(cases)[0])


def replace(tree, **fields):
    """A copy with other fields, `model__layers=...` for nested ones; new values are broadcast to the old shapes."""
    for path, value in fields.items():
        first, _, rest = path.partition("__")
        old = getattr(tree, first)
        new = replace(old, **{rest: value}) if rest else np.broadcast_to(np.asarray(value, np.float64), np.shape(old))
        values = {name: getattr(tree, name) for name in tree.__dataclass_fields__}
        tree = type(tree)(**{**values, first: new})
    return tree


def one_chip_cases(rng: np.random.Generator, n: int, kind: str | None = None):
    """n cases with every degree 1 on one chip."""
    run, cluster, plan = random_cases(rng, n, kind)
    ones = dict.fromkeys(
        ("tp", "pp", "dp", "cp", "ep", "expert_tp", "fullest_stage", "last_stage", "shard_groups"), 1.0
    )
    batches = run.global_batch_sequences / plan.dp
    return (
        replace(run, global_batch_sequences=batches),
        replace(cluster, chips=1.0, sites__count=1.0),
        replace(plan, **ones),
    )


def one_chip_case(rng: np.random.Generator, kind: str | None = None):
    """One case with every degree 1 on one chip."""
    return take(one_chip_cases(rng, 1, kind), 0)


def input_names(cases) -> list[str]:
    """Names of the entries of `to_vectors`: `model.layers`, `chip.peak_flops_per_s[2]`."""
    names = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(cases):
        name = ".".join(part.name for part in path[1:])
        wide = np.shape(leaf)[1:]
        names += [f"{name}[{i}]" for i in range(wide[0])] if wide else [name]
    return names


def to_vectors(cases) -> np.ndarray:
    """Stacked cases as a matrix, one row a case, one column an input."""
    leaves = jax.tree.leaves(cases)
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def from_vector(vector):
    """The case of one row of `to_vectors`; works on traced vectors."""
    leaves, structure = jax.tree.flatten(random_case(np.random.default_rng(0)))
    offsets = np.cumsum([0] + [np.size(leaf) for leaf in leaves])
    parts = [vector[a:b].reshape(np.shape(leaf)) for a, b, leaf in zip(offsets, offsets[1:], leaves, strict=False)]
    return jax.tree.unflatten(structure, parts)
