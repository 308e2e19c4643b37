"""What a launcher tells the processes that it starts, by environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping

# The number of processes, by launcher: MPICH's mpiexec and srun --mpi=pmi2; Open MPI's mpiexec. srun alone sets SLURM_NTASKS, also for a
# script that sbatch runs once: SLURM_STEP_NUM_TASKS is of the step, and a batch script's own step has one task.
_COUNTS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")


def started_processes(environment: Mapping[str, str] | None = None) -> int:
    """The number of processes that a launcher started this one with; 1 without a launcher."""
    environment = os.environ if environment is None else environment
    for name in _COUNTS:
        text = environment.get(name, "")
        if text.isdigit() and int(text) > 0:
            return int(text)
    return 1
