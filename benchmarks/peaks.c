/* peaks.c: what a core can do: float32 fused multiply-adds a second, and bytes a second of a copy, by working set.
 *
 *   cc -O3 -march=native -ffp-contract=fast -pthread peaks.c -o peaks && ./peaks CORE...
 *
 * One thread a core, all at once; prints the sums as JSON. Only the benchmarks use it, on the machine that compiled it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__AVX512F__)
#define WIDTH 16
#elif defined(__AVX__)
#define WIDTH 8
#else
#define WIDTH 4
#endif
typedef float vec __attribute__((vector_size(WIDTH * 4)));

enum { CHAINS = 12, COPIES = 4, TRIALS = 7, MAX_CORES = 1024 }; /* 12 chains hide a latency of 4 on two ports, and fit 16 registers */
static const size_t working_sets[COPIES] = {32 << 10, 512 << 10, 8 << 20, 256 << 20}; /* source and target together, bytes */

typedef struct job {
    int core;
    pthread_barrier_t *start;
    double flops, copy[COPIES]; /* a second */
    float sink;
} job;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double fma_rate(float *sink)
{
    const long rounds = 2000000;
    vec acc[CHAINS], scale, shift;
    for (int lane = 0; lane < WIDTH; lane++) {
        scale[lane] = 0.999f;
        shift[lane] = 0.001f * (float)(lane + 1);
    }
    for (int i = 0; i < CHAINS; i++) acc[i] = shift * (float)(i + 1);
    const double start = seconds();
    for (long round = 0; round < rounds; round++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) acc[i] = acc[i] * scale + shift;
    const double elapsed = seconds() - start;
    for (int i = 0; i < CHAINS; i++) *sink += acc[i][0];
    return 2.0 * WIDTH * CHAINS * (double)rounds / elapsed;
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
    for (int trial = 0; trial < TRIALS; trial++) { /* the best of them: what the core can do, undisturbed */
        pthread_barrier_wait(self->start);
        const double flops = fma_rate(&self->sink);
        self->flops = flops > self->flops ? flops : self->flops;
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
    const int cores = argc - 1;
    pthread_barrier_t start;
    if (cores < 1 || cores > MAX_CORES || pthread_barrier_init(&start, NULL, (unsigned)cores) != 0) {
        fprintf(stderr, "usage: peaks CORE...\n");
        return 2;
    }
    for (int i = 0; i < cores; i++) {
        jobs[i] = (job){.core = atoi(argv[i + 1]), .start = &start};
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
    double flops = 0, copy[COPIES] = {0};
    for (int i = 0; i < cores; i++) {
        pthread_join(threads[i], NULL);
        flops += jobs[i].flops;
        for (int c = 0; c < COPIES; c++) copy[c] += jobs[i].copy[c];
    }
    printf("{\"flops\": %.6g, \"copy\": [", flops);
    for (int c = 0; c < COPIES; c++) printf("%s[%zu, %.6g]", c ? ", " : "", working_sets[c], copy[c]);
    printf("]}\n");
    return 0;
}
