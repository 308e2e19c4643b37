"""What a launcher tells the processes that it starts, by environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

# The number of processes, by launcher: MPICH's mpiexec and srun --mpi=pmi2; Open MPI's mpiexec. srun alone sets SLURM_NTASKS, also for a
# script that sbatch runs once: SLURM_STEP_NUM_TASKS is of the step, and a batch script's own step has one task.
_COUNTS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
RANK_PROCESS = "TRANSFORMER_C_RANK_PROCESS"  # the process that is a rank: the programs that it starts inherit the launcher's variables
_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID")


def started_processes(environment: Mapping[str, str] | None = None) -> int:
    """The number of processes that a launcher started this one with; 1 without a launcher, and for a program that a rank has started."""
    if (os.environ if environment is None else environment).get(RANK_PROCESS, str(os.getpid())) != str(os.getpid()):
        return 1
    return _first_number(_COUNTS, environment) or torchrun_processes(environment) or 1


def torchrun_processes(environment: Mapping[str, str] | None = None) -> int:
    """The number of processes that PyTorch's launcher started, of which MPI knows nothing; 0 without it."""
    is_there = "TORCHELASTIC_RUN_ID" in (os.environ if environment is None else environment)
    return _first_number(("WORLD_SIZE",), environment) if is_there else 0


def rank_by_launcher(environment: Mapping[str, str] | None = None) -> int:
    """The number of this process, before MPI was asked; 0 without a launcher."""
    return _first_number(_RANKS, environment) if started_processes(environment) > 1 else 0


def _first_number(names: Sequence[str], environment: Mapping[str, str] | None) -> int:
    environment = os.environ if environment is None else environment
    texts = (environment.get(name, "") for name in names)
    return next((int(text) for text in texts if text.isdigit() and int(text) > 0), 0)
