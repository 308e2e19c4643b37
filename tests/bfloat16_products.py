"""Instruction sets that multiply bfloat16, and what products by them are called in ``tc.config.last_plans()``."""

BFLOAT16_PRODUCTS = {"amx": "tiles", "avx512_bf16": "dots"}
