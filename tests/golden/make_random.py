"""Writes random_mt19937.npz: results of PyTorch's CPU generator for sequences of calls, for machines without PyTorch.

    python tests/golden/make_random.py [FOLDER]

"programs" (JSON) is {program: [seed, [[call, arguments ...], ...]]}; result i of a program is the array "program/i". PyTorch
must run its AVX2 or AVX-512 kernels: without them it rounds uniforms and normals differently.
"""

import json
import pathlib
import sys

import numpy as np
import torch

DTYPES = {"float32": torch.float32, "float64": torch.float64}
SIZES = [0, 1, 2, 15, 16, 17, 31, 32, 33, 100]


def draw(generator, call, *args):
    if call == "integers":
        n, low, high = args
        return torch.randint(low, high, (n,), generator=generator)
    if call == "permutation":
        return torch.randperm(args[0], generator=generator)
    if call == "seed64":
        return torch.empty((), dtype=torch.int64).random_(generator=generator)
    if call == "state":
        return generator.get_state()
    dtype, n, a, b = args
    values = torch.empty(n, dtype=DTYPES[dtype])
    return values.uniform_(a, b, generator=generator) if call == "uniform" else values.normal_(a, b, generator=generator)


def programs():
    bounds, moments = ((-0.3, 0.7), (2.0, 2.000001), (-1e5, 3.0)), ((0.3, 1.7), (-4.0, 0.02), (1.5, 0.0))
    for dtype in DTYPES:
        yield f"uniform {dtype}", 42, [["uniform", dtype, n, 0.0, 1.0] for n in SIZES]
        yield f"uniform bounds {dtype}", 2**64 - 1, [["uniform", dtype, n, *ab] for n in (1, 16, 100) for ab in bounds]
        yield f"normal {dtype}", 42, [["normal", dtype, n, 0.0, 1.0] for n in SIZES]
        yield f"normal moments {dtype}", 7, [["normal", dtype, n, *ab] for n in (1, 3, 16, 50) for ab in moments]
        yield f"long {dtype}", 2**40 + 1, [["normal", dtype, 4097, 0.0, 1.0], ["uniform", dtype, 1000, -1.0, 1.0]]
    ranges = [(0, 1), (0, 10), (-3, 5), (0, 2**28 - 1), (0, 2**28), (5, 2**32 + 6), (-(2**63), 2**63 - 1), (0, 2**63 - 1)]
    yield "integers", 1, [["integers", n, low, high] for n in (1, 33) for low, high in ranges]
    yield "permutation", 2, [["permutation", n] for n in [*SIZES, 1000]]
    mixed = []
    for n in (1, 15, 16, 33):  # odd numbers of scalar normals leave one behind for a later call
        mixed += [["normal", "float32", n, 0.0, 1.0], ["state"], ["permutation", 7], ["normal", "float64", 3, 1.0, 2.0], ["seed64"]]
        mixed += [["uniform", "float64", n, -1.0, 1.0], ["integers", 3, 0, 10], ["normal", "float32", 2, 0.0, 1.0], ["state"]]
    yield "mixed", 3, mixed


def main(folder):
    capability = torch.backends.cpu.get_cpu_capability()
    if capability not in ("AVX2", "AVX512"):
        raise SystemExit(f"PyTorch uses its {capability} kernels here; run this on a machine with AVX2")
    arrays, index = {}, {}
    for name, seed, calls in programs():
        index[name] = [seed, calls]
        generator = torch.Generator().manual_seed(seed if seed < 2**63 else seed - 2**64)
        for i, call in enumerate(calls):
            arrays[f"{name}/{i}"] = draw(generator, *call).numpy()
    np.savez_compressed(folder / "random_mt19937.npz", programs=json.dumps(index), **arrays)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
