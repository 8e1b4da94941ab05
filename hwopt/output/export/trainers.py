"""Software that trains and reads a file of settings, by the word for it."""

from hwopt.output.export import nemo, torchtitan
from hwopt.output.export.trainer import Trainer

TRAINERS: dict[str, Trainer] = {"torchtitan": torchtitan.TRAINER, "nemo": nemo.TRAINER}
