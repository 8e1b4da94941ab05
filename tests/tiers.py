"""Three tiers of tests, and which of the search tier `.ci/run` takes.

Default tests carry no mark. `search` marks comparisons that need many searches. `slow` marks notebooks, the wheel, the guide and
the browser. `pytest -m search --changed-since REV` selects the search tests of packages that changed since that commit. Of the
others it selects one twentieth, by the number of commits: twenty commits later each has run.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TIERS = ("slow", "search")
TURNS = 20
PHYSICS = ("tests/unit/model", "tests/reference", "tests/property", "tests/gradient", "tests/validation")
SOLVER = (
    "tests/unit/solver",
    "tests/unit/gp",
    "tests/unit/integers",
    "tests/unit/trace",
    "tests/unit/attacks/test_proofs.py",
)
SCREENS = ("tests/unit/test_", "tests/unit/output", "tests/unit/figures", "tests/guide")
TESTS_OF = {
    "hwopt/model": PHYSICS,
    "hwopt/hardware": ("tests/unit/hardware", *PHYSICS),
    "hwopt/workload": PHYSICS,
    "hwopt/catalog": ("tests/unit/catalog", "tests/validation"),
    "hwopt/data": ("tests/unit/catalog", "tests/validation", "tests/results"),
    "hwopt/trace": SOLVER,
    "hwopt/integers": SOLVER,
    "hwopt/design": SOLVER,
    "hwopt/solver": SOLVER,
    "hwopt/planning": SOLVER,
    "hwopt/analysis": ("tests/unit/analysis",),
    "hwopt/sweeps": ("tests/unit/sweep", "tests/property/test_sweeps.py"),
    "hwopt/calibration": ("tests/unit/calibration", "tests/validation", "tests/results"),
    "hwopt/output": SCREENS,
    "hwopt/cli": SCREENS,
    "objectives": ("tests/unit/test_objectives.py", "tests/unit/solver"),
    "results": ("tests/results",),
}
"""Where the search tests of a package are: beginnings of paths."""


def tier_of(marks) -> str:
    return next((tier for tier in TIERS if tier in marks), "default")


def git(*arguments: str) -> list[str]:
    """Lines that git prints here, none where it fails: an archive has no history."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def turn() -> int:
    """The number of commits, which seeds what rotates; `HWOPT_TEST_TURN` takes its place."""
    return int(os.environ.get("HWOPT_TEST_TURN") or next(iter(git("rev-list", "--count", "HEAD")), 0))


def in_turn(items: list[pytest.Item], since: str) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the items to run and those to leave out."""
    changed = git("diff", "--name-only", since, "HEAD")
    paths = tuple(
        path
        for package, paths in TESTS_OF.items()
        if any(x.startswith(package + "/") for x in changed)
        for path in paths
    )
    now = turn() % TURNS
    runs = [x.nodeid.startswith(paths) or zlib.crc32(x.nodeid.encode()) % TURNS == now for x in items]
    return [x for x, run in zip(items, runs, strict=True) if run], [
        x for x, run in zip(items, runs, strict=True) if not run
    ]
