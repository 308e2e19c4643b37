/* cpu.c: detection of instruction sets and the choice of the kernel tables. Compiled without any instruction set flags,
 * since it runs on every processor.
 *
 * An instruction set is usable when the processor has every extension its kernels are compiled with (-mavx2 -mfma
 * -mf16c; also -mavx512f -mavx512dq -mavx512bw -mavx512vl) and the operating system saves its registers when it
 * switches threads, which XGETBV reports (Intel SDM volume 1, 14.3 and 15.2). The tiles of AMX need a permission as well (18.3 of the
 * same). The best usable one is chosen, but for those that gain nothing on this processor. */
#include "cpu.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#define HAVE_X86 1
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* ---- what the processor and the operating system allow ----------------------------------------------------------- */

static bool always(void) { return true; }

#ifdef HAVE_X86
typedef struct cpu_bits {
    unsigned leaf1_ecx, leaf7_ebx, leaf7_edx, leaf7_1_eax;
    unsigned xcr0; /* the register states the operating system saves; 0 without XGETBV */
} cpu_bits;

static cpu_bits read_cpu_bits(void)
{
    cpu_bits bits = {0};
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return bits;
    bits.leaf1_ecx = ecx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
        bits.leaf7_ebx = ebx, bits.leaf7_edx = edx;
        if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) bits.leaf7_1_eax = eax;
    }
    if (bits.leaf1_ecx & bit_OSXSAVE) {
        /* As assembly, because the intrinsic would need -mxsave. */
        __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
        bits.xcr0 = eax;
    }
    return bits;
}

static bool all_set(unsigned value, unsigned mask) { return (value & mask) == mask; }

static bool has_avx2(void)
{
    const cpu_bits bits = read_cpu_bits();
    const unsigned ymm_state = 1u << 1 | 1u << 2; /* XMM, upper halves of YMM */
    return all_set(bits.leaf1_ecx, bit_AVX | bit_FMA | bit_F16C) && all_set(bits.leaf7_ebx, bit_AVX2) && all_set(bits.xcr0, ymm_state);
}

static bool has_avx512(void)
{
    const cpu_bits bits = read_cpu_bits();
    const unsigned zmm_state = 1u << 5 | 1u << 6 | 1u << 7; /* opmasks, upper halves of ZMM0-15, ZMM16-31 */
    return has_avx2() && all_set(bits.leaf7_ebx, bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL) && all_set(bits.xcr0, zmm_state);
}
#else
static bool has_avx2(void) { return false; }

static bool has_avx512(void) { return false; }
#endif

#ifdef TC_EMULATE_TILES
static bool has_avx512_bf16(void) { return true; }
static bool has_amx(void) { return true; }
#elif defined(__x86_64__)
static bool has_avx512_bf16(void) { return has_avx512() && all_set(read_cpu_bits().leaf7_1_eax, 1u << 5); }

#ifdef __linux__
/* Linux gives a process room for the tiles' 8 KiB when it asks: for all its threads, and those of its children. */
static bool may_use_tiles(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* <asm/prctl.h>, which older systems lack */
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static bool has_amx(void)
{
    const cpu_bits bits = read_cpu_bits();
    const unsigned bfloat16 = 1u << 22, tiles = 1u << 24, tile_state = 1u << 17 | 1u << 18; /* configuration, data */
    return has_avx512() && all_set(bits.leaf7_edx, bfloat16 | tiles) && all_set(bits.xcr0, tile_state) && may_use_tiles();
}
#else
static bool has_amx(void) { return false; }
#endif
#else
static bool has_avx512_bf16(void) { return false; }
static bool has_amx(void) { return false; }
#endif

/* The ABI of 64-bit Arm passes floats in registers of Advanced SIMD: no program runs without. */
static bool has_neon(void)
{
#ifdef __aarch64__
    return true;
#else
    return false;
#endif
}

/* ---- what was built, worst first ----------------------------------------------------------------------------------- */

typedef struct isa {
    const char *name;
    bool (*usable)(void);
    const tc_kernel_table *float32, *float64; /* NULL where the build left it out */
    int parts;                                /* tc_cpu_parts() */
    bool (*gains)(void);                      /* over those before it; NULL: always */
} isa;

extern const tc_kernel_table tc_kernels_f32_baseline, tc_kernels_f64_baseline;
#ifdef TC_HAVE_AVX2
extern const tc_kernel_table tc_kernels_f32_avx2, tc_kernels_f64_avx2;
#define AVX2_TABLES &tc_kernels_f32_avx2, &tc_kernels_f64_avx2
#else
#define AVX2_TABLES NULL, NULL
#endif
#ifdef TC_HAVE_AVX512
extern const tc_kernel_table tc_kernels_f32_avx512, tc_kernels_f64_avx512;
#define AVX512_TABLES &tc_kernels_f32_avx512, &tc_kernels_f64_avx512
#else
#define AVX512_TABLES NULL, NULL
#endif
/* The kernels of another instruction set, but for float32 products. */
#ifdef TC_EMULATE_TILES
#define FLOAT64_BESIDE &tc_kernels_f64_baseline
#else
#define FLOAT64_BESIDE &tc_kernels_f64_avx512
#endif
#ifdef TC_HAVE_AVX512_BF16
extern const tc_kernel_table tc_kernels_f32_avx512_bf16;
#define AVX512_BF16_TABLES &tc_kernels_f32_avx512_bf16, FLOAT64_BESIDE
#else
#define AVX512_BF16_TABLES NULL, NULL
#endif
#ifdef TC_HAVE_AMX
extern const tc_kernel_table tc_kernels_f32_amx;
#define AMX_TABLES &tc_kernels_f32_amx, FLOAT64_BESIDE
#else
#define AMX_TABLES NULL, NULL
#endif
#ifdef TC_HAVE_NEON
extern const tc_kernel_table tc_kernels_f32_neon, tc_kernels_f64_neon;
#define NEON_TABLES &tc_kernels_f32_neon, &tc_kernels_f64_neon
#else
#define NEON_TABLES NULL, NULL
#endif

static const isa isas[] = {
    {"baseline", always, &tc_kernels_f32_baseline, &tc_kernels_f64_baseline, 0, NULL},
    {"avx2", has_avx2, AVX2_TABLES, 0, NULL},
    {"avx512", has_avx512, AVX512_TABLES, 0, NULL},
    {"avx512_bf16", has_avx512_bf16, AVX512_BF16_TABLES, 1, tc_cpu_is_amd}, /* on a Xeon VDPBF16PS takes as long as four multiply-adds */
    {"amx", has_amx, AMX_TABLES, 3, NULL},
    {"neon", has_neon, NEON_TABLES, 0, NULL},
};
enum { ISA_COUNT = sizeof isas / sizeof isas[0] };

/* Index into isas; the baseline until tc_cpu_initialize() has looked. */
static atomic_int current = 0;

static bool is_usable(const isa *set) { return set->float32 && set->usable(); }

/* "baseline, avx2" */
static void usable_names(char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < ISA_COUNT && used < size; i++) {
        if (is_usable(&isas[i])) used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", isas[i].name);
    }
}

/* `asked_by` starts the message: where the name came from. */
static tc_status select_isa(const char *name, const char *asked_by, tc_error *err)
{
    const char *why = "is not the name of an instruction set";
    for (int i = 0; i < ISA_COUNT; i++) {
        if (strcmp(isas[i].name, name) != 0) continue;
        if (is_usable(&isas[i])) {
            atomic_store(&current, i);
            return TC_OK;
        }
        why = isas[i].float32 ? "is not supported by this processor and its operating system" : "was not built into this library";
    }
    char usable[64];
    usable_names(usable, sizeof usable);
    return tc_fail(err, TC_ERROR_VALUE, "%s'%s' %s; usable here: %s", asked_by, name, why, usable);
}

/* ---- the interface ------------------------------------------------------------------------------------------------- */

size_t tc_kernel_bytes_ahead = 2048;

tc_status tc_cpu_initialize(tc_error *err)
{
    if (tc_cpu_is_amd()) tc_kernel_bytes_ahead = 0;
    const char *forced = getenv("TRANSFORMER_C_ISA");
    if (forced && forced[0]) return select_isa(forced, "TRANSFORMER_C_ISA: ", err);
    int best = 0;
    for (int i = 0; i < ISA_COUNT; i++) {
        if (is_usable(&isas[i]) && (!isas[i].gains || isas[i].gains())) best = i;
    }
    atomic_store(&current, best);
    return TC_OK;
}

const char *tc_cpu_isa(void) { return isas[atomic_load_explicit(&current, memory_order_relaxed)].name; }

int tc_cpu_isas(const char **names, bool *usable, int max)
{
    int count = 0;
    for (int i = 0; i < ISA_COUNT; i++) {
        if (!isas[i].float32) continue;
        if (count < max) {
            names[count] = isas[i].name;
            usable[count] = is_usable(&isas[i]);
        }
        count++;
    }
    return count;
}

int tc_cpu_parts(void) { return isas[atomic_load_explicit(&current, memory_order_relaxed)].parts; }

bool tc_cpu_is_amd(void)
{
#ifdef HAVE_X86
    return __builtin_cpu_is("amd");
#else
    return false;
#endif
}

tc_status tc_cpu_select(const char *name, tc_error *err) { return select_isa(name, "instruction set ", err); }

const tc_kernel_table *tc_cpu_kernels(tc_dtype compute)
{
    const isa *set = &isas[atomic_load_explicit(&current, memory_order_relaxed)];
    return compute == TC_FLOAT64 ? set->float64 : set->float32;
}
