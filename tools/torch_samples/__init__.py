"""PyTorch's own samples, run in both libraries, for tools/compare_samples.py.

comparing    arguments and results of both
operators    functions and methods
modules      modules of tc.nn
optimizers   optimizers
"""
