"""Launch settings of a serving plan: supported software, settings of each chip group, rendering as text and JSON."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hwopt import escape
from hwopt.errors import UserError
from hwopt.model.report import ServingReport
from hwopt.model.serving.footprint import CHUNK_TOKENS
from hwopt.output.export import dynamo, sglang, tensorrt_llm, vllm
from hwopt.output.export.engine import Engine, Written
from hwopt.output.export.groups import LENGTH_DEVIATIONS, EngineGroup, groups_of
from hwopt.output.export.header import FIRST_HOST, Launch, host_count, slurm
from hwopt.output.export.limits import refusal
from hwopt.output.export.megatron import array_lines
from hwopt.workload.service import Service

ENGINES: dict[str, Engine] = {
    "vllm": vllm.ENGINE,
    "sglang": sglang.ENGINE,
    "tensorrt-llm": tensorrt_llm.ENGINE,
    "dynamo-vllm": dynamo.VLLM,
    "dynamo-sglang": dynamo.SGLANG,
    "dynamo-tensorrt-llm": dynamo.TENSORRT_LLM,
}
"""Name of a serving software -> its engine, for all software whose launch settings can be exported."""

_ROUTED = {
    "vllm": "a proxy, such as the one in vLLM's examples of disaggregated serving, must send requests to prefill, then to "
    "decode",
    "sglang": "requests go through python -m sglang_router.launch_router --pd-disaggregation",
    "tensorrt-llm": "requests go through trtllm-serve disaggregated --config, a file with the addresses of context_servers and "
    "generation_servers",
}
"""Router needed in front of separate prefill and decode groups, by engine. Dynamo needs none: it has its own frontend."""

_NEARLY_FULL = 0.9
"""Share of a chip's memory above which an engine's memory limit is stated, as its default may be lower."""

_USUAL_TOKENS = 8192
"""Default maximum of tokens in a pass of an engine (`max_num_tokens` of TensorRT-LLM)."""


class LaunchGroup(NamedTuple):
    """Group of chips: the number of instances, and the command that starts an instance on each of its hosts."""

    role: str
    instances: int
    chips_per_instance: int
    hosts_per_instance: int
    command: str
    arguments: dict[str, Any]
    config: dict[str, Any]  # content of the file that --config names; empty for none
    start: str


class LaunchSettings(NamedTuple):
    """Launch settings of a serving engine for one plan, and notes on parts of the plan that they cannot express.

    `groups`: settings of each group of chips, such as prefill and decode.
    """

    framework: str
    title: str
    version: str
    groups: list[LaunchGroup]
    notes: list[str]
    predicted: dict[str, float]
    passed: str


def launch_settings(framework: str, launch: Launch) -> LaunchSettings:
    """Return the settings of a serving framework for a service under a concrete plan.

    **Arguments:** `framework`: a key of `ENGINES`.

    **Raises:** `UserError` for a plan or a format that the framework cannot express.
    """
    engine, service, report = ENGINES[framework], launch.workload, launch.report
    if why := refusal(engine.limits, service, launch.plan):
        raise UserError(f"{engine.title} cannot express {why}")
    groups = [
        replace(each, checkpoint=launch.checkpoint, checkpoint_bytes=launch.checkpoint_bytes)
        for each in groups_of(service, launch.plan)
    ]
    written = [engine.write(group) for group in groups]
    hosts = [_hosts(each, launch) for each in groups]
    started = [_launch(engine, report, *each) for each in zip(groups, written, hosts, strict=True)]
    notes = [*_plugins(engine, launch.families), *_notes(framework, service, groups, written, report)]
    if engine.hosts is None:
        notes += [
            f"an instance for {each.role} spans {each.hosts_per_instance} servers: your launcher sets ranks and addresses"
            for each in started
            if each.hosts_per_instance > 1
        ]
    return LaunchSettings(
        framework, engine.title, engine.version, started, list(dict.fromkeys(notes)), launch.predicted, launch.passed
    )


def _plugins(engine: Engine, families: Sequence[str]) -> list[str]:
    """Return a note for each chip family that needs a plugin of the engine."""
    plugins = [engine.plugins[family] for family in families if family in engine.plugins]
    return [f"needs the plugin {name} on these chips, which may not support all arguments" for name in plugins]


def _hosts(group: EngineGroup, launch: Launch) -> int:
    """Return the number of hosts of an instance."""
    own = None if launch.report.groups is None else launch.report.groups[group.role]
    chips, servers = (launch.plan.chips, launch.report.servers) if own is None else (own.group_chips, own.group_servers)
    return host_count(group.chips, group.chips * float(servers) / float(chips))


def _launch(engine: Engine, report: ServingReport, group: EngineGroup, written: Written, hosts: int) -> LaunchGroup:
    """Return the settings of a group, with the command that starts an instance on every host of it."""
    arguments = dict(written.arguments)
    if (shares := _shares(report))["used"] > _NEARLY_FULL:
        arguments[engine.memory[0]] = shares[engine.memory[1]]
    if written.config:
        arguments["--config"] = f"{group.role}.yaml"
    start = f'{engine.command} "${{{group.role.upper()}_ARGS[@]}}"'
    if hosts > 1 and engine.hosts is not None:
        start = " ".join([start, *engine.hosts(hosts)])
    return LaunchGroup(
        group.role, group.instances, group.chips, hosts, engine.command, arguments, written.config, start
    )


def _notes(
    framework: str, service: Service, groups: list[EngineGroup], written: list[Written], report: ServingReport
) -> list[str]:
    two = len(groups) > 1
    notes = [note for each in written for note in each.notes]
    length, deviations = groups[0].length, f"{LENGTH_DEVIATIONS:g} standard deviations"
    spread = [f"{100 * math.sqrt(float(scv)):.3g} %" for scv in (service.input_scv, service.output_scv)]
    each = f"prompt {spread[0]}, answer {spread[1]} of its mean"
    notes.append(
        f"{length:,} tokens per request: mean prompt and answer, plus {deviations} each ({each}); set your maximum"
    )
    notes += [
        f"{group.role}: up to {group.tokens:,} tokens in a pass, those of the plan's fullest pass" for group in groups
    ]
    if (tokens := max(group.tokens for group in groups)) > _USUAL_TOKENS:
        notes.append(
            f"{tokens:,} tokens per pass: the plan assumes working memory for {CHUNK_TOKENS:.0f}; reduce them if memory runs out"
        )
    if float(service.cached_fraction):
        cached = f"{100 * float(service.cached_fraction):.3g} % of prompts"
        notes.append(f"the plan assumes that {cached} are in the prefix cache, which is on by default")
    if any(group.drafted for group in groups):
        notes.append("replace DRAFT_MODEL by the path of the draft model")
    if framework.startswith("dynamo"):
        notes.append("requests go through python -m dynamo.frontend, which discovers the workers")
    if two and framework in _ROUTED:
        notes.append(_ROUTED[framework])
    elif not two and groups[0].role != "serve":
        other = "decode" if groups[0].role == "prefill" else "prefill"
        notes.append(f"these settings are for {groups[0].role} only: {other} needs its own")
    if not two and groups[0].instances > 1 and not framework.startswith("dynamo"):
        notes.append(f"run {groups[0].instances:,} copies behind a load balancer")
    return [
        *notes,
        "not known: name of the model (MODEL), ports, trust in remote code, attention and MoE kernels; the engine reads norms, "
        "positions, biases and router from the checkpoint's config.json",
    ]


def _shares(report: ServingReport) -> dict[str, float]:
    """Return the shares of the fullest chip's memory that `Engine.memory` names, rounded up to whole percent."""
    parts: Any = report.memory
    capacity = float(report.memory_capacity_bytes)
    weights, cache = float(parts.weights_bytes), float(parts.cache_bytes)
    values = {
        "used": float(report.memory_per_chip_bytes) / capacity,
        "static": (weights + cache) / capacity,
        "cache": cache / (capacity - weights),
    }
    return {name: math.ceil(100.0 * value - 1e-6) / 100.0 for name, value in values.items()}


def launch_document(settings: LaunchSettings) -> dict[str, Any]:
    """Return launch settings as a dictionary for JSON."""
    return settings._asdict() | {"groups": [group._asdict() for group in settings.groups]}


def launch_text(settings: LaunchSettings, launch: Launch) -> str:
    """Return settings as a script of bash: header, then for each group its configuration file, arguments and command."""
    chips = sum(group.instances * group.chips_per_instance for group in settings.groups)
    said = launch.lines(f"{settings.title} {settings.version}, {chips:,} chips")
    lines = [*said, *(f"- {note}" for note in settings.notes)]
    two = len(settings.groups) > 1
    for group in settings.groups:
        copies = (
            f"{group.instances:,} {'copies' if group.instances > 1 else 'copy'} of {group.chips_per_instance:,} chips"
        )
        hosts, script = group.hosts_per_instance, " ".join(["bash serve.sh", *([group.role] if two else [])])
        lines.append(f"{group.role}, {copies}, each: {slurm(hosts, group.chips_per_instance // hosts, script)}")
    lines = [*map(escape.comment, lines), "MODEL=${MODEL:?path or name of the model}"]
    if any(group.hosts_per_instance > 1 for group in settings.groups):
        lines += [FIRST_HOST, "NODE_RANK=${NODE_RANK:-${SLURM_NODEID:?number of this host, from 0}}"]
    for group in settings.groups:
        if group.config:
            lines += [f"cat > {group.role}.yaml <<'END'", json.dumps(group.config, indent=2), "END"]
        lines += array_lines(f"{group.role.upper()}_ARGS", group.arguments)
    if not two:
        return "\n".join([*lines, settings.groups[0].start])
    cases = [f"  {group.role}) {group.start} ;;" for group in settings.groups]
    return "\n".join([*lines, 'case "${1:?prefill or decode}" in', *cases, "esac"])
