"""Several processes that train together, over MPI: ``mpiexec -n 4 python script.py``.

world      init(): joins the processes that a launcher started; rank(), world_size(), barrier()
values     broadcast(), all_reduce(), all_gather() of arrays
arrays     Tensors as the arrays that are sent
group      the processes as one object, over a communicator of mpi4py, and the bytes that it sends
sums       sums whose order depends on the number of ranks alone
background such sums in a thread of their own, while the program computes
launchers  what mpiexec and srun tell a process by environment variables
faults     ends all ranks where one fails
cores      the threads of ranks that share cores

Without a launcher there is one rank, and nothing is imported. MPI comes with ``pip install 'transformer_c[mpi]'``.

Examples
--------
>>> import numpy as np, transformer_c as tc
>>> tc.distributed.init()
>>> tc.distributed.rank(), tc.distributed.world_size()
(0, 1)
>>> tc.distributed.all_reduce(np.array([1.0, 2.0]))
array([1., 2.])
"""

from typing import TYPE_CHECKING

from .._names import hooks
from .values import all_gather, all_reduce, broadcast
from .world import barrier, init, is_available, is_initialized, rank, world_size

__all__ = ["all_gather", "all_reduce", "barrier", "broadcast", "init", "is_available", "is_initialized", "rank", "world_size"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(
        __name__,
        instead={
            "init_process_group": "tc.distributed.init()",
            "get_rank": "tc.distributed.rank()",
            "get_world_size": "tc.distributed.world_size()",
            "destroy_process_group": "the end of the program, with which MPI ends",
            "ReduceOp": 'op="sum", "mean" or "max" of tc.distributed.all_reduce()',
            "all_gather_object": "tc.distributed.all_gather() of an array",
            "DistributedDataParallel": 'Trainer(strategy="ddp"), or tc.distributed.all_reduce(p.grad, "mean") after backward()',
        },
    )
