"""Declaration of training software that reads a settings file: supported plans, the file, its text and its JSON."""

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
    """File of launch settings, and notes on what it cannot express."""

    framework: str
    title: str
    version: str
    world_size: int
    environment: dict[str, str]
    file: dict[str, Any]  # sections with their keys and values
    notes: list[str]


@dataclass(frozen=True)
class Trainer:
    """Training software at a version.

    **Arguments:**

    - `name`: name of the file.
    - `start`: how the software is started with that file.
    - `write`: returns sections, environment and notes of a run under a plan, or raises `UserError` for what cannot be
      expressed.
    - `lines`: yields the sections as lines of the file.
    - `families`: chip families that it runs on.
    - `held`: plan variables fixed in a plan search, because the file has no setting for other values.
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
        """Raise `UserError` for chips that the software does not run on."""
        if family not in self.families:
            raise UserError(
                f"{flag}: {self.title} does not run on {chip} ({family}); it runs on {', '.join(self.families)}"
            )


@dataclass(frozen=True)
class TrainingLaunch:
    """Training run and its plan with integer values."""

    run: TrainingRun
    plan: Plan

    @property
    def model(self) -> SimpleNamespace:
        """Return the model's dimensions as integers."""
        return SimpleNamespace(**integral(vars(self.run.model)))

    @property
    def split(self) -> SimpleNamespace:
        """Return the plan's parallel degrees and switches as integers."""
        return SimpleNamespace(**integral(vars(self.plan)))

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

    @property
    def ranks(self) -> int:
        """Return the number of ranks, one a chip."""
        split = self.split
        return split.tp * split.pp * split.dp * split.cp

    def check_common(self) -> None:
        """Raise `UserError` for a plan with features that no settings file can express, such as offloading."""
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
    """Return a run under a concrete plan as a settings file. **Raises:** `UserError` for what the software cannot express."""
    asked = TrainingLaunch(run, plan)
    asked.check_common()
    sections, environment, notes = trainer.write(asked)
    return TrainingFile(framework, trainer.title, trainer.version, asked.ranks, environment, sections, [_HELD, *notes])


def file_text(trainer: Trainer, settings: TrainingFile, title: str) -> str:
    """Return the text of a trainer's settings file: comments, then its sections."""
    said = [
        f"{settings.title} {settings.version}, {settings.world_size:,} ranks: {title}",
        f"save as {trainer.name}; {trainer.start}",
        *(f"with {name}={value}" for name, value in settings.environment.items()),
        *(f"- {note}" for note in settings.notes),
    ]
    return "\n".join([*map(escape.comment, said), *trainer.lines(settings.file)])
