/* peaks.c: what a core can do with an instruction set: float32 multiply-adds a second, those of the product's register tile with operands
 * in L1, and bytes a second of a copy, by working set. Compiled as a kernel is, with the same flags and the same tile.h, and run by the
 * benchmarks only: harness.py.
 *
 *   ./peaks TRIALS CORE...     one thread a core, all at once; prints the sums as JSON, of each rate the best of so many trials
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../csrc/kernels/cpu/tile.h"
#include "../csrc/kernels/gemm.h"

enum { CHAINS = 12, COPIES = 4, MAX_CORES = 1024 }; /* 12 chains hide a latency of 4 on two ports, and fit 16 registers */
/* The tile that large products are made of. Its operands fit in an L1 of 32 KiB, and the sums are stored once for so many k. */
enum { TILE_VECTORS = 2, TILE_K = 128, PANEL = TC_GEMM_PANEL_BYTES / (int)sizeof(real), PANEL_VECTORS = PANEL / TC_LANES };
static const size_t working_sets[COPIES] = {32 << 10, 512 << 10, 8 << 20, 256 << 20}; /* source and target together, bytes */

typedef struct job {
    pthread_barrier_t *start;
    double flops, tile, copy[COPIES]; /* a second */
    int core, trials;
    float sink;
} job;

/* On the core: what else the machine does counts less. */
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double fma_rate(float *sink)
{
    const long rounds = 2000000;
    vreal acc[CHAINS];
    for (int i = 0; i < CHAINS; i++) acc[i] = v_set1(0.001f * (float)(i + 1));
    const vreal scale = v_set1(0.999f), shift = v_set1(0.002f);
    const double start = seconds();
    for (long round = 0; round < rounds; round++) TC_UNROLL
    for (int i = 0; i < CHAINS; i++) acc[i] = v_fma(acc[i], scale, shift);
    const double elapsed = seconds() - start;
    for (int i = 0; i < CHAINS; i++) *sink += v_sum(acc[i]);
    return 2.0 * TC_LANES * CHAINS * (double)rounds / elapsed;
}

static __attribute__((noinline)) void tile_product(const float *a, const float *b, float *c)
{
    tc_tile sums;
    tile_zero(TC_TILE_ROWS, TILE_VECTORS, sums);
    tile_multiply_add(TC_TILE_ROWS, TILE_VECTORS, sums, TILE_K, a, 1, TC_TILE_ROWS, b, PANEL, PANEL_VECTORS > 1 ? TC_LANES : TILE_K * PANEL,
                      TC_LANES);
    tile_store(TC_TILE_ROWS, TILE_VECTORS, sums, c, TILE_VECTORS * TC_LANES, TC_LANES);
}

static double tile_rate(float *sink)
{
    static _Thread_local float a[TILE_K * TC_TILE_ROWS] __attribute__((aligned(64)));
    static _Thread_local float b[2 * TILE_K * PANEL] __attribute__((aligned(64)));
    static _Thread_local float c[TC_TILE_ROWS * TILE_VECTORS * TC_LANES] __attribute__((aligned(64)));
    const long rounds = 4000;
    for (int i = 0; i < TILE_K * TC_TILE_ROWS; i++) a[i] = 0.5f;
    for (int i = 0; i < 2 * TILE_K * PANEL; i++) b[i] = 0.25f;
    tile_product(a, b, c);
    const double start = seconds();
    for (long round = 0; round < rounds; round++) tile_product(a, b, c);
    const double elapsed = seconds() - start;
    *sink += c[0];
    return 2.0 * TILE_K * TC_TILE_ROWS * TILE_VECTORS * TC_LANES * (double)rounds / elapsed;
}

static double copy_rate(char *target, const char *source, size_t bytes)
{
    const size_t repeats = bytes < (64 << 20) ? ((size_t)128 << 20) / bytes : 2;
    const double start = seconds();
    for (size_t i = 0; i < repeats; i++) {
        memcpy(target, source, bytes);
        __asm__ volatile("" ::"r"(target), "r"(source) : "memory");
    }
    return 2.0 * (double)bytes * (double)repeats / (seconds() - start); /* read and written */
}

static void *run(void *argument)
{
    job *self = argument;
    const size_t largest = working_sets[COPIES - 1] / 2;
    char *source = malloc(largest), *target = malloc(largest);
    if (source == NULL || target == NULL) {
        fprintf(stderr, "peaks: out of memory\n");
        exit(1);
    }
    memset(source, 1, largest);
    memset(target, 2, largest);
    for (int trial = 0; trial < self->trials; trial++) { /* the best of them: what the core can do, undisturbed */
        pthread_barrier_wait(self->start);
        const double flops = fma_rate(&self->sink);
        self->flops = flops > self->flops ? flops : self->flops;
        pthread_barrier_wait(self->start);
        const double tile = tile_rate(&self->sink);
        self->tile = tile > self->tile ? tile : self->tile;
        for (int i = 0; i < COPIES; i++) {
            pthread_barrier_wait(self->start);
            const double rate = copy_rate(target, source, working_sets[i] / 2);
            self->copy[i] = rate > self->copy[i] ? rate : self->copy[i];
        }
    }
    free(source);
    free(target);
    return NULL;
}

int main(int argc, char **argv)
{
    static job jobs[MAX_CORES];
    static pthread_t threads[MAX_CORES];
    const int cores = argc - 2, trials = argc > 1 ? atoi(argv[1]) : 0;
    pthread_barrier_t start;
    if (trials < 1 || cores < 1 || cores > MAX_CORES || pthread_barrier_init(&start, NULL, (unsigned)cores) != 0) {
        fprintf(stderr, "usage: peaks TRIALS CORE...\n");
        return 2;
    }
    for (int i = 0; i < cores; i++) {
        jobs[i] = (job){.core = atoi(argv[i + 2]), .trials = trials, .start = &start};
        if (pthread_create(&threads[i], NULL, run, &jobs[i]) != 0) {
            fprintf(stderr, "peaks: no thread\n");
            return 1;
        }
#ifdef __linux__
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)jobs[i].core, &set);
        pthread_setaffinity_np(threads[i], sizeof set, &set);
#endif
    }
    double flops = 0, tile = 0, copy[COPIES] = {0};
    for (int i = 0; i < cores; i++) {
        pthread_join(threads[i], NULL);
        flops += jobs[i].flops;
        tile += jobs[i].tile;
        for (int c = 0; c < COPIES; c++) copy[c] += jobs[i].copy[c];
    }
    printf("{\"flops\": %.6g, \"tile\": %.6g, \"copy\": [", flops, tile);
    for (int c = 0; c < COPIES; c++) printf("%s[%zu, %.6g]", c ? ", " : "", working_sets[c], copy[c]);
    printf("]}\n");
    return 0;
}
