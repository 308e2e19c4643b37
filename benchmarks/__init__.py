"""Timings of transformer_c beside PyTorch's, on this machine, in one run. See README.md here; `python -m benchmarks` runs them."""
