"""Claims about what must be held: weights, states, activations, checkpoints."""

from __future__ import annotations

import functools

import jax

from hwopt import catalog
from hwopt.model.facility.reliability import checkpoint_bytes
from hwopt.workload.transformer import total_parameters
from results.claims.claim import Finding, at_least, by_factor, claim, either
from results.claims.machines import estimate, si


def _parameters(workload: str) -> float:
    with jax.enable_x64(True):
        return float(total_parameters(catalog.transformer(workload)))


@functools.cache
def _held_bytes(workload: str, chip: str, chips: int) -> dict[str, float]:
    """What a whole machine holds of one model, everything sharded, so that nothing is held twice."""
    run = catalog.training_run(workload)
    plan = catalog.plan(run, chips, tp=8, zero=3, micro_batch=1)
    memory = estimate(run, catalog.cluster(chip, chips), plan).memory
    return {name.removesuffix("_bytes"): chips * float(value) for name, value in memory._asdict().items()}


@claim("A2", "000:25", "models of hundreds of billions of parameters need terabytes")
def states_of_large_models() -> Finding:
    found = {
        name: sum(_held_bytes(name, "h100-sxm", 256)[part] for part in ("weights", "gradients", "optimizer"))
        for name in ("gpt3-175b", "llama3.1-405b")
    }
    small, large = found.values()
    held, parameters = _held_bytes("gpt3-175b", "h100-sxm", 256), _parameters("gpt3-175b")
    return Finding(
        f"{small / 1e12:.2f} TB for 175 B, {large / 1e12:.2f} TB for 405 B parameters",
        at_least(small, 1e12),
        f"to train, before activations: {held['weights'] / parameters:.0f} B a parameter of weights, "
        f"{held['gradients'] / parameters:.0f} of gradients, {held['optimizer'] / parameters:.0f} of master copy and moments; "
        f"to serve in 16 bit {2 * parameters / 1e12:.2f} and {2 * _parameters('llama3.1-405b') / 1e12:.2f} TB: not terabytes",
    )


@claim("A19", "001:42", "the weights of a 540 B model take about 1 TB")
def palm_weights() -> Finding:
    weights = 2.0 * _parameters("palm-540b")
    return Finding(
        f"{weights / 1e12:.2f} TB",
        by_factor(weights, 1e12),
        f"{_parameters('palm-540b') / 1e9:.0f} B parameters of PaLM's shape x 2 B in 16 bit; twice that in fp32",
    )


@claim("A20", "001:42", "gradients, optimizer states and activations come on top of the weights")
def palm_states() -> Finding:
    held = _held_bytes("palm-540b", "h100-sxm", 512)
    weights, gradients, optimizer, activations = (
        held[part] for part in ("weights", "gradients", "optimizer", "activations")
    )
    on_top = gradients + optimizer + activations
    return Finding(
        f"weights {weights / 1e12:.2f} TB, gradients {gradients / 1e12:.2f} TB, optimizer {optimizer / 1e12:.2f} TB, "
        f"activations {activations / 1e12:.1f} TB",
        either(min(gradients, optimizer, activations) > 0.0),
        f"PaLM-540B on 512 chips, one sequence to each eight, nothing recomputed: {on_top / weights:.0f} times the weights "
        "come on top",
    )


@claim("A27", "001:58", "a checkpoint of 175 B parameters with optimizer states is 1.4 TB")
def checkpoint_of_175b() -> Finding:
    run, parameters = catalog.training_run("gpt3-175b"), _parameters("gpt3-175b")
    with jax.enable_x64(True):
        size = float(checkpoint_bytes(parameters, run))
    short = size - parameters * float(run.moment_bytes) / 2.0  # moments in 16 bit
    return Finding(
        f"{size / 1e12:.2f} TB, {short / 1e12:.2f} TB with 16-bit moments",
        by_factor(short, 1.4e12),
        f"{size / parameters:.0f} B a parameter: weights 2, master copy 4, two moments 8, or 4 in 16 bit; BLOOM's was 2.3 TB, "
        f"OPT-175B kept 1.6; 1.4 TB is {1.4e12 / parameters:.0f} B a parameter",
    )


@claim("A43", "003:24", "175 B parameters in fp16 take 350 GB and do not fit an A100 of 80 GB")
def weights_over_a100() -> Finding:
    weights, room = 2.0 * _parameters("gpt3-175b"), si("chips", "a100-80", "memory_capacity")
    fits = either(weights > room)
    return Finding(
        f"{weights / 1e9:.0f} GB over {room / 1e9:.1f} GB",
        by_factor(weights, 350e9) if fits == "holds" else fits,
        f"{weights / room:.1f} chips for the weights alone; {weights / 4 / 1e9:.0f} GB in 4 bit do not fit either",
    )
