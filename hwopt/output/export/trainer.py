"""Declaration of training software that reads settings: supported plans, the settings, their text and their JSON."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from hwopt import escape
from hwopt.catalog.memory_formats import setting_of
from hwopt.errors import UserError
from hwopt.output.export.header import FIRST_HOST, Launch, host_count, slurm, torchrun
from hwopt.output.export.limits import Limit, refusal
from hwopt.output.export.mechanisms import dimensions, unexpressed
from hwopt.output.export.model_facts import ModelFacts, megatron_facts
from hwopt.output.text.plans import integral
from hwopt.run_words import switched
from hwopt.types import PRECISIONS
from hwopt.workload.memory_formats import MemoryFormats

OWN = "data, tokenizer, learning rate schedule, saving"
"""Settings that neither a plan nor a config states."""


class TrainingFile(NamedTuple):
    """Launch settings of a training run: sections or arguments, environment, hosts, and notes."""

    framework: str
    title: str
    version: str
    world_size: int
    hosts: int
    start: str
    environment: dict[str, str]
    file: dict[str, Any]  # sections with their keys and values, or arguments
    notes: list[str]
    unknown: list[str]
    predicted: dict[str, float]
    passed: str


@dataclass(frozen=True)
class Trainer:
    """Training software at a version.

    **Arguments:**

    - `name`: name of the file; a script of bash starts the software itself.
    - `program`: the program that torchrun starts.
    - `write`: returns settings, environment and notes of a run, or raises `UserError` for formats that it does not have.
    - `lines`: yields the settings as lines of the file.
    - `families`: chip families that it runs on.
    - `limits`: features of a plan that it cannot express.
    - `key`, `framework`: key of the settings in JSON, and name of the software there if it is not that of the flag.
    - `words`: word of a run -> values that its settings can express (`hwopt.run_words`).
    - `fixes`: whether the software's own model code states the facts of the config.
    - `formats`: fields of `MemoryFormats` that the settings state, or that the software always has.
    - `mechanisms`: whether the settings take the flags of `mechanisms.MECHANISMS`; `otherwise`: what to do where they do not.
    """

    title: str
    version: str
    name: str
    program: str
    write: Callable[["TrainingLaunch"], tuple[dict[str, Any], dict[str, str], list[str]]]
    lines: Callable[[Mapping[str, Any]], Iterator[str]]
    families: tuple[str, ...]
    limits: tuple[Limit, ...]
    words: Mapping[str, tuple[str, ...]]
    key: str = "file"
    framework: str = ""
    fixes: bool = False
    formats: tuple[str, ...] = ()
    mechanisms: bool = False
    otherwise: str = ""

    @property
    def is_script(self) -> bool:
        """Return whether the file is a script of bash."""
        return self.name.endswith(".sh")

    def check(self, flag: str, chip: str, family: str, words: Mapping[str, str | float], model: Any) -> None:
        """Raise `UserError` for chips that the software does not run on, and words of a run or models that it cannot express."""
        if family not in self.families:
            raise UserError(
                f"{flag}: {self.title} does not run on {chip} ({family}); it runs on {', '.join(self.families)}"
            )
        for name, known in self.words.items():
            if switched(words.get(name)) not in (None, *known):
                raise UserError(f"{flag}: {self.title} cannot express {name}={words[name]}; it has {', '.join(known)}")
        self.check_model(model, f"{flag}: ")

    def check_model(self, model: Any, flag: str = "") -> None:
        """Raise `UserError` for a model with a mechanism that the settings cannot express."""
        if why := unexpressed(model, self.mechanisms):
            raise UserError(f"{flag}{self.title} cannot express {why}{self.otherwise}")


@dataclass(frozen=True)
class TrainingLaunch:
    """Training run and its plan with integer values."""

    launch: Launch

    @property
    def run(self) -> Any:
        """Return the training run."""
        return self.launch.workload

    @property
    def gradient_bytes(self) -> float:
        """Return the bytes of a gradient."""
        stated = self.run.stated("gradient_bytes")
        return self.launch.gradient_bytes if stated is None else float(stated)

    @property
    def facts(self) -> ModelFacts:
        """Return what the model's config fixes, as flags of Megatron-LM."""
        return megatron_facts(self.launch.config, self.model)

    @property
    def model(self) -> SimpleNamespace:
        """Return the model's dimensions as integers."""
        return dimensions(self.run.model)

    @property
    def split(self) -> SimpleNamespace:
        """Return the plan's parallel degrees and switches as integers."""
        return SimpleNamespace(**integral(vars(self.launch.plan)))

    @property
    def length(self) -> int:
        """Return the tokens of a sample."""
        return round(float(self.run.sequence_length))

    @property
    def batch(self) -> int:
        """Return the sequences of a step (global batch size)."""
        return round(float(self.run.global_batch_sequences))

    @property
    def steps(self) -> int:
        """Return the number of steps of the run, rounded up."""
        return -round(-float(self.run.tokens) // (self.batch * self.length))

    @property
    def zero(self) -> int:
        """Return the ZeRO stage, 0 to 3."""
        split = self.split
        return round(split.optimizer_sharded + split.gradients_sharded + split.weights_sharded)

    @property
    def precision(self) -> str:
        """Return the format of the GEMMs."""
        return PRECISIONS[int(np.argmax(np.asarray(self.run.gemm_precision)))]


def training_file(framework: str, trainer: Trainer, launch: Launch) -> TrainingFile:
    """Return a run under a concrete plan as launch settings.

    **Raises:** `UserError` for a plan or a format that the software cannot express.
    """
    trainer.check_model(launch.workload.model)
    if why := refusal(trainer.limits, launch.workload, launch.plan):
        raise UserError(f"{trainer.title} cannot express {why}")
    asked = TrainingLaunch(launch)
    for name in MemoryFormats.__dataclass_fields__:
        if asked.run.stated(name) is not None and name not in (
            *trainer.formats,
            "reserve_bytes",
        ):  # a margin, no setting
            raise UserError(
                f"{trainer.title} cannot express --memory-formats {setting_of(name)}: its settings do not state it"
            )
    settings, environment, notes = trainer.write(asked)
    chips = round(float(launch.plan.chips))
    hosts = host_count(chips, float(launch.report.servers))
    return TrainingFile(
        trainer.framework or framework,
        trainer.title,
        trainer.version,
        chips,
        hosts,
        torchrun(hosts, chips // hosts, trainer.program),
        environment,
        settings,
        notes,
        [*([] if trainer.fixes else asked.facts.unknown), OWN],
        launch.predicted,
        launch.passed,
    )


def training_document(trainer: Trainer, settings: TrainingFile) -> dict[str, Any]:
    """Return launch settings as a dictionary for JSON."""
    values = settings._asdict()
    return values | {trainer.key: values.pop("file")}


def file_text(trainer: Trainer, settings: TrainingFile, launch: Launch) -> str:
    """Return the text of a trainer's file: its header, then a script of bash, or settings below the commands as comments."""
    hosts, per_host = settings.hosts, settings.world_size // settings.hosts
    size = f"{settings.world_size:,} ranks on {hosts:,} {'hosts' if hosts > 1 else 'host'} of {per_host}"
    said = launch.lines(f"{settings.title} {settings.version}, {size}")
    said += [f"not known: {', '.join(settings.unknown)}", *(f"- {note}" for note in settings.notes)]
    lines = [*trainer.lines(settings.file)]
    save = f"save as {trainer.name}; run on every host, or with Slurm as: "
    if trainer.is_script:
        said.append(save + slurm(hosts, per_host, f"bash {trainer.name}"))
        exported = [f"export {name}={escape.shell(value)}" for name, value in settings.environment.items()]
        lines = [*exported, *([FIRST_HOST] if hosts > 1 else []), *lines, settings.start]
    else:
        start = " ".join([*(f"{name}={value}" for name, value in settings.environment.items()), settings.start])
        said += [save + slurm(hosts, per_host, "bash -c '...'"), *([FIRST_HOST] if hosts > 1 else []), start]
    return "\n".join([*map(escape.comment, said), *lines])
