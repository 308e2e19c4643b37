/* tiles.h: the tile instructions of AMX: eight registers of up to 16 rows of 64 bytes.
 *
 * As assembly with a memory clobber, because gcc 12 drops the stores to the configuration that its intrinsic reads. With TC_EMULATE_TILES,
 * in builds for tests, plain C does what the instructions do, bit for bit (Intel SDM volume 2, TDPBF16PS), on any processor. */
#ifndef TC_KERNELS_CPU_TILES_H
#define TC_KERNELS_CPU_TILES_H

#include <stdint.h>
#include <string.h>

#ifndef TC_EMULATE_TILES

/* Palette 1; tiles 0 .. 5 (sums, parts of A) have `rows` rows, 6 and 7 (parts of B) all 16. */
static inline void tiles_begin(int rows)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = (uint8_t)(i < 6 ? rows : 16);
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(config) : "memory");
}
/* Leaves nothing for the operating system to save when it switches threads. */
static inline void tiles_end(void) { __asm__ volatile("tilerelease" ::: "memory"); }

#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::: "memory")
#define TILE_LOAD(tile, from, row) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"((int64_t)(row)) : "memory")
#define TILE_STORE(tile, to, row) __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"((int64_t)(row)) : "memory")
/* c (m,n) += a (m,2k) b (2k,n) of bfloat16; rows 2 k and 2 k + 1 of b are interleaved in row k of its tile. */
#define TILE_PRODUCT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")

#else

#include <math.h>

typedef union tile_register {
    float f32[16][16];
    uint32_t words[16][16]; /* of two bfloat16 */
} tile_register;
static _Thread_local tile_register tile_registers[8];
static _Thread_local int tile_rows;

static inline int rows_of_tile(int tile) { return tile < 6 ? tile_rows : 16; }
static inline void tiles_begin(int rows)
{
    memset(tile_registers, 0, sizeof tile_registers);
    tile_rows = rows;
}
static inline void tiles_end(void) { tile_rows = 0; }

static inline void tile_zero(int tile) { memset(&tile_registers[tile], 0, sizeof tile_registers[tile]); }
static inline void tile_load_from(int tile, const void *from, int64_t row)
{
    for (int i = 0; i < rows_of_tile(tile); i++) memcpy(tile_registers[tile].words[i], (const char *)from + i * row, 64);
}
static inline void tile_store_to(int tile, void *to, int64_t row)
{
    for (int i = 0; i < rows_of_tile(tile); i++) memcpy((char *)to + i * row, tile_registers[tile].words[i], 64);
}

/* Denormals become zeros, whether they are read or computed. */
static inline float tile_flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
static inline float tile_bfloat16(uint32_t upper_half)
{
    float x;
    memcpy(&x, &upper_half, sizeof x);
    return tile_flushed(x);
}
/* Even and odd k are summed apart, each by fused multiply-adds; then the two sums are added, and then c. */
static inline void tile_multiply(int c, int a, int b)
{
    for (int m = 0; m < rows_of_tile(c); m++) {
        for (int n = 0; n < 16; n++) {
            float even = 0, odd = 0;
            for (int k = 0; k < 16; k++) {
                const uint32_t x = tile_registers[a].words[m][k], y = tile_registers[b].words[k][n];
                even = tile_flushed(fmaf(tile_bfloat16(x << 16), tile_bfloat16(y << 16), even));
                odd = tile_flushed(fmaf(tile_bfloat16(x & 0xFFFF0000u), tile_bfloat16(y & 0xFFFF0000u), odd));
            }
            float *sum = &tile_registers[c].f32[m][n];
            *sum = tile_flushed(tile_flushed(*sum) + tile_flushed(even + odd));
        }
    }
}

#define TILE_ZERO(tile) tile_zero(tile)
#define TILE_LOAD(tile, from, row) tile_load_from(tile, from, row)
#define TILE_STORE(tile, to, row) tile_store_to(tile, to, row)
#define TILE_PRODUCT(c, a, b) tile_multiply(c, a, b)

#endif

#endif
