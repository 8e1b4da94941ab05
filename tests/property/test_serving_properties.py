"""What every machine that serves keeps: bounds by the bytes it reads, flows that balance, limits in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from hwopt.model.estimate import estimate
from hwopt.plan import Disaggregated
from tests.cases import SAME_AT_ANY_SIZE, replace, take
from tests.in_numpy import in_numpy
from tests.rotation import picked
from tests.serving_cases import chips_of, serving_cases

ROWS = 128


def run_model(cases):
    """The report of stacked cases in float64, as NumPy arrays."""
    return in_numpy(estimate)(*cases)


def drawn(seed: int, mode: str, kind: str | None = None, n: int = ROWS):
    return serving_cases(np.random.default_rng(seed), n, kind, mode)


def read(tree, path):
    """The leaf that `replace` knows as `chip__clock_ratio`."""
    for name in path.split("__"):
        tree = getattr(tree, name)
    return tree


LLAMA = dict(layers=64, hidden=16384, ffn=53248, mlp_matrices=3, heads=128, kv_heads=8, qk_dim=128, v_dim=128, query_rank=0,
             kv_rank=0, rope_dim=0, vocab=128256, tied_embeddings=0, learned_positions=0, moe_layers=0, experts=0,
             experts_per_token=0, shared_experts=0, expert_ffn=0, local_layers_fraction=0, window_tokens=1e9,
             parallel_layers=0)  # fmt: skip
MOE = LLAMA | dict(
    hidden=8192, heads=64, moe_layers=60, experts=64, experts_per_token=8, shared_experts=1, expert_ffn=8192
)
LATENT = LLAMA | dict(kv_heads=128, qk_dim=192, query_rank=1536, kv_rank=512, rope_dim=64)

CHIP = dict(hbm_bandwidth_bytes_per_s=8e12, hbm_efficiency=0.9, hbm_capacity_bytes=2e11, clock_ratio=1.0, power_cap_w=1e9,
            sram_bytes=1e8, core_power_w=500.0, leakage_power_w=1e-3, standby_power_w=100.0, silicon_area_m2=1e-3,
            heat_area_m2=1e-3,
            hbm_energy_j_per_byte=1e-11, matmul_efficiency=0.7,
            peak_flops_per_s=[1e14, 1e15, 2e15, 4e15, 4e15, 8e15])  # fmt: skip
LINKS = dict(level_chips=1e9, size=[1024.0, 1e6],
             bandwidth_bytes_per_s=[9e11, 5e10, 5e10], efficiency=0.9, latency_s=[1e-6, 4e-6, 6e-6],
             ramp=1.0, reduction_factor=1.0, dimensions=1.0, links=1.0, sharing=0.0, crossings=0.0, tree_step=2.0,
             latency_tail_s=0.0, bandwidth_spread=0.0)  # fmt: skip
STACK = dict(attention_scores_stored=0, gemm_half_size=0, gemm_efficiency_factor=1, expert_gemm_factor=1, routing_passes=1,
             elementwise_passes=1, cast_passes=0, kernel_launch_s=2e-6, host_layer_s=0, host_moe_layer_s=0, tp_overlap=0,
             ep_overlap=0, communication_slowdown=0, collective_launch_s=3e-6, step_overhead_s=0, jitter_sigma=0,
             dispatch_deduplicated=0, logarithmic_passes=1, memory_reserve_bytes=0, fragmentation=0,
             cache_sharded=0, cache_rereads=0)  # fmt: skip
REQUEST = dict(input_tokens=2048.0, cached_fraction=0.0, output_tokens=512.0, requests_per_s=0.0, load=0.7,
               drafted_tokens=0.0, acceptance=0.8, draft_fraction=0.0, gemm_precision=[0, 0, 1, 0, 0, 0], weight_bytes=2.0,
               kv_bytes=2.0, activation_bytes=2.0, routing_imbalance=1.0, arrival_scv=1.0, input_scv=1.0, output_scv=1.0,
               least_loaded=0.0, peak_over_mean=1.0, capacity_in_use=1.0)  # fmt: skip
ONE_CHIP = dict(tp=1.0, pp=1.0, dp=1.0, ep=1.0, expert_tp=1.0, micro_batch=1.0, fullest_stage=1.0, last_stage=1.0)


def fields(prefix: str, values: dict) -> dict:
    return {f"{prefix}__{name}": value for name, value in values.items()}


def machine(n: int, mode: str = "decode", model: dict = LLAMA, service: dict | None = None, **plan):
    """n rows of one machine without noise, that vary by what plan and service say."""
    asked, cluster, degrees = take(drawn(1, mode, n=1), np.zeros(n, int))
    asked = replace(asked, **fields("model", model), **{**REQUEST, **(service or {})})
    cluster = replace(cluster, **fields("chip", CHIP), **fields("network", LINKS), **fields("stack", STACK))
    cluster = replace(
        cluster,
        sites__count=1.0,
        rack__floor_area_m2=1e-30,
        rack__chips=2048.0,
        cooling__coolant_temperature_k=300.0,
        cooling__sink_resistance_k_per_w=1e-4,
        cooling__heat_flux_limit_w_per_m2=1e9,
    )
    degrees = replace(degrees, **{**ONE_CHIP, **plan})
    return asked, replace(cluster, chips=chips_of(degrees)), degrees


# Bytes read ----------------------------------------------------------------------------------------------------------


def bytes_read(service, cluster, plan) -> np.ndarray:
    """Weights and cached tokens that the busiest chip of each stage reads in a decoding pass, added up over stages."""
    w, rows = service.model, plan.micro_batch * (1 + service.drafted_tokens)
    copied_heads = np.maximum(w.kv_heads, plan.tp)
    latent = w.kv_rank > 0
    query_inputs = np.where(w.query_rank > 0, w.query_rank, w.hidden)
    split = query_inputs * w.heads * w.qk_dim + w.heads * w.v_dim * w.hidden
    split += np.where(latent, w.kv_rank * w.heads * (w.qk_dim - w.rope_dim + w.v_dim), 0)
    split += np.where(latent, 0, w.hidden * copied_heads * (w.qk_dim + w.v_dim))
    attention = split / plan.tp + w.hidden * (w.query_rank + w.kv_rank + w.rope_dim)
    dense = attention + w.mlp_matrices * w.hidden * w.ffn / plan.tp

    here, choosing = np.maximum(w.experts, 1) / plan.ep, rows / plan.tp * plan.ep * plan.expert_tp
    left_out = (1 - w.experts_per_token / np.maximum(w.experts, 1)) ** choosing
    all_chosen = w.experts_per_token >= w.experts
    met = np.where(all_chosen, here, np.maximum(here * (1 - left_out), 1)) * (w.experts > 0)
    expert = w.mlp_matrices * w.hidden * w.expert_ffn
    routed = attention + met * expert / plan.expert_tp + w.shared_experts * expert / plan.tp
    weights = (w.layers - w.moe_layers) * dense + w.moe_layers * routed
    sixteen_bit = w.moe_layers * w.hidden * w.experts + w.vocab * w.hidden / plan.tp

    context = service.input_tokens + service.output_tokens / 2
    kept = context * (1 - w.local_layers_fraction) + np.minimum(context, w.window_tokens) * w.local_layers_fraction
    token = np.where(latent, w.kv_rank + w.rope_dim, copied_heads / plan.tp * (w.qk_dim + w.v_dim))
    copies = np.where(latent, plan.tp, copied_heads / w.kv_heads)
    token = token / np.where(cluster.stack.cache_sharded == 1, copies, 1)
    cached = plan.micro_batch * w.layers * kept * token * service.kv_bytes
    return weights * service.weight_bytes + 2 * sixteen_bit + cached


@pytest.mark.parametrize("kind", ["gpt", "dense", "moe", "mla"])
def test_a_token_takes_at_least_its_bytes_over_the_bandwidth(kind):
    service, cluster, plan = cases = drawn(60, "decode", kind)
    report, chip = run_model(cases), cluster.chip
    least = bytes_read(service, cluster, plan) / (chip.hbm_bandwidth_bytes_per_s * chip.hbm_efficiency)
    np.testing.assert_allclose(report.floor_time_s, least, rtol=1e-9)
    assert (report.step_time_s >= least * (1 - 1e-12)).all()
    gained = report.step_time_s / report.time_per_output_token_s
    assert (report.time_per_output_token_s * gained >= least * (1 - 1e-12)).all()


@pytest.mark.parametrize("model", [LLAMA, MOE, LATENT], ids=["grouped", "experts", "latent"])
def test_a_machine_that_only_reads_takes_just_that(model):
    """Infinite arithmetic and links, no latencies, no overheads: one sequence takes its bytes over the bandwidth."""
    tp = np.array([1.0, 2.0, 4.0, 8.0, 1.0, 1.0])
    ep = np.array([1.0, 1.0, 1.0, 1.0, 4.0, 8.0]) if model is MOE else np.ones(6)
    longer = dict(input_tokens=32768.0)
    service, cluster, plan = machine(6, model=model, service=longer, tp=tp, ep=ep, expert_tp=tp, dp=ep)
    cluster = replace(
        cluster,
        chip__peak_flops_per_s=1e40,
        network__bandwidth_bytes_per_s=1e40,
        network__latency_s=0.0,
        stack__kernel_launch_s=0.0,
        stack__collective_launch_s=0.0,
        stack__elementwise_passes=0.0,
        stack__routing_passes=0.0,
    )
    report = run_model((service, cluster, plan))
    least = bytes_read(service, cluster, plan) / (8e12 * 0.9)
    assert (report.step_time_s >= least).all()
    np.testing.assert_allclose(report.step_time_s / least, 1.0, atol=1e-3)


def test_a_token_reads_all_the_experts_that_it_goes_to():
    """Two of eight, alone in its pass: not fewer, as if both choices could fall on the same one."""
    few = MOE | dict(experts=8, experts_per_token=2, shared_experts=0)
    once, twice = (run_model(machine(1, model=few | dict(expert_ffn=width))) for width in (4096.0, 8192.0))
    one_expert = 60 * 3 * few["hidden"] * 4096 * 2.0
    read_once = (twice.floor_time_s - once.floor_time_s) * 8e12 * 0.9
    np.testing.assert_allclose(read_once / one_expert, 2.0, rtol=1e-2)


def test_many_tokens_read_the_experts_that_any_of_them_goes_to():
    """Four of sixteen for each of six tokens on two chips, counted in draws at random."""
    some = MOE | dict(experts=16, experts_per_token=4, shared_experts=0)
    degrees = dict(ep=2.0, dp=2.0, micro_batch=3.0)
    once, twice = (run_model(machine(1, model=some | dict(expert_ffn=f), **degrees)) for f in (4096.0, 8192.0))
    met = (twice.floor_time_s - once.floor_time_s) * 8e12 * 0.9 / (60 * 3 * some["hidden"] * 4096 * 2.0)
    chosen = np.random.default_rng(72).permuted(np.tile(np.arange(16), (20_000, 6, 1)), axis=2)[:, :, :4]
    here = (chosen[..., None] == np.arange(8)).any((1, 2)).sum(1)
    np.testing.assert_allclose(met, here.mean(), rtol=1e-2)


# Splits --------------------------------------------------------------------------------------------------------------

STAGES = np.array([1.0, 2.0, 4.0, 8.0])


def test_stages_leave_a_single_stream_as_it_is():
    """But for what is sent between them; the head makes the last stage the slowest, which a full pipeline waits for."""
    one = run_model(machine(4, pp=STAGES, tp=4.0))
    layers_and_head = one.step_time_s - one.breakdown.pp_comm_s - one.breakdown.pp_imbalance_s
    np.testing.assert_allclose(layers_and_head, layers_and_head[0], rtol=1e-9)
    prompt = run_model(machine(4, "prefill", pp=STAGES, tp=4.0))
    latency = prompt.time_to_first_token_s - prompt.breakdown.pp_comm_s
    np.testing.assert_allclose(latency, latency[0], rtol=1e-9)


def test_stages_add_capacity():
    for batch in (1.0, 64.0):
        report = run_model(machine(4, pp=STAGES, tp=4.0, micro_batch=batch))
        np.testing.assert_allclose(report.users, batch * STAGES)
        assert (np.diff(report.tokens_per_s) > 0).all()
        assert (report.tokens_per_s <= report.tokens_per_s[0] * STAGES).all()
        assert (np.diff(report.memory.weights_bytes) < 0).all()
        np.testing.assert_allclose(
            report.memory.cache_bytes, report.memory.cache_bytes[0]
        )  # p batches, each of 1/p layers


@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_experts_split_like_the_layer_exchange_no_more_than_dense_ones(mode):
    """Outputs of experts and of shared ones are added up on each chip, then once over all."""
    tp = np.array([2.0, 8.0, 32.0])
    degrees = dict(tp=tp, expert_tp=tp, micro_batch=8.0)
    sparse, dense = (run_model(machine(3, mode, model=MOE | kind, **degrees)) for kind in ({}, dict(moe_layers=0)))
    np.testing.assert_allclose(sparse.breakdown.tp_comm_s, dense.breakdown.tp_comm_s, rtol=1e-9)
    np.testing.assert_allclose(sparse.breakdown.ep_comm_s, 0.0)


def test_experts_of_a_group_start_once():
    """Narrow experts that run as one kernel lose no more than one product as wide as all of them."""
    tokens, experts = 4096.0, np.array([1.0, 4.0, 16.0])
    model = MOE | dict(experts=experts, experts_per_token=experts, shared_experts=0, expert_ffn=16384 / experts)
    service, cluster, plan = machine(3, "prefill", model=model, service=dict(input_tokens=tokens))
    cluster = replace(cluster, stack__gemm_half_size=64.0, stack__elementwise_passes=0.0, stack__routing_passes=0.0)
    loss = run_model((service, cluster, plan)).breakdown.compute_s
    loss = loss / run_model((service, replace(cluster, stack__gemm_half_size=0.0), plan)).breakdown.compute_s
    assert (np.diff(loss) > 0).all()  # their inner sides are shorter
    assert (loss[-1] - 1) / (loss[0] - 1) < 1.5  # were each to start on its own, 1.9


def test_larger_domains_read_faster_until_latency_binds():
    """Every doubling halves the reading; a pass stops getting faster."""
    tp = 2.0 ** np.arange(10)
    many = LLAMA | dict(heads=512, kv_heads=512, qk_dim=32, v_dim=32)
    asked = dict(input_tokens=1e-3, output_tokens=1e-3)
    report = run_model(machine(10, model=many, service=asked, tp=tp))
    np.testing.assert_allclose(report.floor_time_s * tp, report.floor_time_s[0], rtol=1e-9)
    step, best = report.step_time_s, int(report.step_time_s.argmin())
    assert 2 < best < 9
    assert (np.diff(step)[:best] < 0).all() and (np.diff(step)[best:] > 0).all()
    overhead = report.breakdown.tp_comm_s + report.breakdown.host_s
    assert overhead[0] < 0.1 * step[0] and overhead[-1] > 0.5 * step[-1]


# Keys and values -----------------------------------------------------------------------------------------------------


def cache_bytes(model: dict, tokens: np.ndarray, **plan) -> np.ndarray:
    """By the mean context, in which an answer counts half."""
    asked = dict(input_tokens=tokens / 2, output_tokens=tokens)
    return run_model(machine(len(tokens), model=model, service=asked, **plan)).memory.cache_bytes


def test_keys_and_values_by_the_kind_of_attention():
    tokens, tp = np.array([1e3, 2e3, 4e3, 1.6e4]), 8.0
    users, layers = 32.0, LLAMA["layers"]
    for model, channels in (
        (LLAMA, LLAMA["kv_heads"] / tp * 256),
        (LLAMA | dict(kv_heads=128), 128 / tp * 256),
        (LLAMA | dict(kv_heads=1), 256),  # every chip has a copy of the one head
        (LATENT, 512 + 64),  # and of the latent
    ):
        expected = users * layers * tokens * channels * 2.0
        np.testing.assert_allclose(cache_bytes(model, tokens, tp=tp, micro_batch=users), expected, rtol=1e-12)


@pytest.mark.parametrize("model", [LLAMA, LATENT], ids=["grouped", "latent"])
def test_chips_that_share_keys_and_values_keep_a_part_each(model):
    """No copies, for an exchange of queries; as many bytes on all chips as on one."""
    tp = np.array([1.0, 8.0, 16.0, 64.0])
    service, cluster, plan = machine(4, model=model, tp=tp, micro_batch=32.0)
    copied, parted = (run_model((service, replace(cluster, stack__cache_sharded=share), plan)) for share in (0.0, 1.0))
    np.testing.assert_allclose(parted.memory.cache_bytes * tp, parted.memory.cache_bytes[0])
    copies = tp if model is LATENT else np.maximum(tp / 8, 1)
    np.testing.assert_allclose(copied.memory.cache_bytes / parted.memory.cache_bytes, copies)
    assert ((parted.breakdown.tp_comm_s > copied.breakdown.tp_comm_s) == (copies > 1)).all()


def test_layers_side_by_side_exchange_once():
    tp = np.array([2.0, 8.0, 64.0])
    parallel, half = (
        run_model(machine(3, model=LLAMA | kind, tp=tp)) for kind in (dict(parallel_layers=1), dict(layers=32))
    )
    np.testing.assert_allclose(parallel.breakdown.tp_comm_s, half.breakdown.tp_comm_s, rtol=1e-9)


def test_windows_fill_up():
    tokens = np.array([1e3, 2e3, 4e3, 8e3, 1.6e4])
    windowed = LLAMA | dict(local_layers_fraction=1.0, window_tokens=4096.0)
    kept = cache_bytes(windowed, tokens)
    np.testing.assert_allclose(kept[1:3] / kept[:2], 2.0)
    np.testing.assert_allclose(kept[3:], kept[3])
    half = cache_bytes(windowed | dict(local_layers_fraction=0.5), tokens)
    np.testing.assert_allclose(half, 0.5 * (kept + cache_bytes(LLAMA, tokens)))


# Flows ---------------------------------------------------------------------------------------------------------------


def without_first(service) -> np.ndarray:
    """Tokens of an answer but for the one that the prompt's pass makes."""
    return np.maximum(service.output_tokens - 1, 1)


@pytest.mark.parametrize("mode", ["serve", "decode"])
def test_users_are_tokens_a_second_times_their_time(mode):
    """Little's law; as many as the machine has room for."""
    service, _, plan = cases = drawn(61, mode)
    report = run_model(cases)
    tokens = without_first(service) if mode == "serve" else service.output_tokens
    expected = report.requests_per_s * tokens * report.time_per_output_token_s
    np.testing.assert_allclose(report.users, expected, rtol=1e-9)
    np.testing.assert_allclose(report.users, plan.micro_batch * plan.pp * plan.dp, rtol=1e-9)


def test_users_of_two_groups_are_tokens_a_second_times_their_time():
    """Where prompts or links hold the machine back, fewer sequences are under way than it has room for."""
    service, _, plan = cases = drawn(62, "disaggregated")
    report = run_model(cases)
    expected = report.requests_per_s * without_first(service) * report.time_per_output_token_s
    np.testing.assert_allclose(report.users, expected, rtol=1e-9)
    room = plan.decode.micro_batch * plan.decode.pp * plan.decode.dp
    assert (report.users <= room * (1 + 1e-12)).all()
    assert 10 < np.isclose(report.users, room).sum() < ROWS - 10


@pytest.mark.parametrize("mode", ["serve", "prefill", "decode", "disaggregated"])
def test_a_machine_answers_the_requests_that_arrive(mode):
    """As many as it can where so many come; with fewer each costs more, and none takes less time."""
    service, cluster, plan = drawn(73, mode)
    most = run_model((service, cluster, plan))
    capacity = most.requests_per_s
    np.testing.assert_allclose(most.capacity_requests_per_s, capacity)
    full, half, many = (
        run_model((replace(service, requests_per_s=share * capacity), cluster, plan)) for share in (1.0, 0.5, 1.1)
    )
    users = ["users"] if mode in ("serve", "decode") else []  # prompts may hold the other machines back
    for name in (*PER_TOKEN, *users, "power_w"):
        np.testing.assert_allclose(getattr(full, name), getattr(most, name), rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(full.margins.demand, 0.0, atol=1e-12)
    np.testing.assert_allclose(half.requests_per_s, 0.5 * capacity, rtol=1e-9)
    np.testing.assert_allclose(half.capacity_requests_per_s, capacity, rtol=1e-9)
    np.testing.assert_allclose(half.margins.demand, np.log(2.0), rtol=1e-9)
    of_full_batches = ("time_to_first_token_full_batch_s", "time_per_output_token_full_batch_s")
    for name in (*of_full_batches, "memory_per_chip_bytes", "capex_usd"):
        np.testing.assert_allclose(getattr(half, name), getattr(most, name), rtol=1e-9, err_msg=name)
    assert (half.cost_per_token_usd > most.cost_per_token_usd).all()
    assert (half.power_w < most.power_w).all()
    assert not many.feasible.any()


LATENCIES = {
    "serve": ("time_to_first_token", "time_per_output_token"),
    "prefill": ("time_to_first_token",),
    "decode": ("time_per_output_token",),
    "disaggregated": ("time_to_first_token", "time_per_output_token"),
}


@pytest.mark.parametrize("mode", LATENCIES)
def test_means_and_percentiles_are_of_one_load(mode):
    """Percentiles rise with their level, means with the load; a mean is below p99 unless fewer than 1 of 100 wait for long."""
    service, cluster, plan = drawn(74, mode, n=4 * ROWS)
    capacity = run_model((service, cluster, plan)).requests_per_s
    less = {}
    for load in (0.2, 0.5, 0.8, 0.95):
        report = run_model((replace(service, requests_per_s=load * capacity), cluster, plan))
        np.testing.assert_allclose(report.busiest_load, load, rtol=1e-9)
        for name in LATENCIES[mode]:
            mean, p50, p95, p99 = (getattr(report, f"{name}{level}_s") for level in ("", "_p50", "_p95", "_p99"))
            assert ((p50 > 0.0) & (p50 <= p95 * (1 + 1e-9)) & (p95 <= p99 * (1 + 1e-9))).all()
            assert np.mean(mean <= p99 * (1 + 1e-9)) >= (1.0 if name == "time_per_output_token" else 0.99)
            assert np.mean(mean >= less.get(name, 0.0) * (1 - 1e-9)) >= 0.99
            less[name] = mean
        if mode == "serve":
            below = report.time_per_output_token_s <= report.time_per_output_token_full_batch_s * (1 + 1e-9)
            assert below.mean() >= 0.99  # a sequence alone may take longer than one of a full batch in a pipeline
        if mode in ("serve", "disaggregated"):
            later = service.output_tokens - 1.0
            answered = report.time_to_first_token_s + later * report.time_per_output_token_s
            np.testing.assert_allclose(report.request_time_s, answered, rtol=1e-9)


def flops_of_a_request(report, cluster) -> np.ndarray:
    return report.model_flops_per_chip_per_s * cluster.chips / report.requests_per_s


def test_a_request_is_a_prompt_and_an_answer():
    """By arithmetic: what both take together is what each takes alone, but that the prompt's pass makes the first token."""
    service, cluster, plan = drawn(63, "serve")
    both = run_model((service, cluster, plan))
    prompt = run_model((replace(service, decodes=0.0), cluster, plan))
    answer = run_model((replace(service, prefills=0.0), cluster, plan))
    left = without_first(service) / service.output_tokens
    alone = flops_of_a_request(prompt, cluster) + left * flops_of_a_request(answer, cluster)
    np.testing.assert_allclose(flops_of_a_request(both, cluster), alone, rtol=1e-9)
    np.testing.assert_allclose(prompt.tokens_per_s, prompt.requests_per_s * service.new_tokens, rtol=1e-9)
    np.testing.assert_allclose(both.tokens_per_s, both.requests_per_s * service.output_tokens, rtol=1e-9)
    assert (both.requests_per_s <= answer.requests_per_s / left * (1 + 1e-12)).all()


def test_tokens_of_a_prompt_meet_those_before_them_within_the_window():
    """Counted token by token; every second layer has a window."""
    windowed = LLAMA | dict(local_layers_fraction=0.5, window_tokens=1024.0)
    for prompt, cached in ((512, 0.0), (2048, 0.0), (8192, 0.0), (8192, 0.75), (1536, 0.5)):
        asked = dict(input_tokens=float(prompt), cached_fraction=cached)
        case = machine(1, "prefill", model=windowed, service=asked)
        report = run_model(case)
        none = run_model(machine(1, "prefill", model=windowed | dict(v_dim=1e-30, qk_dim=1e-30), service=asked))
        before = np.arange(int(prompt * cached), prompt) + 0.5
        met = np.sum(0.5 * before + 0.5 * np.minimum(before, 1024.0))
        core = 64 * 2 * met * 128 * 256
        projections = 64 * 2 * (prompt * (1 - cached)) * 16384 * 128 * 2 * (128 + 8)
        actual = flops_of_a_request(report, case[1]) - flops_of_a_request(none, case[1]) - projections
        np.testing.assert_allclose(actual, core, rtol=1e-3, err_msg=f"{prompt} tokens, {cached} cached")


def test_two_groups_give_what_the_slower_one_gives():
    service, cluster, plan = drawn(64, "disaggregated")
    cluster = replace(cluster, network__bandwidth_bytes_per_s=1e30, network__latency_s=0.0, network__latency_tail_s=0.0)
    cluster = replace(cluster, rack__floor_area_m2=1e-30)
    both = run_model((service, cluster, plan))
    prompts = run_model((replace(service, decodes=0.0), cluster, plan.prefill))
    answers = run_model((replace(service, prefills=0.0), cluster, plan.decode))
    prompts_per_s = prompts.requests_per_s * service.load
    answers_per_s = answers.requests_per_s * service.output_tokens / without_first(service)
    np.testing.assert_allclose(both.requests_per_s, np.minimum(prompts_per_s, answers_per_s), rtol=1e-9)
    assert 10 < (prompts_per_s < answers_per_s).sum() < ROWS - 10
    both_s, answers_s = (each.time_per_output_token_full_batch_s for each in (both, answers))
    np.testing.assert_allclose(both_s, answers_s, rtol=1e-9)


def pair(prefill: dict, decode: dict):
    """Two groups of chips on the machine of `machine`, and the bytes that a prompt leaves behind."""
    n = max(np.size(value) for value in (*prefill.values(), *decode.values()))
    service, cluster, plan = machine(n, "serve")
    plan = Disaggregated(prefill=replace(plan, **prefill), decode=replace(plan, **decode))
    return (service, replace(cluster, chips=chips_of(plan)), plan), 64 * 2048 * 8 * 256 * 2.0


def test_keys_and_values_take_their_time_however_small_the_group_they_come_from():
    """A few chips that prefill for one large replica send over the same links as many."""
    cases, size = pair(dict(tp=8.0, dp=np.array([1.0, 2.0, 8.0, 64.0])), dict(tp=64.0))
    report = run_model(cases)
    np.testing.assert_allclose(report.kv_transfer_s, report.kv_transfer_s[-1], rtol=1e-9)
    assert (report.kv_transfer_s >= size / 8 / (9e11 * 0.9)).all()


def test_links_of_all_chips_of_a_group_work_at_once():
    """64 chips each with a prompt of its own fill the links of 64 chips that share theirs; so do copies of the heads."""
    share = np.array([2.0, 8.0, 16.0, 64.0])
    (service, cluster, plan), size = pair(dict(tp=1.0, dp=64.0), dict(tp=share, dp=64 / share, micro_batch=4096.0))
    slow = replace(cluster, network__bandwidth_bytes_per_s=1e6)
    report = run_model((replace(service, output_tokens=1.0), slow, plan))
    copies = np.maximum(share / LLAMA["kv_heads"], 1)
    np.testing.assert_allclose(report.requests_per_s, 64 * 1e6 * 0.9 / size / copies, rtol=1e-2)


# Drafts --------------------------------------------------------------------------------------------------------------


def test_rejected_drafts_gain_nothing():
    service, cluster, plan = drawn(65, "decode")
    plain = run_model((replace(service, drafted_tokens=0.0), cluster, plan))
    rejected = run_model((replace(service, drafted_tokens=4.0, acceptance=0.0), cluster, plan))
    np.testing.assert_allclose(rejected.time_per_output_token_s, rejected.step_time_s, rtol=1e-12)
    assert (rejected.tokens_per_s <= plain.tokens_per_s * (1 + 1e-12)).all()


def test_accepted_drafts_gain_one_token_each_and_one_more():
    service, cluster, plan = drawn(66, "decode")
    drafted = np.resize([1.0, 2.0, 4.0, 8.0], ROWS)
    accepted = run_model((replace(service, drafted_tokens=drafted, acceptance=1.0), cluster, plan))
    np.testing.assert_allclose(accepted.step_time_s, accepted.time_per_output_token_s * (drafted + 1), rtol=1e-12)


@pytest.mark.parametrize("mode", ["serve", "decode"])
def test_free_drafts_that_are_accepted_are_never_slower(mode):
    service, cluster, plan = drawn(67, mode)
    plain = run_model((replace(service, drafted_tokens=0.0), cluster, plan))
    free = run_model((replace(service, drafted_tokens=4.0, acceptance=1.0, draft_fraction=0.0), cluster, plan))
    assert (free.time_per_output_token_s <= plain.time_per_output_token_s * (1 + 1e-12)).all()
    assert (free.tokens_per_s >= plain.tokens_per_s * (1 - 1e-12)).all()


def test_drafts_that_are_accepted_more_often_gain_more():
    service, cluster, plan = drawn(68, "decode")
    gains = [0.0, 0.2, 0.6, 0.9, 0.999, 0.99999, 1.0]
    rates = [run_model((replace(service, drafted_tokens=5.0, acceptance=a), cluster, plan)).tokens_per_s for a in gains]
    assert (np.diff(rates, axis=0) > 0).all()


# Scale ---------------------------------------------------------------------------------------------------------------

PER_TOKEN = ("cost_per_token_usd", "energy_per_token_j", "carbon_per_token_kg", "tokens_per_s_per_chip",
             "time_to_first_token_full_batch_s", "time_per_output_token_full_batch_s", "mfu", "goodput")  # fmt: skip


def doubled_replicas(cases):
    """Reports of so many replicas and of twice as many, where light takes no time."""
    service, cluster, plan = cases
    cluster = replace(cluster, sites__count=1.0, rack__floor_area_m2=1e-30, **SAME_AT_ANY_SIZE)
    each = (replace(plan, dp=plan.dp * factor, ep=np.minimum(plan.ep, plan.tp), expert_tp=1.0) for factor in (1.0, 2.0))
    return [run_model((service, replace(cluster, chips=chips_of(p)), p)) for p in each]


@pytest.mark.parametrize("mode", ["serve", "prefill", "decode", "disaggregated"])
def test_prices_of_prompts_and_answers_add_up_to_the_cost_of_a_request(mode):
    service, cluster, plan = cases = drawn(72, mode)
    report = run_model(cases)
    new, out = service.input_tokens * (1.0 - service.cached_fraction), service.output_tokens
    prompts, answers = new * report.cost_per_input_token_usd, out * report.cost_per_output_token_usd
    paid = report.cost_per_token_usd * (new if mode == "prefill" else out)
    np.testing.assert_allclose(np.nan_to_num(prompts) + np.nan_to_num(answers), paid, rtol=1e-9)
    assert np.isnan(prompts).all() == (mode == "decode") and np.isnan(answers).all() == (mode == "prefill")
    if mode == "serve":  # an answer alone costs what its passes would without prompts
        assert ((prompts >= 0.0) & (answers > 0.0) & (answers <= paid * (1 + 1e-9))).all()
        # Where the host holds up passes with prompts alone, longer ones hide below it.
        longer = replace(service, input_tokens=2.0 * service.input_tokens)
        alike = replace(cluster, stack__passes_graphed=0.0)
        less, more = (new_of * run_model((asked, alike, plan)).cost_per_input_token_usd
                      for asked, new_of in ((service, new), (longer, 2.0 * new)))  # fmt: skip
        assert (more >= less * (1 - 1e-9)).all()
    if mode == "disaggregated":
        share = report.prefill_chips / (report.prefill_chips + report.decode_chips)
        np.testing.assert_allclose(prompts, share * paid, rtol=1e-9)


@pytest.mark.parametrize("mode", ["serve", "prefill", "decode"])
def test_twice_the_replicas_cost_the_same_a_token(mode):
    service, cluster, plan = drawn(69, mode)
    once, twice = doubled_replicas((service, cluster, replace(plan, pp=1.0, fullest_stage=1.0, last_stage=1.0)))
    for name in PER_TOKEN:
        np.testing.assert_allclose(getattr(twice, name), getattr(once, name), rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(twice.tokens_per_s, 2 * once.tokens_per_s, rtol=1e-9)


def test_replicas_do_not_push_the_stages_of_another_apart():
    """Two stages of four chips in a domain of eight stay in it, whatever stands beside them."""
    service, cluster, plan = machine(4, tp=4.0, pp=2.0, dp=np.array([1.0, 2.0, 4.0, 64.0]))
    cluster = replace(cluster, network__size=[8.0, 1e6])
    report = run_model((service, cluster, plan))
    np.testing.assert_allclose(report.breakdown.pp_comm_s, report.breakdown.pp_comm_s[0], rtol=1e-9)


# Convexity -----------------------------------------------------------------------------------------------------------

HARDWARE = ("chip__hbm_bandwidth_bytes_per_s", "chip__clock_ratio", "chip__hbm_capacity_bytes", "network__latency_s",
            "network__bandwidth_bytes_per_s")  # fmt: skip
CONVEX = ("step_time_s", "time_to_first_token_full_batch_s", "cost_per_token_usd", "energy_per_token_j")


def unhurried(cluster):
    """The same clusters with nothing that throttles a chip, and with domains inside their racks."""
    return replace(
        cluster,
        chip__power_cap_w=1e9,
        cooling__heat_flux_limit_w_per_m2=1e12,
        cooling__sink_resistance_k_per_w=1e-6,
        cooling__area_resistance_k_m2_per_w=1e-8,
        cooling__coolant_temperature_k=300.0,
        network__size=np.minimum(cluster.network.size, cluster.rack.chips[:, None] * [0.9, 1e9]),
    )


@pytest.mark.parametrize("mode", picked(["serve", "prefill", "disaggregated"], 1))
def test_logarithms_are_convex_in_those_of_the_hardware(mode):
    service, cluster, plan = drawn(70, mode, n=2 * ROWS)
    cluster, rng = unhurried(cluster), np.random.default_rng(71)
    moves = {path: rng.normal(0, 0.7, np.shape(read(cluster, path))) for path in HARDWARE}
    shares = np.linspace(-1, 1, 9)
    logs = {name: [] for name in CONVEX}
    for share in shares:
        here = replace(cluster, **{path: read(cluster, path) * np.exp(share * move) for path, move in moves.items()})
        report = run_model((service, here, plan))
        assert (report.clock_margin > 0).all()
        for name in CONVEX:
            logs[name].append(np.log(getattr(report, name)))
    for name, values in logs.items():
        values = np.array(values)
        bend = values[:-2] - 2 * values[1:-1] + values[2:]
        slack = 1e-9 * np.abs(values).max(0)
        assert (bend >= -slack).all(), f"{name}: {bend.min():.2e} at {np.argwhere(bend < -slack)[:5].tolist()}"
        assert bend.max() > 1e-3
