"""Compares the speed of transformer_c with PyTorch's, on this machine, in one run. See README.md here; `python -m benchmarks` runs them."""
