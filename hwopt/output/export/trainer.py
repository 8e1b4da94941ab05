"""What is declared of software that trains and reads a file: its plans, the file of one, and both as text and JSON."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from hwopt import escape
from hwopt.errors import UserError
from hwopt.output.text.plans import integral
from hwopt.plan import OFFLOADED, Plan
from hwopt.types import PRECISIONS
from hwopt.workload.training import TrainingRun


class TrainingFile(NamedTuple):
    """A file of launch settings, and what it does not say."""

    framework: str
    title: str
    version: str
    world_size: int
    environment: dict[str, str]
    file: dict[str, Any]  # sections, keys and values
    notes: list[str]


@dataclass(frozen=True)
class Trainer:
    """Software that trains, at a version.

    **Arguments:** `name` of the file; `start`: how it is started with that file; `write`: sections of a run under a plan,
    environment and notes, or `UserError` for what the software cannot be told; `lines`: the sections as lines of the file;
    `families` of chips that it runs on; `held`: what all plans of a search have alike, since no setting speaks of anything else.
    """

    title: str
    version: str
    name: str
    start: str
    write: Callable[["TrainingLaunch"], tuple[dict[str, Any], dict[str, str], list[str]]]
    lines: Callable[[Mapping[str, Any]], Iterator[str]]
    families: tuple[str, ...]
    held: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(OFFLOADED, 0.0))

    def check(self, flag: str, chip: str, family: str) -> None:
        """Refuses chips that it does not run on."""
        if family not in self.families:
            raise UserError(
                f"{flag}: {self.title} does not run on {chip} ({family}); it runs on {', '.join(self.families)}"
            )


@dataclass(frozen=True)
class TrainingLaunch:
    """A training run and its plan in integers."""

    run: TrainingRun
    plan: Plan

    @property
    def model(self) -> SimpleNamespace:
        """The model's shape."""
        return SimpleNamespace(**integral(vars(self.run.model)))

    @property
    def split(self) -> SimpleNamespace:
        """The plan's degrees and switches."""
        return SimpleNamespace(**integral(vars(self.plan)))

    @property
    def length(self) -> int:
        """Tokens of a sample."""
        return round(float(self.run.sequence_length))

    @property
    def batch(self) -> int:
        """Sequences of a step."""
        return round(float(self.run.global_batch_sequences))

    @property
    def steps(self) -> int:
        """Steps of the run, the last one whole."""
        return -round(-float(self.run.tokens) // (self.batch * self.length))

    @property
    def zero(self) -> int:
        """ZeRO stage."""
        split = self.split
        return round(split.optimizer_sharded + split.gradients_sharded + split.weights_sharded)

    @property
    def precision(self) -> str:
        """Format of the GEMMs."""
        return PRECISIONS[int(np.argmax(np.asarray(self.run.gemm_precision)))]

    @property
    def ranks(self) -> int:
        """Chips."""
        split = self.split
        return split.tp * split.pp * split.dp * split.cp

    def check_common(self) -> None:
        """Refuses what no file of settings speaks of."""
        split = self.split
        if waiting := [name for name in OFFLOADED if getattr(split, name)]:
            parts = " and ".join(name.removesuffix("_offloaded") for name in waiting)
            hold = ",".join(f"{name}=0" for name in waiting)
            raise UserError(
                f"no setting keeps {parts} in the memory pool; ask for plans without: --hold {hold}, or --offload none"
            )
        if split.local_steps != 1:
            raise UserError(f"no setting exchanges every {split.local_steps} steps alone; ask for local_steps = 1")
        if split.bubble_fraction != 1.0:
            raise UserError("no setting makes the pipeline's bubble as small as the plan counts it")


_HELD = "nothing waits in a memory pool: no setting speaks of it, and plans that use one are passed over"


def training_file(framework: str, trainer: Trainer, run: TrainingRun, plan: Plan) -> TrainingFile:
    """A run under a concrete plan as the file of a framework. **Raises:** `UserError` for what it cannot be told."""
    asked = TrainingLaunch(run, plan)
    asked.check_common()
    sections, environment, notes = trainer.write(asked)
    return TrainingFile(framework, trainer.title, trainer.version, asked.ranks, environment, sections, [_HELD, *notes])


def file_text(trainer: Trainer, settings: TrainingFile, title: str) -> str:
    """The file: comments, then its sections."""
    said = [
        f"{settings.title} {settings.version}, {settings.world_size:,} ranks: {title}",
        f"save as {trainer.name}; {trainer.start}",
        *(f"with {name}={value}" for name, value in settings.environment.items()),
        *(f"- {note}" for note in settings.notes),
    ]
    return "\n".join([*map(escape.comment, said), *trainer.lines(settings.file)])
