"""What the driver and PyTorch say of GPUs, on a machine whose nvidia-smi is ours."""

import os

import pytest

from real_openrlhf import nvidia
from real_openrlhf.errors import UserError
from real_openrlhf.probe import ProbeFailed
from real_openrlhf.training.checks import preflight


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a program first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")

    def write(name: str, script: str, folder: str = "bin") -> None:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / folder / name).chmod(0o755)

    return write


LISTED = "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'; echo 'GPU 1: NVIDIA H200 (UUID: GPU-2)'"


def test_the_gpus_and_the_driver_are_nvidia_smis(program):
    program("nvidia-smi", f'case "$1" in -L) {LISTED} ;; *) echo 580.65.06; echo 580.65.06 ;; esac')
    assert (nvidia.gpu_count(), nvidia.driver_version()) == (2, "580.65.06")


@pytest.mark.parametrize("script", ["echo 'GPU access blocked'; exit 9", "exit 0"])
def test_an_nvidia_smi_that_fails_or_finds_nothing_counts_none(program, script):
    program("nvidia-smi", script)
    assert (nvidia.gpu_count(), nvidia.driver_version()) == (0, "")


@pytest.mark.parametrize(
    "driver, built_for, expected",
    [
        ("550.54.15", "13.0", "driver 550.54.15, torch built for CUDA 13.0 needs driver 580 or later. Update"),
        ("580.65.06", "13.0", "which go together. Look at CUDA_VISIBLE_DEVICES"),
        ("550.54.15", "12.8", "which go together. Look at CUDA_VISIBLE_DEVICES"),
        ("470.1", "12.8", "needs driver 525 or later"),
    ],
)
def test_why_torch_sees_none_of_the_gpus(program, driver, built_for, expected):
    program("nvidia-smi", f'case "$1" in -L) {LISTED} ;; *) echo {driver} ;; esac')
    said = nvidia.why_torch_sees_none(built_for)
    assert said.startswith("torch sees no GPU, nvidia-smi sees 2: ") and expected in said


def test_gpus_that_do_not_answer_are_told(monkeypatch):
    import torch

    def fail():
        raise ProbeFailed("no answer after 120 s")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)  # there is none here
    monkeypatch.setattr(nvidia, "memory_sizes", fail)
    with pytest.raises(UserError, match=r"no answer after 120 s.*doctor"):
        preflight.local_gpus()
