"""Launch settings of a serving plan: supported software, settings of each chip group, rendering as text and JSON."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hwopt import escape
from hwopt.model.report import ServingReport
from hwopt.model.serving.footprint import CHUNK_TOKENS
from hwopt.output.export import dynamo, sglang, tensorrt_llm, vllm
from hwopt.output.export.engine import Engine, Written
from hwopt.output.export.first_group import first_told
from hwopt.output.export.groups import LENGTH_DEVIATIONS, EngineGroup, groups_of
from hwopt.output.export.megatron import array_lines
from hwopt.plan import Disaggregated, Plan
from hwopt.planning.plan_table import PlanCandidate
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
    "vllm": "requests go to prefill first, then with its answer to decode: by a proxy, such as that of vLLM's examples of "
    "disaggregated serving",
    "sglang": "requests go through python -m sglang_router.launch_router --pd-disaggregation",
    "tensorrt-llm": "requests go through trtllm-serve disaggregated --config, a file with the addresses of context_servers and "
    "generation_servers",
}
"""Router needed in front of separate prefill and decode groups, by engine. Dynamo needs none: it has its own frontend."""

_NEARLY_FULL = 0.9
"""Share of a chip's memory above which an engine's default memory limit must be raised."""

_USUAL_TOKENS = 8192
"""Default maximum of tokens in a pass of an engine (`max_num_tokens` of TensorRT-LLM)."""


class LaunchGroup(NamedTuple):
    """Group of chips: the number of instances, and the command that starts one."""

    role: str
    instances: int
    chips_per_instance: int
    command: str
    arguments: dict[str, Any]
    config: dict[str, Any]  # content of the file that --config names; empty for none


class LaunchSettings(NamedTuple):
    """Launch settings of a serving engine for one plan, and notes on parts of the plan that they cannot express.

    `groups`: settings of each group of chips, such as prefill and decode.
    """

    framework: str
    title: str
    version: str
    groups: list[LaunchGroup]
    notes: list[str]


def launch_settings(
    framework: str,
    service: Service,
    plan: Plan | Disaggregated,
    report: ServingReport,
    families: Sequence[str] = (),
    checkpoint: str = "",
) -> LaunchSettings:
    """Return the settings of a serving framework for a service under a concrete plan.

    **Arguments:**

    - `framework`: a key of `ENGINES`.
    - `families`: families of the chips that the plan uses.
    - `checkpoint`: format of the published weights, from `hwopt.catalog.checkpoint`.

    **Raises:** `UserError` for a plan that the framework cannot express.
    """
    engine = ENGINES[framework]
    groups = [replace(each, checkpoint=checkpoint) for each in groups_of(service, plan)]
    written = [engine.write(group) for group in groups]
    return LaunchSettings(
        framework,
        engine.title,
        engine.version,
        [_launch(engine, group, each) for group, each in zip(groups, written, strict=True)],
        list(dict.fromkeys([*_plugins(engine, families), *_notes(framework, service, groups, written, report)])),
    )


def launchable(
    framework: str,
    service: Service,
    ranked: Sequence[PlanCandidate],
    families: Sequence[str] = (),
    checkpoint: str = "",
) -> LaunchSettings:
    """Return the settings of the best-ranked plan that the framework can express, with a note where that is not the best plan.

    **Raises:** `UserError` where it can express none of the plans.
    """
    write = lambda each: launch_settings(framework, service, each.plan, each.report, families, checkpoint)
    return first_told(f"--export {framework}", ENGINES[framework].title, ranked, write)


def _plugins(engine: Engine, families: Sequence[str]) -> list[str]:
    """Return a note for each chip family that needs a plugin of the engine."""
    plugins = [engine.plugins[family] for family in families if family in engine.plugins]
    return [f"runs on these chips by the plugin {name}, which may know fewer of the arguments" for name in plugins]


def _launch(engine: Engine, group: EngineGroup, written: Written) -> LaunchGroup:
    arguments = dict(written.arguments)
    if written.config:
        arguments["--config"] = f"{group.role}.yaml"
    return LaunchGroup(group.role, group.instances, group.chips, engine.command, arguments, written.config)


def _notes(
    framework: str, service: Service, groups: list[EngineGroup], written: list[Written], report: ServingReport
) -> list[str]:
    engine, two = ENGINES[framework], len(groups) > 1
    notes = [note for each in written for note in each.notes]
    length, deviations = groups[0].length, f"{LENGTH_DEVIATIONS:g} standard deviations"
    notes.append(
        f"{length:,} tokens a request are the mean prompt and answer, each with {deviations}: set your longest"
    )
    if (share := float(report.memory_per_chip_bytes / report.memory_capacity_bytes)) > _NEARLY_FULL:
        notes.append(f"the plan fills {100 * share:.0f} % of a chip's memory: raise {engine.memory}")
    if (tokens := max(group.tokens for group in groups)) > _USUAL_TOKENS:
        notes.append(
            f"{tokens:,} tokens a pass: the plan counts working memory of {CHUNK_TOKENS:.0f} at a time; take fewer if memory ends"
        )
    if float(service.cached_fraction):
        cached = f"{100 * float(service.cached_fraction):.3g} % of prompts"
        notes.append(f"{cached} are counted as kept from earlier requests: prefix caches are on by default")
    if any(group.drafted for group in groups):
        notes.append("DRAFT_MODEL stands for the draft model's path")
    if framework.startswith("dynamo"):
        notes.append("requests go through python -m dynamo.frontend, which finds the workers")
    if two and framework in _ROUTED:
        notes.append(_ROUTED[framework])
    elif not two and groups[0].role != "serve":
        other = "decode" if groups[0].role == "prefill" else "prefill"
        notes.append(f"a group for {groups[0].role} alone: {other} needs one of its own")
    if not two and groups[0].instances > 1 and not framework.startswith("dynamo"):
        notes.append(f"{groups[0].instances:,} copies stand behind a load balancer")
    chips = sum(group.instances * group.chips for group in groups)
    for group in groups:
        own = None if report.groups is None else report.groups[group.role]
        per_server = round(chips / float(report.servers) if own is None else float(own.group_chips / own.group_servers))
        if group.chips > per_server:
            notes.append(
                f"an instance for {group.role} spans {-(-group.chips // per_server)} servers of {per_server} chips: ranks and "
                "addresses are your launcher's"
            )
    return [
        *notes,
        "yours to set: MODEL, ports and addresses, tokenizer, trust in remote code, attention and MoE kernels",
    ]


def launch_document(settings: LaunchSettings) -> dict[str, Any]:
    """Return launch settings as a dictionary for JSON."""
    return settings._asdict() | {"groups": [group._asdict() for group in settings.groups]}


def launch_text(settings: LaunchSettings, title: str) -> str:
    """Return settings as bash: comments, then for each group its command, configuration file and array of arguments."""
    lines = [escape.comment(f"{settings.title} {settings.version}: {title}")]
    lines += [escape.comment(f"- {note}") for note in settings.notes]
    lines += ["MODEL=${MODEL:?path or name of the model}"]
    for group in settings.groups:
        name = f"{group.role.upper()}_ARGS"
        copies = (
            f"{group.instances:,} {'copies' if group.instances > 1 else 'copy'} of {group.chips_per_instance:,} chips"
        )
        lines += ["", escape.comment(f'{group.role}, {copies}: {group.command} "${{{name}[@]}}"')]
        if group.config:
            lines += [f"cat > {group.role}.yaml <<'END'", json.dumps(group.config, indent=2), "END"]
        lines += array_lines(name, group.arguments)
    return "\n".join(lines)
