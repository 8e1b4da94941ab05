"""The scripts of `notebooks/cluster`, with processes on this machine in place of nodes and pods."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "notebooks/cluster"
SMALL = "131072"

pytestmark = pytest.mark.search

SRUN = """\
#!/usr/bin/env bash
# Two tasks of a job, each told by its environment what Slurm tells.
for task in 0 1; do
    SLURM_PROCID=$task SLURM_LOCALID=$task "$@" & tasks+=($!)
done
for task in "${tasks[@]}"; do wait "$task" || exit 1; done
"""


@pytest.fixture
def programs(tmp_path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "hwopt").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hwopt.cli "$@"\n')
    (folder / "srun").write_text(SRUN)
    for path in folder.iterdir():
        path.chmod(0o755)
    return folder


def environment(programs, **more):
    variables = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "",
    }
    return variables | {"PYTHONPATH": str(FOLDER.parents[1])} | more


def swept(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def alone(programs, out):
    command = f"hwopt sweep train_cost --samples {SMALL} --no-rows --sampling plain --no-figures --out".split()
    done = subprocess.run([*command, out], env=environment(programs), capture_output=True, text=True, timeout=500)
    assert done.returncode in (0, 1), done.stderr
    return swept(out)


def test_slurm_script_ends_in_the_bytes_of_one_process(programs, tmp_path):
    told = {"SLURM_JOB_ID": "4242", "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_JOB_NUM_NODES": "1", "SLURM_NODELIST": "localhost"}  # fmt: skip
    job = environment(programs, OUT=str(tmp_path / "job"), SAMPLES=SMALL, **told)
    done = subprocess.run(["bash", FOLDER / "sweep.slurm"], env=job, capture_output=True, text=True, timeout=500)
    assert done.returncode in (0, 1) and (tmp_path / "job").is_dir(), done.stderr
    assert swept(tmp_path / "job") == alone(programs, tmp_path / "alone")


def test_kubernetes_job_ends_in_the_bytes_of_one_process(programs, tmp_path):
    service, job = yaml.safe_load_all((FOLDER / "sweep.kubernetes.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    name, count = job["metadata"]["name"], job["spec"]["completions"]
    assert service["metadata"]["name"] == pod["subdomain"] and service["spec"]["selector"] == {"job-name": name}
    (script,) = pod["containers"][0]["args"]
    assert f"--coordinator {name}-0.{pod['subdomain']}:1234 --processes {count} " in script
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    mine = script.replace(f"{name}-0.{pod['subdomain']}:1234 --processes {count}", f"{place} --processes 2")
    mine = mine.replace("1e9", SMALL).replace("/runs/train_cost", str(tmp_path / "job"))
    start = lambda index: subprocess.Popen(
        ["/bin/sh", "-c", mine],
        env=environment(programs, JOB_COMPLETION_INDEX=str(index)),
        stderr=subprocess.PIPE,
        text=True,
    )
    for process in [start(index) for index in range(2)]:
        _, error = process.communicate(timeout=500)
        assert process.returncode in (0, 1), error
    assert swept(tmp_path / "job") == alone(programs, tmp_path / "alone")
