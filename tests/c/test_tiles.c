/* test_tiles.c: split products and those of bfloat16 (kernels/cpu/tiles) with emulated instructions, of tiles or with TC_DOTS dot products,
 * against double, the float32 kernel, and where the processor has them (`NATIVE`, their instruction set), the instructions themselves, bit
 * for bit. */
#include "kernels/cpu/half.h"
#include "kernels/gemm.h"

#include <math.h>
#include <stdlib.h>
#ifdef NATIVE
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "check.h"

#define FUNCTION_OF(name, isa) tc_##name##_f32_##isa
#define FUNCTION(name, isa) FUNCTION_OF(name, isa)
#define KERNEL(name, isa) void FUNCTION(name, isa)(const void *args, int64_t begin, int64_t end, void *scratch)
KERNEL(gemm, baseline);
KERNEL(gemm, emulated);
KERNEL(gemm_pack, emulated);
#ifdef NATIVE
KERNEL(gemm, NATIVE);
KERNEL(gemm_pack, NATIVE);
#endif
#ifdef TC_DOTS
enum { MOST_PARTS = 1, STRIP_COLUMNS = 128 }; /* of items by strips a multiple, and B has as many */
#else
enum { MOST_PARTS = 3, STRIP_COLUMNS = 32 };
#endif

size_t tc_kernel_bytes_ahead = 2048; /* which core/cpu.c sets for the processor */

typedef struct tiles_kernels {
    tc_range_kernel gemm, pack;
} tiles_kernels;
static const tiles_kernels emulated = {tc_gemm_f32_emulated, tc_gemm_pack_f32_emulated};

/* What an item reads of B: its strides, panels of float32, or groups that were split in advance. */
enum { STRIDED, PANELS, GROUPS, SOURCES };

typedef struct problem {
    int64_t M, N, K, row_block, col_block;
    int parts, a_form, b_form; /* forms: rows adjacent, columns adjacent, neither */
    int source;
    bool epilogue;
    bool halves, by_strips; /* halves: of one part */
} problem;

enum { MOST = 64 * 512, MOST_COLUMNS = 300 };
static float a[2 * MOST], b[2 * MOST], bias[MOST_COLUMNS], residual[MOST];
static uint16_t half_a[2 * MOST], half_b[2 * MOST];

static float number(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(int)(*state >> 8) / 8388608.0f - 1.0f;
}

static void set_strides(int form, int64_t rows, int64_t cols, int64_t *row, int64_t *col)
{
    *row = form == 0 ? cols + 3 : form == 1 ? 1 : 2 * cols;
    *col = form == 0 ? 1 : form == 1 ? rows + 1 : 2;
}

static tc_gemm_args args_of(const problem *p, float *c, float *pre)
{
    tc_gemm_args g = {.a = a, .b = b, .c = c, .M = p->M, .N = p->N, .K = p->K, .c_row = p->N, .pre_row = p->N, .residual_row = p->N};
    set_strides(p->a_form, p->M, p->K, &g.a_row, &g.a_col);
    set_strides(p->b_form, p->K, p->N, &g.b_row, &g.b_col);
    g.batch = g.k_chunks = 1, g.k_chunk = p->K;
    g.row_block = p->row_block, g.col_block = p->col_block;
    if (p->halves) g.a = half_a, g.b = half_b, g.a_stored = g.b_stored = TC_STORED_BFLOAT16;
    if (p->epilogue) g.bias = bias, g.residual = residual, g.pre = pre, g.activation = TC_ACTIVATION_RELU;
    return g;
}

static void *aligned(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
    CHECK(memory != NULL);
    return memory;
}

static void plain(const problem *p, float *c, float *pre)
{
    tc_gemm_args g = args_of(p, c, pre);
    tc_gemm_make_plain(&g);
    void *scratch = aligned(tc_gemm_scratch_of(&g, sizeof(float)).bytes);
    tc_gemm_f32_baseline(&g, 0, 1, scratch);
    free(scratch);
}

static void split(tiles_kernels kernels, const problem *p, float *c, float *pre)
{
    tc_gemm_args g = args_of(p, c, pre), rest = g;
    const int source = p->halves && p->source == PANELS ? STRIDED : p->source;
    g.parts = p->parts, g.by_strips = p->by_strips && source == STRIDED && g.N >= STRIP_COLUMNS;
    if (g.by_strips) g.col_block = tc_divide_up(g.col_block, STRIP_COLUMNS) * STRIP_COLUMNS;
    g.b_form = source == STRIDED ? TC_GEMM_B_STRIDED : TC_GEMM_B_PANELS;
    const int64_t groups = tc_divide_up(g.N, TC_GEMM_GROUP);
    void *prepared = aligned((size_t)(groups * tc_gemm_group_bytes(g.K, g.parts)) + (size_t)(groups * g.K) * TC_GEMM_PANEL_BYTES);
    const tc_gemm_pack_args pack = {.panels = prepared,
                                    .b = g.b,
                                    .b_stored = g.b_stored,
                                    .K = g.K,
                                    .N = g.N,
                                    .b_row = g.b_row,
                                    .b_col = g.b_col,
                                    .parts = source == GROUPS ? g.parts : 0};
    if (source != STRIDED) kernels.pack(&pack, 0, groups, NULL);
    if (source == PANELS) g.b = prepared;
    if (source == GROUPS) g.b_parts = prepared;
    rest.M = rest.N = TC_GEMM_GROUP;
    tc_gemm_make_plain(&rest);
    void *scratch = aligned(tc_gemm_split_scratch_of(&g).bytes + tc_gemm_scratch_of(&rest, sizeof(float)).bytes);
    kernels.gemm(&g, 0, tc_gemm_items(&g), scratch);
    free(scratch);
    free(prepared);
}

static int64_t place_in_a(const problem *p, int64_t i, int64_t k)
{
    int64_t row, col;
    set_strides(p->a_form, p->M, p->K, &row, &col);
    return i * row + k * col;
}
static int64_t place_in_b(const problem *p, int64_t k, int64_t j)
{
    int64_t row, col;
    set_strides(p->b_form, p->K, p->N, &row, &col);
    return k * row + j * col;
}
static float element(const problem *p, bool in_a, int64_t place)
{
    return p->halves ? tc_from_bfloat16((in_a ? half_a : half_b)[place]) : (in_a ? a : b)[place];
}
static void set_element(const problem *p, bool in_a, int64_t place, float x)
{
    if (p->halves)
        (in_a ? half_a : half_b)[place] = tc_to_bfloat16(x);
    else
        (in_a ? a : b)[place] = x;
}

static void fill(void)
{
    unsigned state = 1;
    for (int i = 0; i < 2 * MOST; i++) a[i] = number(&state), b[i] = number(&state);
    for (int i = 0; i < 2 * MOST; i++) half_a[i] = tc_to_bfloat16(a[i]), half_b[i] = tc_to_bfloat16(b[i]);
    for (int i = 0; i < MOST_COLUMNS; i++) bias[i] = number(&state);
    for (int i = 0; i < MOST; i++) residual[i] = number(&state);
}

static bool same_bits(const float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(x + i, y + i, sizeof *x) != 0 && !(isnan(x[i]) && isnan(y[i]))) return false;
    return true;
}

static float c[MOST], other[MOST], pre[MOST], other_pre[MOST];

/* Errors as a share of the sum of the magnitudes of the products. */
static void is_accurate(const problem *p)
{
    static const double limits[] = {[1] = 0x1p-7, [2] = 0x1p-15, [3] = 0x1p-22};
    split(emulated, p, c, pre);
    double worst = 0;
    for (int64_t i = 0; i < p->M; i++)
        for (int64_t j = 0; j < p->N; j++) {
            double sum = p->epilogue ? bias[j] : 0, size = fabs(sum);
            for (int64_t k = 0; k < p->K; k++) {
                const double product = (double)element(p, true, place_in_a(p, i, k)) * element(p, false, place_in_b(p, k, j));
                sum += product, size += fabs(product);
            }
            if (p->epilogue) {
                worst = fmax(worst, fabs(pre[i * p->N + j] - sum) / size);
                sum = fmax(sum, 0) + residual[i * p->N + j], size += fabs(residual[i * p->N + j]);
            }
            worst = fmax(worst, fabs(c[i * p->N + j] - sum) / size);
        }
    CHECK(worst < (p->halves ? 0x1p-21 : limits[p->parts]));
}

/* Rows alone, in items of any shape and with B in any form. */
static void has_equal_bits(const problem *p)
{
    split(emulated, p, c, pre);
    problem q = *p;
    q.source = (p->source + 1) % SOURCES, q.row_block = 32, q.col_block = 32;
    split(emulated, &q, other, other_pre);
    CHECK(same_bits(c, other, p->M * p->N));
    q.by_strips = p->halves && !p->by_strips && p->b_form == 0 && p->M <= TC_GEMM_GROUP;
    split(emulated, &q, other, other_pre);
    CHECK(same_bits(c, other, p->M * p->N));
    if (p->a_form != 0) return;
    for (int64_t rows = 1; rows < p->M; rows += 7) {
        q.M = rows;
        split(emulated, &q, other, other_pre);
        CHECK(same_bits(c, other, rows * p->N));
    }
}

static void agrees_with_the_processor(const problem *p)
{
#ifdef NATIVE
    split(emulated, p, c, pre);
    split((tiles_kernels){FUNCTION(gemm, NATIVE), FUNCTION(gemm_pack, NATIVE)}, p, other, other_pre);
    CHECK(same_bits(c, other, p->M * p->N));
    if (p->epilogue) CHECK(same_bits(pre, other_pre, p->M * p->N));
#else
    (void)p;
#endif
}

/* Element k of the row of A or the column of B in the middle. */
static int64_t place_in_line(const problem *p, int64_t k, bool in_a)
{
    return in_a ? place_in_a(p, p->M / 2, k) : place_in_b(p, k, p->N / 2);
}

/* A row or column of which one element cannot be split, or all of which are too small: it is computed by the float32 kernel, the row and
 * its 16 columns alone. */
static void redoes_what_it_cannot_split(const problem *p, float special, bool in_a)
{
    static float whole[MOST], clean[MOST], before[MOST];
    const bool small = fabsf(special) < 1;
    const int64_t row = p->M / 2, col = p->N / 2, first = small ? 0 : p->K / 3, end = small ? p->K : first + 1;
    split(emulated, p, clean, pre);
    for (int64_t k = first; k < end; k++) {
        before[k] = element(p, in_a, place_in_line(p, k, in_a));
        set_element(p, in_a, place_in_line(p, k, in_a), special);
    }
    plain(p, whole, other_pre);
    split(emulated, p, c, pre);
    agrees_with_the_processor(p);
    split(emulated, p, c, pre);
    for (int64_t k = first; k < end; k++) set_element(p, in_a, place_in_line(p, k, in_a), before[k]);
    for (int64_t i = 0; i < p->M; i++)
        for (int64_t j = 0; j < p->N; j++) {
            const bool redone = in_a ? i == row : j / TC_GEMM_GROUP == col / TC_GEMM_GROUP;
            CHECK(same_bits(&c[i * p->N + j], redone ? &whole[i * p->N + j] : &clean[i * p->N + j], 1));
        }
}

/* What GELU leaves of large negative numbers: small elements of a line count as little as they add, and lines of zeros for nothing. */
static void splits_small_beside_large(const problem *p, float small, bool in_a)
{
    static float before[MOST], zero[MOST];
    const int64_t k = p->K / 3, place = place_in_line(p, k, in_a);
    before[0] = element(p, in_a, place);
    set_element(p, in_a, place, 0);
    split(emulated, p, zero, pre);
    set_element(p, in_a, place, small);
    split(emulated, p, c, pre);
    agrees_with_the_processor(p);
    split(emulated, p, c, pre);
    set_element(p, in_a, place, before[0]);
    for (int64_t i = 0; i < p->M * p->N; i++) CHECK(same_bits(&c[i], &zero[i], 1));
    for (int64_t i = 0; i < p->K; i++) {
        before[i] = element(p, in_a, place_in_line(p, i, in_a));
        set_element(p, in_a, place_in_line(p, i, in_a), 0);
    }
    is_accurate(p);
    split(emulated, p, c, pre);
    plain(p, other, other_pre);
    for (int64_t i = 0; i < p->K; i++) set_element(p, in_a, place_in_line(p, i, in_a), before[i]);
    bool apart = p->parts == 3; /* fewer have digits of their own */
    for (int64_t i = 0; i < p->M * p->N && !apart; i++) apart = !same_bits(&c[i], &other[i], 1);
    CHECK(apart);
}

/* Infinities and NaN of halves reach the results that the float32 kernel gives them, and no others. */
static void multiplies_specials(const problem *p, float special, bool in_a)
{
    static float clean[MOST];
    const int64_t row = p->M / 2, col = p->N / 2, k = p->K / 3, place = in_a ? place_in_a(p, row, k) : place_in_b(p, k, col);
    const float before = element(p, in_a, place);
    split(emulated, p, clean, pre);
    set_element(p, in_a, place, special);
    agrees_with_the_processor(p);
    split(emulated, p, c, pre);
    plain(p, other, other_pre);
    set_element(p, in_a, place, before);
    for (int64_t i = 0; i < p->M; i++)
        for (int64_t j = 0; j < p->N; j++)
            CHECK(same_bits(&c[i * p->N + j], &((in_a ? i == row : j == col) ? other : clean)[i * p->N + j], 1));
}

int main(void)
{
#if defined(NATIVE) && !defined(TC_DOTS)
    CHECK_EQUAL(syscall(SYS_arch_prctl, 0x1023, 18), 0);
#endif
    static const int64_t shapes[][3] = {{1, 16, 32}, {5, 33, 70},   {37, 50, 129}, {16, 32, 300},
                                        {49, 17, 1}, {1, 300, 100}, {3, 165, 190}, {11, 150, 130}};
    static const float of_halves[] = {INFINITY, -INFINITY, NAN};
    static const float specials[] = {INFINITY, -INFINITY, NAN, 3.4e38f, -1e20f, 1e-40f, 1e-31f, -1e-33f};
    fill();
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int form = 0; form < 9; form++) {
            problem p = {.M = shapes[s][0], .N = shapes[s][1], .K = shapes[s][2], .row_block = 160, .col_block = 64};
            p.a_form = form % 3, p.b_form = form / 3, p.source = (form + (int)s) % SOURCES, p.epilogue = (form + s) % 2;
            for (p.parts = 1; p.parts <= MOST_PARTS; p.parts++) {
                is_accurate(&p);
                agrees_with_the_processor(&p);
                if (form < 4) has_equal_bits(&p);
            }
            p.halves = true, p.parts = 1, p.by_strips = p.b_form == 0 && p.M <= TC_GEMM_GROUP;
            is_accurate(&p);
            agrees_with_the_processor(&p);
            has_equal_bits(&p);
            for (size_t i = 0; i < sizeof of_halves / sizeof of_halves[0] && form < 3; i++)
                for (int in_a = 0; in_a < 2; in_a++) multiplies_specials(&p, of_halves[i], in_a);
        }
    problem p = {.M = 19, .N = 40, .K = 70, .row_block = 160, .col_block = 64};
    for (p.parts = 1; p.parts <= MOST_PARTS; p.parts++)
        for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++)
            for (int in_a = 0; in_a < 2; in_a++) {
                p.source = (int)i % SOURCES;
                redoes_what_it_cannot_split(&p, specials[i], in_a);
                if (fabsf(specials[i]) < 1) splits_small_beside_large(&p, specials[i], in_a);
            }
    return check_finish();
}
