/* test_cpu.c: detection and choice of instruction sets, on tables that stand in for the kernels; and the number of
 * processors. Built with and without TC_HAVE_AVX2, TC_HAVE_AVX512, TC_HAVE_AVX512_BF16, TC_HAVE_AMX and TC_HAVE_NEON. */
#include "core/cpu.h"
#include "core/cpu_count.h"
#include "kernels/kernel_ids.h"

#include <sys/stat.h>

#include "check.h"

#define TABLES(isa)                                                                                                                        \
    extern const tc_kernel_table tc_kernels_f32_##isa, tc_kernels_f64_##isa;                                                               \
    const tc_kernel_table tc_kernels_f32_##isa = {{0}}, tc_kernels_f64_##isa = {{0}}
TABLES(baseline);
TABLES(avx2);
TABLES(avx512);
TABLES(neon);
extern const tc_kernel_table tc_kernels_f32_avx512_bf16, tc_kernels_f32_amx;
const tc_kernel_table tc_kernels_f32_avx512_bf16 = {{0}}, tc_kernels_f32_amx = {{0}};

/* The first line of a field, which ends in a space; empty where there is none. */
static void read_proc_cpuinfo(const char *field, char *line, int size)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, size, file) && strncmp(line, field, strlen(field)) != 0) line[0] = '\0';
    if (strncmp(line, field, strlen(field)) != 0) line[0] = line[1] = '\0';
    line[strcspn(line, "\n")] = ' ';
    if (file) fclose(file);
}

/* Whether the kernel lists all of these flags for the processor; it leaves out those whose registers it does not save. */
static bool proc_cpuinfo_has(const char *const *flags, int count)
{
    char line[8193] = ""; /* one more stays 0 */
    read_proc_cpuinfo("flags", line, sizeof line - 1);
    bool all = line[0] == 'f';
    for (int i = 0; i < count; i++) {
        char word[32];
        snprintf(word, sizeof word, " %s ", flags[i]);
        all = all && strstr(line, word);
    }
    return all;
}

static bool is_amd(void)
{
    char line[8193] = ""; /* one more stays 0 */
    read_proc_cpuinfo("vendor_id", line, sizeof line - 1);
    return strstr(line, "AuthenticAMD") != NULL;
}

static const char *const x86_flags[] = {"avx2", "fma", "f16c", "avx512f", "avx512dq", "avx512bw", "avx512vl", "amx_tile", "amx_bf16"};
static const char *const bf16_flags[] = {"avx2", "fma", "f16c", "avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_bf16"};

enum { EVERY_ARM = -1, OF_BF16 = -2 };

static const struct {
    const char *name;
    const tc_kernel_table *float32, *float64;
    bool built;
    int flags; /* of x86_flags, OF_BF16: all of bf16_flags, or EVERY_ARM */
    int parts;
} sets[] = {
    {"baseline", &tc_kernels_f32_baseline, &tc_kernels_f64_baseline, true, 0, 0},
#ifdef TC_HAVE_AVX2
    {"avx2", &tc_kernels_f32_avx2, &tc_kernels_f64_avx2, true, 3, 0},
#else
    {"avx2", &tc_kernels_f32_avx2, &tc_kernels_f64_avx2, false, 3, 0},
#endif
#ifdef TC_HAVE_AVX512
    {"avx512", &tc_kernels_f32_avx512, &tc_kernels_f64_avx512, true, 7, 0},
#else
    {"avx512", &tc_kernels_f32_avx512, &tc_kernels_f64_avx512, false, 7, 0},
#endif
#ifdef TC_HAVE_AVX512_BF16 /* float64 is AVX-512's, here and in the next */
    {"avx512_bf16", &tc_kernels_f32_avx512_bf16, &tc_kernels_f64_avx512, true, OF_BF16, 1},
#else
    {"avx512_bf16", &tc_kernels_f32_avx512_bf16, &tc_kernels_f64_avx512, false, OF_BF16, 1},
#endif
#ifdef TC_HAVE_AMX
    {"amx", &tc_kernels_f32_amx, &tc_kernels_f64_avx512, true, 9, 3},
#else
    {"amx", &tc_kernels_f32_amx, &tc_kernels_f64_avx512, false, 9, 3},
#endif
#ifdef TC_HAVE_NEON
    {"neon", &tc_kernels_f32_neon, &tc_kernels_f64_neon, true, EVERY_ARM, 0},
#else
    {"neon", &tc_kernels_f32_neon, &tc_kernels_f64_neon, false, EVERY_ARM, 0},
#endif
};
enum { SETS = sizeof sets / sizeof sets[0] };

static bool expected_usable(int set)
{
#ifdef __aarch64__
    if (sets[set].flags == EVERY_ARM) return sets[set].built;
#else
    if (sets[set].flags == EVERY_ARM) return false;
#endif
    if (sets[set].flags == OF_BF16) return sets[set].built && proc_cpuinfo_has(bf16_flags, sizeof bf16_flags / sizeof bf16_flags[0]);
    return sets[set].built && (sets[set].flags == 0 || proc_cpuinfo_has(x86_flags, sets[set].flags));
}

static void check_in_use(int set)
{
    CHECK(strcmp(tc_cpu_isa(), sets[set].name) == 0);
    CHECK(tc_cpu_kernels(TC_FLOAT32) == sets[set].float32);
    CHECK(tc_cpu_kernels(TC_FLOAT64) == sets[set].float64);
    CHECK_EQUAL(tc_cpu_parts(), sets[set].parts);
}

static void lists_what_was_built(void)
{
    const char *names[SETS];
    bool usable[SETS];
    int built = 0;
    const int count = tc_cpu_isas(names, usable, SETS);
    for (int i = 0; i < SETS; i++) {
        if (!sets[i].built) continue;
        CHECK(strcmp(names[built], sets[i].name) == 0);
        CHECK_EQUAL(usable[built], expected_usable(i));
        built++;
    }
    CHECK_EQUAL(count, built);
    CHECK_EQUAL(tc_cpu_isas(names, usable, 0), built); /* no room: only the number */
}

static void chooses(void)
{
    tc_error err;
    check_in_use(0); /* before anybody has looked */
    int best = 0;
    for (int i = 0; i < SETS; i++) {
        if (expected_usable(i) && (sets[i].flags != OF_BF16 || is_amd())) best = i; /* others multiply no faster by it */
    }
    unsetenv("TRANSFORMER_C_ISA");
    CHECK_EQUAL(tc_cpu_initialize(&err), TC_OK);
    check_in_use(best);
    for (int i = 0; i < SETS; i++) {
        setenv("TRANSFORMER_C_ISA", sets[i].name, 1);
        CHECK_EQUAL(tc_cpu_select("baseline", &err), TC_OK);
        const tc_status forced = tc_cpu_initialize(&err);
        if (expected_usable(i)) {
            CHECK_EQUAL(forced, TC_OK);
            check_in_use(i);
            CHECK_EQUAL(tc_cpu_select(sets[best].name, &err), TC_OK);
            check_in_use(best);
        } else {
            CHECK_EQUAL(forced, TC_ERROR_VALUE);
            CHECK_TEXT(err.message, sets[i].name);
            CHECK_TEXT(err.message, sets[i].built ? "not supported by this processor" : "not built into this library");
            CHECK_TEXT(err.message, "usable here: baseline");
            check_in_use(0);
        }
    }
}

static void asks_ahead_where_that_pays(void)
{
    tc_error err;
    unsetenv("TRANSFORMER_C_ISA");
    CHECK_EQUAL(tc_cpu_initialize(&err), TC_OK);
    CHECK_EQUAL(tc_kernel_bytes_ahead, is_amd() ? 0 : 2048);
}

static void refuses_unknown_names(void)
{
    tc_error err;
    CHECK_EQUAL(tc_cpu_select("baseline", &err), TC_OK);
    static const char *const unknown[] = {"avx", "avx5122", "AVX2", "sse2", " avx2"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        setenv("TRANSFORMER_C_ISA", unknown[i], 1);
        CHECK_EQUAL(tc_cpu_initialize(&err), TC_ERROR_VALUE);
        CHECK_TEXT(err.message, "TRANSFORMER_C_ISA");
        CHECK_TEXT(err.message, unknown[i]);
        CHECK_TEXT(err.message, "usable here: baseline");
        CHECK_EQUAL(tc_cpu_select(unknown[i], &err), TC_ERROR_VALUE);
        check_in_use(0);
    }
    setenv("TRANSFORMER_C_ISA", "", 1); /* empty is as good as unset */
    CHECK_EQUAL(tc_cpu_initialize(&err), TC_OK);
}

/* ---- processors ------------------------------------------------------------------------------------------------ */

static char folder[] = "/tmp/tc_test_cpu_XXXXXX";

static void write_file(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = strchr(path + sizeof folder, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0);
    if (file) fclose(file);
}

static int quota(const char *membership)
{
    char path[512];
    write_file("membership", membership);
    snprintf(path, sizeof path, "%s/membership", folder);
    return tc_cpu_quota(path, folder);
}

static void counts_processors(void)
{
    CHECK(mkdtemp(folder) != NULL);
    CHECK_EQUAL(quota("0::/\n"), 0); /* no files: no limit */
    write_file("one/cpu.max", "max 100000\n");
    CHECK_EQUAL(quota("0::/one\n"), 0);
    write_file("one/two/cpu.max", "250000 100000\n");
    CHECK_EQUAL(quota("0::/one/two\n"), 3);       /* rounded up */
    CHECK_EQUAL(quota("0::/one/two/three\n"), 3); /* a limit of the group above holds below */
    CHECK_EQUAL(quota("0::/one\n"), 0);           /* and not above */
    write_file("one/cpu.max", "50000 100000\n");
    CHECK_EQUAL(quota("0::/one/two\n"), 1); /* the tightest */
    write_file("cpu/box/cpu.cfs_quota_us", "400000\n");
    write_file("cpu/box/cpu.cfs_period_us", "100000\n");
    CHECK_EQUAL(quota("9:name=systemd:/\n4:cpu,cpuacct:/box\n2:cpuset:/\n"), 4);
    CHECK_EQUAL(quota("4:cpuacct,cpu:/box\n0::/one\n"), 1);
    CHECK_EQUAL(quota("4:cpuset:/box\n"), 0); /* another controller */
    write_file("cpu/box/cpu.cfs_quota_us", "-1\n");
    CHECK_EQUAL(quota("4:cpu,cpuacct:/box\n"), 0);
    CHECK_EQUAL(quota("nonsense\n::\n"), 0);
    write_file("one/cpu.max", "0 0\n");
    CHECK_EQUAL(quota("0::/one\n"), 0);
    CHECK_EQUAL(tc_cpu_quota("/nonexistent", folder), 0);
    CHECK(tc_cpu_count() >= 1 && tc_cpu_count() <= sysconf(_SC_NPROCESSORS_ONLN));

    char command[600];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_EQUAL(system(command), 0);
}

int main(void)
{
    lists_what_was_built();
    chooses();
    asks_ahead_where_that_pays();
    refuses_unknown_names();
    counts_processors();
    return check_finish();
}
