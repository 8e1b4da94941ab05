"""Modules whose tests share answers: one worker runs them all, after each other.

A module without a group is one of its own. xdist's `--dist loadgroup` does the same by marks, which xdist 3.8 does not see with
pytest 9.2: it reads them off node ids that pytest no longer changes, and splits every module over all workers.
"""

from __future__ import annotations

GROUPS = {
    "measured runs": (  # tests/measured.py
        "tests/unit/calibration/test_missing_settings.py",
        "tests/validation/test_calibration.py",
        "tests/validation/test_columns_of_runs.py",
        "tests/validation/test_memory.py",
        "tests/validation/test_published_runs.py",
        "tests/validation/test_serving.py",
    ),
    "plans of commands": (  # tests/plans.py
        "tests/unit/test_cli.py",
        "tests/unit/test_cli_plan.py",
        "tests/unit/test_cli_serving.py",
    ),
    "relaxed large run": (  # tests/answers.py
        "tests/unit/output/test_page.py",
        "tests/unit/test_cli_report.py",
    ),
}

_GROUP_OF = {module: group for group, modules in GROUPS.items() for module in modules}


def group_of(nodeid: str) -> str:
    """The group of a test."""
    module = nodeid.partition("::")[0]
    return _GROUP_OF.get(module, module)
