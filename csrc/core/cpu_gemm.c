/* cpu_gemm.c: the CPU's plan of a product: what is packed, how C is cut into items, when the sum over k is split. Only the split of a
 * weight's gradient changes bits of the result. */
#include "../kernels/gemm.h"
#include "cpu.h"
#include "cpu_packed.h"
#include "cpu_plan.h"

#define FMA_PER_OPERATION 16.0 /* multiply-adds that cost as much as one elementary operation of tc_run() */

/* Rows per item: twelve tiles of AVX-512, and a multiple of the other tiles' heights (8, 6 and 4). */
#define ITEM_ROWS 168
/* At least so many items are wanted for each of several threads, so that they share them evenly: fewer where each copies its rows of A for
 * itself. An item has at least so many columns and multiply-adds; where the sum is split, half as many columns: few blocks of k would be
 * shared unevenly. */
#define ITEMS_OF_A_THREAD 4
#define ITEMS_OF_A_THREAD_THAT_COPY 2
#define LEAST_COLUMNS 64
#define LEAST_WORK 65536
/* Multiply-adds of an item at most: some hundredths of a second, after which Ctrl-C is looked for. */
#define MOST_WORK 1073741824
/* Rows whose multiply-adds take at least as long as packing columns of B, which an item does for itself where they are not adjacent. */
#define ROWS_OF_PACKING 32

/* With at most so many rows a product is bound by reading B, in panels from end to end. */
#define FEW_ROWS 42
/* Columns of an item whose sums are kept in scratch until they are rounded to halves. */
#define MOST_SUMMED_COLUMNS 512

/* Bytes of B beyond which its panels are prefetched: the size of a second-level cache; for few rows, which soon need the next ones, what
 * may well be in it from the call before. */
#define LARGE_B 1048576
#define LARGE_B_OF_FEW_ROWS 131072
/* Where halves are in a cache near the core or the next, prefetching them for up to so many rows costs more than it saves. */
#define LARGE_HALVES 393216
#define FEW_ROWS_OF_HALVES 8
/* AMD's processors themselves read ahead fast enough for so many rows, and prefetching as well takes longer. */
#define ROWS_READ_AHEAD_BY_AMD 2

/* Up to so many rows, and from so many bytes on that no cache near the core contains, rows of B in place are read by strips, in pieces of
 * so many columns where there are as many for each thread. */
#define ROWS_OF_STRIPS 16
#define LEAST_B_OF_STRIPS 4194304
#define LONG_PIECE 1024

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows per item of a product whose items pack the windows that they use: as many as there are, but for too few items. */
#define MOST_ROWS_OF_WINDOWS 512
#define LEAST_ROWS_OF_WINDOWS 84
static int64_t rows_of_windows(const tc_gemm_args *g, int64_t wanted)
{
    const int64_t others = g->batch * g->k_chunks * tc_divide_up(g->N, LEAST_COLUMNS);
    int64_t blocks = tc_divide_up(g->M, MOST_ROWS_OF_WINDOWS);
    while (others * blocks < wanted && g->M >= 2 * blocks * LEAST_ROWS_OF_WINDOWS) blocks *= 2;
    return tc_divide_up(g->M, blocks);
}

/* Blocks of rows: a few for several threads are of the same height, and one thread takes those of a small weight's gradient together, so
 * that B is packed where it is used. */
static int64_t choose_row_block(const tc_gemm_args *g, int64_t threads, int64_t wanted)
{
    const int64_t blocks = tc_divide_up(g->M, ITEM_ROWS);
    if (g->b_rows) return rows_of_windows(g, wanted);
    if (threads == 1) return g->k_is_rows && blocks == 2 ? g->M : ITEM_ROWS;
    return blocks > 1 && blocks <= wanted ? tc_divide_up(g->M, blocks) : ITEM_ROWS;
}

/* Columns of an item: all, unless there would be too few items of so many rows. */
static int64_t choose_columns(const tc_gemm_args *g, int64_t rows, int64_t wanted)
{
    int64_t all = tc_divide_up(g->N, LEAST_COLUMNS) * LEAST_COLUMNS;
    if (g->c_stored != TC_STORED_AS_COMPUTED && !g->by_columns && g->K > TC_GEMM_K_BLOCK) all = least_of(all, MOST_SUMMED_COLUMNS);
    const int64_t others = g->batch * g->k_chunks * tc_gemm_row_blocks(g);
    if (others * tc_divide_up(g->N, all > 0 ? all : 1) >= wanted) return all;
    const int64_t by_work = LEAST_WORK / (rows * (g->k_chunk > 0 ? g->k_chunk : 1)); /* columns that make an item worthwhile */
    const int64_t parts = tc_divide_up(wanted, others), odd = others & parts & 1;    /* 3 times 4 are shared better than 3 times 3 */
    const int64_t columns = tc_divide_up(g->N, parts + odd);
    const int64_t least = g->k_chunks > 1 ? LEAST_COLUMNS / 2 : LEAST_COLUMNS;
    return tc_divide_up(columns > by_work ? columns : by_work, least) * least;
}

static void choose_items(tc_gemm_args *g)
{
    const int64_t threads = tc_get_num_threads();
    const int64_t wanted = threads > 1 ? threads * (g->a_col == 1 ? ITEMS_OF_A_THREAD : ITEMS_OF_A_THREAD_THAT_COPY) : 1;
    g->row_block = choose_row_block(g, threads, wanted);
    const int64_t rows = least_of(g->M, g->row_block), packing = g->b_rows || g->b_col != 1 ? ROWS_OF_PACKING : 0;
    const int64_t most = MOST_WORK / LEAST_COLUMNS / ((rows + packing) * (g->k_chunk > 0 ? g->k_chunk : 1));
    g->col_block = least_of(choose_columns(g, rows, wanted), (most > 0 ? most : 1) * LEAST_COLUMNS);
}

/* A sum over k is split into at most so many chunks, and only where C has at most so many elements. */
#define MOST_CHUNKS 32
#define LARGEST_SPLIT_C 32768
#define ENOUGH_COLUMNS 512
/* A row by columns along memory, whose blocks of k are summed side by side: B of at most so many elements is read sooner than parts of C
 * are made and added up. */
#define MOST_UNSPLIT 262144
#define MANY_ENOUGH 256 /* columns, or rows, for some threads */
#define FEW_BY_MANY 4   /* such rows or columns, which read the others once */

/* Where there are columns enough for some threads, the sum of a forward is left whole. Never by the number of threads, as the split of a
 * weight's gradient changes bits. */
static void choose_split(tc_gemm_args *g)
{
    const int64_t few = least_of(g->M, g->N), many = g->M > g->N ? g->M : g->N;
    const bool along = g->b_row == 1 && !g->k_is_rows && (g->M == 1 || (g->a_col == 1 && few <= FEW_BY_MANY));
    const bool short_row = along && (many >= MANY_ENOUGH || g->K <= MOST_UNSPLIT / many);
    const bool enough = short_row || (!g->k_is_rows && g->N >= ENOUGH_COLUMNS);
    tc_gemm_split_k(g, enough || g->M * g->N > LARGEST_SPLIT_C ? 1 : MOST_CHUNKS);
}

/* So few rows of B stay in L1 wherever they lie. */
#define FEW_ROWS_OF_B 8

/* Many rows by few columns read both where they lie, without an epilogue: so many rows at least, where the columns are too few for tiles.
 */
#define MANY_BY_FEW 8
#define MANY_BY_SOME 32 /* of more than two columns, */
#define LEAST_K_BY_SOME 256
#define ALWAYS_MANY 128 /* or of short ones */
static bool gains_in_place(const tc_gemm_args *g)
{
    if (g->a_stored != TC_STORED_AS_COMPUTED || g->b_stored != TC_STORED_AS_COMPUTED) return false;
    if (g->activation != TC_ACTIVATION_NONE || g->pre || g->residual || g->M < MANY_BY_FEW) return false;
    return g->N <= 2 || g->M >= ALWAYS_MANY || (g->M >= MANY_BY_SOME && g->K >= LEAST_K_BY_SOME);
}

/* Rows of B are read in place where they stay in L1 from tile to tile, or are used by at most two tiles. Panels that several items would
 * pack are packed once, in advance. */
static tc_gemm_b_form choose_b_form(const tc_gemm_args *g, bool keep, size_t element)
{
    const bool along = g->N <= FEW_BY_MANY && g->a_col == 1 && g->b_row == 1;
    if (g->b_rows || (g->M == 1 && g->N == 1 && g->b_row == 1)) return TC_GEMM_B_STRIDED;
    const int64_t reach = g->k_chunk * (g->b_row < 0 ? -g->b_row : g->b_row) * (int64_t)element;
    if (g->b_col == 1 && (reach <= 49152 || g->M <= 28 || g->K <= FEW_ROWS_OF_B)) return TC_GEMM_B_ROWS;
    if (along && gains_in_place(g)) return TC_GEMM_B_STRIDED;
    return keep || (g->M > g->row_block && g->K > FEW_ROWS_OF_B && !along) ? TC_GEMM_B_PANELS : TC_GEMM_B_STRIDED;
}

/* Few rows by a large B in place: going straight down, a tile would read a few lines of each row, and rows lie pages apart. Items then
 * are as wide as the threads allow, so that rows are read in long pieces. */
static void choose_strips(tc_gemm_args *g, size_t element)
{
    const int64_t size = g->b_stored == TC_STORED_AS_COMPUTED ? (int64_t)element : 2, threads = tc_get_num_threads();
    g->by_strips = g->by_columns && g->M <= ROWS_OF_STRIPS && g->b_form == TC_GEMM_B_ROWS && !g->bias_of_rows &&
                   g->K * g->b_row * size >= LEAST_B_OF_STRIPS;
    if (!g->by_strips) return;
    const int64_t share = tc_divide_up(g->N, threads), half = tc_divide_up(share, 2), long_piece = least_of(share, LONG_PIECE);
    g->col_block = tc_divide_up(half > long_piece ? half : long_piece, LEAST_COLUMNS) * LEAST_COLUMNS;
}

/* Few rows are read row by row, without a power of two between them. Blocks of A are copied when neither stride is 1; when rows are long
 * and many columns use them; and when k steps from page to page. */
static bool wants_blocks(const tc_gemm_args *g, size_t element)
{
    if (g->a_col != 1 && (g->a_row != 1 || g->a_stored != TC_STORED_AS_COMPUTED)) return true;
    if (g->N < 128) return false;
    if (g->a_row == 1) return g->a_col * (int64_t)element >= 1024 && g->k_chunk >= 64;
    return g->k_chunk >= 512 && g->N >= 512;
}

static bool wants_prefetch(const tc_gemm_args *g, size_t element)
{
    const bool halves = g->b_stored != TC_STORED_AS_COMPUTED;
    if (g->b_form != TC_GEMM_B_PANELS) return false;
    if (halves && g->M <= ROWS_READ_AHEAD_BY_AMD && tc_cpu_is_amd()) return false;
    if (halves && g->by_columns && g->M <= FEW_ROWS_OF_HALVES) return g->K * g->N * 2 > LARGE_HALVES;
    return g->K * g->N * (int64_t)element > (g->by_columns ? LARGE_B_OF_FEW_ROWS : LARGE_B);
}

static tc_gemm_a_form choose_a_form(const tc_gemm_args *g, size_t element)
{
    const bool halves = g->a_stored != TC_STORED_AS_COMPUTED;
    if (g->by_columns) return halves || g->a_col != 1 || (g->K >= 512 && g->M > 1) ? TC_GEMM_A_ROWS : TC_GEMM_A_IN_PLACE;
    return wants_blocks(g, element) ? TC_GEMM_A_BLOCKS : halves ? TC_GEMM_A_ROWS : TC_GEMM_A_IN_PLACE;
}

/* ---- split products: gemm.h ------------------------------------------------------------------------------------------------ */

/* Rows and columns of an item: a multiple of two groups each. */
#define SPLIT_ROWS 320
#define SPLIT_COLUMNS 1024
#define SPLIT_STRIP_COLUMNS 4096 /* read from end to end */
#define SPLIT_LEAST_COLUMNS 32
/* Of a thread, so that threads share them evenly. Each splits its rows of A anew. */
#define SPLIT_ITEMS 2
/* Smaller matrices gain nothing. With full accuracy, six products instead of three or one, few rows take longer: what is split then are the
 * gradients of weights by many rows, and rows of long sequences. */
#define SPLIT_LEAST_SIDE 128
#define SPLIT_LEAST_SIDE_IN_FULL 384
#define SPLIT_LEAST_ROWS_IN_FULL 256
/* Products of halves: the least side. */
#define SPLIT_LEAST_SIDE_OF_HALVES 32
#define SPLIT_LEAST_ROWS_OF_HALVES 64 /* of a weight's gradient, which has a step of tiles for 32 */
/* Multiply-adds of split products that cost as much as one elementary operation. */
#define SPLIT_FMA_PER_OPERATION 24.0

/* What multiplies halves: the least B, whose one row of A takes as long as without it, and what decides whether B is read by strips. */
typedef struct halves_multiplier {
    int64_t least, least_adjacent, least_adjacent_k;    /* elements of B; those and the rows of one whose columns are adjacent */
    int64_t strip_bytes, strip_columns, strip_multiple; /* the least B by strips, and what an item's columns are a multiple of */
    const char *strips, *one[2];                        /* names of variants: by strips; of one product, whole and with a split sum */
} halves_multiplier;

/* Adjacent columns are moved to tiles in each call, which one row gains by where the second-level cache does not contain B in float32. */
static const halves_multiplier tiles = {32768, 524288, 1, LEAST_B_OF_STRIPS, 1, 64, "tiles, strips", {"tiles", "tiles, split k"}};
/* AVX512-BF16: few rows read B in place, several lines of memory at a time; the scratch has tiles of B for a block of k from 128 columns
 * on. */
static const halves_multiplier dots = {4096, 8192, 64, 0, 128, 128, "dots, strips", {"dots", "dots, split k"}};

static const halves_multiplier *multiplier(void) { return tc_cpu_parts() == 1 ? &dots : &tiles; }

static bool is_of_float32(const tc_gemm_args *g, tc_dtype compute)
{
    return g->a_stored == TC_STORED_AS_COMPUTED && g->b_stored == TC_STORED_AS_COMPUTED && compute == TC_FLOAT32;
}

bool tc_cpu_gemm_goes_by_length(const tc_gemm_args *g, tc_dtype compute)
{
    return is_of_float32(g, compute) && tc_cpu_parts() == 3 && tc_get_float32_precision() == TC_FLOAT32_HIGHEST &&
           least_of(g->N, g->K) >= SPLIT_LEAST_SIDE_IN_FULL;
}

/* Into how many bfloat16 a float32 is split. Never by the number of rows: each has the same bits among any others. */
static int choose_parts(const tc_plan *plan, const tc_gemm_args *g)
{
    const bool halves = g->a_stored == TC_STORED_BFLOAT16 && g->b_stored == TC_STORED_BFLOAT16;
    const bool full = plan->precision == TC_FLOAT32_HIGHEST;
    const int64_t other_side = g->k_is_rows ? g->M : g->K;
    if (!g->may_split || !tc_cpu_parts()) return 0;
    if (halves) {
        const halves_multiplier *by = multiplier();
        const bool adjacent = g->b_col == 1 && !g->is_gradient;
        if (g->k_is_rows && g->K < SPLIT_LEAST_ROWS_OF_HALVES) return 0;
        if (adjacent && other_side < by->least_adjacent_k) return 0;
        return least_of(g->N, other_side) >= SPLIT_LEAST_SIDE_OF_HALVES && g->N * other_side >= (adjacent ? by->least_adjacent : by->least);
    }
    if (!is_of_float32(g, plan->compute)) return 0;
    if (full && (g->k_is_rows ? g->K < SPLIT_LEAST_ROWS_IN_FULL : !tc_gemm_is_long(g->sequence))) return 0;
    if (least_of(g->N, other_side) < (full ? SPLIT_LEAST_SIDE_IN_FULL : SPLIT_LEAST_SIDE)) return 0;
    const int parts = full ? 3 : plan->precision == TC_FLOAT32_HIGH ? 2 : 1;
    return parts <= tc_cpu_parts() ? parts : 0;
}

/* B is split in advance where several items need it. Of six products nothing is kept but the panels of float32, from which one item splits
 * what it needs: parts would be half as much memory again. */
static void choose_split_b(tc_plan *plan, tc_gemm_args *g)
{
    const bool many = g->M > g->row_block, full = g->parts == 3;
    g->b_form = plan->keep || many ? TC_GEMM_B_PANELS : TC_GEMM_B_STRIDED;
    if (full && many) plan->keep = NULL;
    const bool in_advance = g->b_form == TC_GEMM_B_PANELS && (many || !full);
    g->b_parts = in_advance ? g->b : NULL; /* in the end what is made of it */
}

static void plan_split(tc_plan *plan, tc_gemm_args *g)
{
    static const char *const several[][2] = {[2] = {"tiles x 3", "tiles x 3, split k"}, [3] = {"tiles x 6", "tiles x 6, split k"}};
    const halves_multiplier *by = multiplier();
    tc_gemm_split_k(g, g->k_is_rows && g->M * g->N <= LARGEST_SPLIT_C ? MOST_CHUNKS : 1);
    g->k_chunk = tc_divide_up(g->k_chunk, TC_GEMM_STEP) * TC_GEMM_STEP;
    if (g->k_chunks > 1) g->k_chunks = tc_divide_up(g->K, g->k_chunk);
    g->row_block = SPLIT_ROWS;
    const int64_t others = g->batch * g->k_chunks * tc_gemm_row_blocks(g), threads = tc_get_num_threads();
    const int64_t wanted = threads > 1 ? SPLIT_ITEMS * threads : 1, columns = tc_divide_up(g->N, tc_divide_up(wanted, others));
    g->col_block = tc_divide_up(least_of(columns, SPLIT_COLUMNS), SPLIT_LEAST_COLUMNS) * SPLIT_LEAST_COLUMNS;
    choose_split_b(plan, g);
    g->by_strips = tc_gemm_of_halves(g) && !g->b_parts && g->b_col == 1 && g->M <= ROWS_OF_STRIPS && g->N >= by->strip_columns &&
                   g->K * g->b_row * 2 >= by->strip_bytes;
    if (g->by_strips)
        g->col_block = tc_divide_up(least_of(tc_divide_up(g->N, wanted), SPLIT_STRIP_COLUMNS), by->strip_multiple) * by->strip_multiple;
    tc_gemm_args plain = *g;
    plain.M = plain.N = TC_GEMM_GROUP;
    plain.K = plain.k_chunk = least_of(tc_gemm_longest_item(g), TC_GEMM_K_BLOCK), plain.k_chunks = 1;
    tc_gemm_make_plain(&plain);
    const double work = (double)least_of(g->M, g->row_block) * (double)least_of(g->N, g->col_block) * (double)(g->k_chunk + 1);
    plan->variant = g->by_strips ? by->strips : (g->parts == 1 ? by->one : several[g->parts])[g->k_chunks > 1];
    plan->splits = g->k_chunks;
    plan->items = tc_gemm_items(g);
    plan->cost = work / SPLIT_FMA_PER_OPERATION;
    plan->scratch = tc_gemm_split_scratch_of(g).bytes + tc_gemm_scratch_of(&plain, sizeof(float)).bytes;
}

void tc_cpu_plan_gemm(tc_plan *plan, void *args)
{
    static const char *const variants[][2] = {[TC_GEMM_B_PANELS] = {"panels", "panels, split k"},
                                              [TC_GEMM_B_ROWS] = {"rows", "rows, split k"},
                                              [TC_GEMM_B_STRIDED] = {"strided", "strided, split k"}};
    tc_gemm_args *g = args;
    const size_t element = tc_dtype_size(plan->compute);
    g->parts = choose_parts(plan, g);
    if (g->parts) {
        plan_split(plan, g);
        return;
    }
    choose_split(g);
    g->by_columns = g->M <= FEW_ROWS && !g->k_is_rows;
    choose_items(g);
    g->b_form = choose_b_form(g, plan->keep != NULL, element);
    choose_strips(g, element);
    g->a_form = choose_a_form(g, element);
    g->fetch_b = wants_prefetch(g, element);
    const double work = (double)least_of(g->M, g->row_block) * (double)least_of(g->N, g->col_block) * (double)(g->k_chunk + 1);
    plan->variant = g->by_strips ? "strips" : variants[g->b_form][g->k_chunks > 1];
    plan->splits = g->k_chunks;
    plan->items = tc_gemm_items(g);
    plan->cost = work / FMA_PER_OPERATION;
    plan->scratch = tc_gemm_scratch_of(g, element).bytes;
}

/* Packs B, each matrix of its batch once, and points the args to the panels. */
tc_status tc_cpu_prepare_gemm(tc_plan *plan, void *args, tc_error *err)
{
    tc_gemm_args *g = args;
    if (g->b_form != TC_GEMM_B_PANELS) return TC_OK;
    tc_gemm_pack_args pack = {
        .b = g->b, .b_stored = g->b_stored, .K = g->K, .N = g->N, .b_row = g->b_row, .b_col = g->b_col, .parts = g->b_parts ? g->parts : 0};
    const size_t element = tc_dtype_size(plan->compute);
    int64_t step = tc_gemm_panels(g->N, element) * (g->b_parts ? tc_gemm_group_bytes(g->K, g->parts) : g->K * tc_gemm_panel_width(element));
    int64_t steps[TC_GEMM_BATCH_DIMS];
    for (int d = g->batch_dims - 1; d >= 0; d--) {
        steps[d] = g->b_batch[d] ? step : 0;
        if (g->b_batch[d]) step *= g->batch_shape[d];
    }
    for (int d = 0; d < g->batch_dims; d++) {
        if (!g->b_batch[d]) continue;
        pack.batch_shape[pack.batch_dims] = g->batch_shape[d];
        pack.b_batch[pack.batch_dims++] = g->b_batch[d];
        *(g->b_parts ? &g->b_parts_batch[d] : &g->b_batch[d]) = steps[d];
    }
    tc_packed *packed;
    tc_storage *keep = pack.batch_dims ? NULL : plan->keep;
    if (keep && !g->b_parts) pack.panels_stored = g->b_stored; /* halves stay halves: half the memory to read, again and again */
    const tc_status status = tc_packed_acquire(&packed, &pack, plan->compute, keep, err);
    if (status != TC_OK) return status;
    plan->prepared = &packed->prepared;
    if (g->b_parts) {
        g->b_parts = packed->panels;
        return TC_OK;
    }
    g->b = packed->panels;
    g->b_stored = pack.panels_stored;
    return TC_OK;
}
