// tensor_core.h: ldmatrix and mma.sync, with the register layouts of the PTX manual ("Warp-level matrix instructions").
// Operands are taken when all 32 lanes have come; until then the destination registers hold NaN.
#pragma once
#include "block.h"

namespace emulator
{

// ldmatrix .m8n8.b16: `count` 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
void load_matrix(const char *operation, Site site, uint32_t *registers, int count, bool transposed, const void *row);

enum class Element { float16, bfloat16, tf32 };
// d (16,8) += a (16,K) * b (K,8); K is 16, or 8 for tf32. Lane l holds, with g = l / 4 and t = l % 4:
//   d[i]: row g + 8 (i / 2), column 2 t + i % 2
//   16-bit a[i], half h: row g + 8 (i % 2), column 2 t + h + 8 (i / 2);  b[i], half h: row 2 t + h + 8 i, column g
//   tf32 a[i]: row g + 8 (i % 2), column t + 4 (i / 2);                  b[i]: row t + 4 i, column g
void multiply_accumulate(const char *operation, Site site, Element element, float *d, const uint32_t *a, const uint32_t *b);

} // namespace emulator
