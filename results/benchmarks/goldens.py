"""Record what the commands print and write, byte for byte, to show that a restructuring changed nothing.

python -m results.benchmarks.goldens FOLDER             run every command into FOLDER: screen, JSON, page, table, store
python -m results.benchmarks.goldens FOLDER NAME ...    run some of them
python -m results.benchmarks.goldens --compare A B      list the files that differ, with the first differing line

Record a folder before and after a change on one machine: the last digits of a search depend on the machine. Answers of the
recorded questions are compared with a tolerance by `results.benchmarks.questions`.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TRAIN = "--workload llama3.1-8b --chip h100-sxm --chips 64"
SERVE = "--workload llama3.1-8b --chip h100-sxm --chips 8 --mode serve"
SMALL = "train_cost --workload llama3.1-8b --bounds tp=1:2,pp=1:1"
MEASURED = "id,model,chip,chips,global_batch,sequence_length,precision,step_time_s\n" + "".join(
    f"{number},llama3.1-8b,h100-sxm,{chips},{8 * chips},8192,bf16,{seconds}\n"
    for number, (chips, seconds) in enumerate([(8, 11.0), (16, 11.2), (64, 12.5)])
)

COMMANDS = {
    "estimate": f"estimate {TRAIN} --plan tp=2",
    "estimate_operation": f"estimate {TRAIN} --plan tp=2 --operation production --backup-replicas best",
    "estimate_spot": f"estimate {TRAIN} --plan tp=2 --tokens 1e10 --unique-tokens 1e9 --pretrained text",
    "estimate_serve": f"estimate {SERVE} --plan tp=1,batch=16",
    "estimate_split": f"estimate {SERVE} --plan tp=1,batch=16 --prefill-plan tp=1,batch=1 --prefill-chips 4",
    "estimate_infeasible": "estimate --workload llama3.1-405b --chip a100-40 --chips 64 --plan tp=8",
    "plan": f"plan {TRAIN}",
    "plan_serve": f"plan {SERVE} --tpot-limit-s 0.03 --splits",
    "plan_choices": f'plan {TRAIN} --choices "cooling=air|direct-liquid"',
    "plan_megatron": f"plan {TRAIN} --export megatron",
    "plan_torchtitan": f"plan {TRAIN} --export torchtitan",
    "plan_nemo": f"plan {TRAIN} --export nemo",
    "plan_vllm": f"plan {SERVE} --export vllm",
    "plan_sglang": f"plan {SERVE} --export sglang",
    "plan_tensorrt": f"plan {SERVE} --export tensorrt-llm",
    "optimize": f"optimize {SMALL}",
    "optimize_serve": "optimize serve_cost --workload llama3.1-8b",
    "optimize_choices": f'optimize {SMALL} --choices "cooling=air|direct-liquid"',
    "optimize_infeasible": "optimize train_cost --power-budget-w 20e3 --bounds tp=8:8,pp=4:16",
    "optimize_loss": "optimize loss_under_budget",
    "sensitivity": f"sensitivity {SMALL}",
    "walls": f"walls {SMALL} --power-budget-w 10e6",
    "invest": f"invest {SMALL} --replan 0",
    "compare": "compare --workload llama3.1-8b --global-batch 1024 --chips h100-sxm,b200 --bounds tp=1:2,pp=1:1",
    "compare_serve": "compare serve_cost --workload llama3.1-8b --chips h100-sxm,h200",
    "scale": "scale --workload llama3.1-8b --chip h100-sxm --chips 64:256",
    "fabrics": "fabrics --workload llama3.1-8b --chip h100-sxm --chips 128 --fabrics ndr-rail,roce-400-fat-tree",
    "fleet": "fleet --workload llama3.1-8b --groups b200:64,h100-sxm:128 --global-batch 1024",
    "fleet_pipeline": "fleet --workload llama3.1-8b --groups b200:64,h100-sxm:64 --global-batch 1024 --layout pipeline",
    "deploy": "deploy --chip gb200 --chips 1152 --ordered 2027-01-15",
    "deploy_hall": "deploy --chip h100-sxm --chips 1024 --hall --redundancy 2N --used 0.3",
    "check": "check xai-colossus",
    "check_false": "check too-good",
    "validate": "validate measured.csv",
    "validate_columns": "validate --columns",
    "calibrate": "calibrate measured.csv --out mine.toml",
    "catalog": "catalog",
    "catalog_chips": "catalog chips",
    "catalog_chip": "catalog chips h100-sxm",
    "sources": "sources train_cost --chip b200",
    "docs": "docs",
    "sweep": f"sweep {SMALL} --samples 2000 --out store --csv table.csv",
    "sweep_grid": 'sweep train_time --workload llama3.1-8b --grid "chips=64:1024:3,tp=1|2" --out store --csv table.csv',
    "sweep_frontier": f"sweep {SMALL} --frontier power_budget_w=10e6:40e6:2 --out store",
    "completion": "completion bash",
    "error": "estimate --workload llama9 --chip h100-sxm --chips 8",
}
"""Command lines by name. Each is run as a screen and with `--json`; those with a page also with `--report`."""

_NO_JSON = ("completion",)
_NO_PAGE = ("completion", "validate", "calibrate", "catalog", "sources", "docs", "error")


def run(line: str) -> str:
    """Return the exit code and what a command prints."""
    from hwopt.cli import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = main(shlex.split(line))
        except SystemExit as ended:
            code = ended.code
    return f"exit {code}\n{said.getvalue()}"


def digest_tree(folder: Path) -> str:
    """Return one line a file below a folder: its path and SHA-256."""
    files = sorted(each for each in folder.rglob("*") if each.is_file())
    return "".join(f"{each.relative_to(folder)} {hashlib.sha256(each.read_bytes()).hexdigest()}\n" for each in files)


def record(folder: Path, names: list[str]) -> None:
    """Run commands in a folder of their own below `folder`, so that two of them never share a file."""
    here = Path.cwd()
    for name in names or COMMANDS:
        work = folder.resolve() / name
        work.mkdir(parents=True, exist_ok=True)
        os.chdir(work)
        try:
            Path("measured.csv").write_text(MEASURED, encoding="utf-8")
            line = COMMANDS[name]
            Path("screen.txt").write_text(run(line), encoding="utf-8")
            if name not in _NO_JSON:
                Path("answer.json").write_text(run(f"{line} --json"), encoding="utf-8")
            if Path("store").exists():
                Path("store.txt").write_text(digest_tree(Path("store")), encoding="utf-8")
            elif not name.startswith(_NO_PAGE) and "--export" not in line and not name.startswith("sweep"):
                Path("printed_with_page.txt").write_text(run(f"{line} --report page.html"), encoding="utf-8")
        finally:
            os.chdir(here)
        print(name, flush=True)


def compare(before: Path, after: Path) -> int:
    """Print the files that differ or are missing, with the first line that differs, and return how many there are."""
    differing = 0
    kept = lambda folder: {
        each.relative_to(folder)
        for each in folder.rglob("*")
        if each.is_file() and "store" not in each.relative_to(folder).parts
    }
    for path in sorted(kept(before) | kept(after)):
        texts = [
            (side / path).read_bytes().splitlines() if (side / path).exists() else None for side in (before, after)
        ]
        if texts[0] == texts[1]:
            continue
        differing += 1
        if texts[0] is None or texts[1] is None:
            print(f"{path}: only {'after' if texts[0] is None else 'before'}")
            continue
        pairs = zip([*texts[0], b"(end)"], [*texts[1], b"(end)"], strict=False)
        if path.suffix == ".json" and all(b"\n{" in b"\n".join(text[:2]) for text in texts):
            changed = list(_changed(*(json.loads(b"\n".join(text[1:])) for text in texts)))
            differing -= not changed
            print(*(f"{path}{each}" for each in changed), sep="\n", end="\n" if changed else "")
            continue
        first = next((pair for pair in pairs if pair[0] != pair[1]), (b"", b""))
        print(f"{path}\n  - {first[0].decode(errors='replace')[:300]}\n  + {first[1].decode(errors='replace')[:300]}")
    print(f"{differing} files differ")
    return differing


def _changed(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Yield the keys and numbers in which two JSON values differ, whatever the order of their keys."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            if key not in before or key not in after:
                yield f"{where}.{key}: only {'after' if key in after else 'before'}"
            else:
                yield from _changed(before[key], after[key], f"{where}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, pair in enumerate(zip(before, after, strict=True)):
            yield from _changed(*pair, f"{where}[{place}]")
    elif before != after:
        yield f"{where}: {str(before)[:120]} -> {str(after)[:120]}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"))
    asked = parser.parse_args()
    if asked.compare:
        sys.exit(1 if compare(*asked.compare) else 0)
    if asked.folder is None:
        parser.error("name a folder to record into")
    record(asked.folder, asked.names)
