"""Software that trains and reads a file of settings, by the word for it."""

from hwopt.report.launch import nemo, torchtitan
from hwopt.report.launch.trainer import Trainer

TRAINERS: dict[str, Trainer] = {"torchtitan": torchtitan.TRAINER, "nemo": nemo.TRAINER}
