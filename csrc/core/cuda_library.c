/* cuda_library.c: finds and opens the CUDA library, and says why when it cannot be used. */
#define _GNU_SOURCE /* dladdr */
#include "cuda.h"

#include <dlfcn.h>
#ifndef __APPLE__
#include <link.h> /* ElfW */
#endif
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lock.h"

#define LIBRARY_NAME "libtransformer_c_cuda.so"
#define LIBRARY_VARIABLE "TRANSFORMER_C_CUDA_LIBRARY"
#define PATH_BYTES 4096
#define BUILD_IT "build it with \"make cuda\" in the sources or \"TRANSFORMER_C_CUDA=1 pip install .\", which need nvcc"

TC_DEFINE_LOCK(opening, TC_RANK_CUDA_LIBRARY)
static const tc_cuda_api *_Atomic opened;
/* Written before `opened`. */
static int device_count;
static int capabilities[TC_CUDA_DEVICES]; /* 80 for 8.0 */
static int multiprocessors[TC_CUDA_DEVICES];
static int block_shared_bytes[TC_CUDA_DEVICES];
static atomic_bool forked;

static void note_fork(void)
{
    if (atomic_load(&opened)) atomic_store(&forked, true);
}

TC_IN_FORKED_CHILD(note_fork)

bool tc_cuda_forked(void) { return atomic_load_explicit(&forked, memory_order_relaxed); }

int tc_cuda_slot(int index) { return index == TC_EMULATED_GPU ? 0 : index; }

/* The file that the environment names, or NULL. */
static const char *named_library(void)
{
    const char *named = getenv(LIBRARY_VARIABLE);
    return named && *named ? named : NULL;
}

/* For messages, after a file's name. */
static const char *named_by(void) { return named_library() ? " (named by " LIBRARY_VARIABLE ")" : ""; }

/* The file next to this one, unless the environment names another. */
static tc_status library_path(char path[PATH_BYTES], tc_error *err)
{
    const char *named = named_library();
    Dl_info self;
    if (named) {
        snprintf(path, PATH_BYTES, "%s", named);
        return TC_OK;
    }
    if (!dladdr((const void *)&opening, &self) || !self.dli_fname)
        return tc_fail(err, TC_ERROR_STATE,
                       "the directory of transformer_c cannot be determined; name its CUDA library in " LIBRARY_VARIABLE);
    const char *slash = strrchr(self.dli_fname, '/');
    snprintf(path, PATH_BYTES, "%.*s" LIBRARY_NAME, slash ? (int)(slash - self.dli_fname) + 1 : 0, self.dli_fname);
    return TC_OK;
}

/* Is the file truncated, by a full disk or an interrupted copy? dlopen crashes the process when it reads past the end. The section table is
 * at the end of a library. dlopen reports everything else that may be wrong with a file. */
static bool is_cut_short(const char *path)
{
#ifdef __APPLE__ /* no CUDA, and no ELF */
    (void)path;
    return false;
#else
    ElfW(Ehdr) header;
    struct stat about;
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    const bool is_library = fread(&header, sizeof header, 1, file) == 1 && memcmp(header.e_ident, ELFMAG, SELFMAG) == 0;
    const bool cut = is_library && fstat(fileno(file), &about) == 0 &&
                     (uint64_t)about.st_size < header.e_shoff + (uint64_t)header.e_shnum * header.e_shentsize;
    fclose(file);
    return cut;
#endif
}

/* The emulation names no digest of the kernels' code, as it compiles the sources that it finds. */
static bool is_of_these_sources(const tc_cuda_api *api)
{
    return strncmp(api->rows, tc_kernel_rows, api->emulated ? strlen(api->rows) : sizeof tc_kernel_rows) == 0;
}

static tc_status load(const tc_cuda_api **out, tc_error *err)
{
    char path[PATH_BYTES];
    const tc_status status = library_path(path, err);
    if (status != TC_OK) return status;
    if (is_cut_short(path))
        return tc_fail(err, TC_ERROR_STATE, "CUDA is not available: the file %.300s%s is incomplete; " BUILD_IT, path, named_by());
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return tc_fail(err, TC_ERROR_STATE,
                       "CUDA is not available: this build of transformer_c has no CUDA library that can be opened (%.300s)%s; " BUILD_IT
                       ", or use device=\"cpu\"",
                       dlerror(), named_by());
    union {
        void *object;
        const tc_cuda_api *(*function)(void);
    } get = {dlsym(library, "tc_cuda_get_api")};
    const tc_cuda_api *api = get.object ? get.function() : NULL;
    if (!api || api->abi_version != TC_CUDA_ABI_VERSION || !is_of_these_sources(api)) {
        dlclose(library);
        return tc_fail(err, TC_ERROR_STATE, "CUDA is not available: %.300s%s was built from other sources than this; " BUILD_IT, path,
                       named_by());
    }
    *out = api;
    return TC_OK;
}

static tc_status count_devices(const tc_cuda_api *api, int *count, tc_error *err)
{
    int driver = 0, runtime = 0;
    const int versions = api->versions(&driver, &runtime), code = versions ? versions : api->device_count(count);
    if (code == TC_CUDA_NO_DEVICE || (code == 0 && *count == 0))
        return tc_fail(
            err, TC_ERROR_STATE,
            "CUDA is not available: the driver sees no GPU; look at nvidia-smi and at CUDA_VISIBLE_DEVICES, or use device=\"cpu\"");
    if (driver == 0 && (code == 0 || code == TC_CUDA_OLD_DRIVER))
        return tc_fail(err, TC_ERROR_STATE,
                       "CUDA is not available: no NVIDIA driver is installed; install one for CUDA %d.%d, or use device=\"cpu\"",
                       runtime / 1000, runtime % 1000 / 10);
    if (code == TC_CUDA_OLD_DRIVER)
        return tc_fail(err, TC_ERROR_STATE,
                       "CUDA is not available: the NVIDIA driver is too old, it is for CUDA %d.%d and %d.%d is needed; update it, or use "
                       "device=\"cpu\"",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (code) return tc_fail(err, TC_ERROR_STATE, "CUDA is not available: %.400s", api->error_text(code));
    if (*count > TC_CUDA_DEVICES) *count = TC_CUDA_DEVICES;
    return TC_OK;
}

/* Machine code runs on GPUs of the same major capability and no lower minor one, PTX on all later ones. */
static bool has_code_for(const tc_cuda_api *api, int capability)
{
    for (const int *built = api->code_for; *built; built++)
        if (capability >= *built && (built[1] == 0 || *built / 10 == capability / 10)) return true;
    return false;
}

static tc_status no_code_for(const tc_cuda_api *api, int index, tc_error *err)
{
    char list[128] = "";
    size_t length = 0;
    for (const int *built = api->code_for; *built && length + 16 < sizeof list; built++)
        length += (size_t)snprintf(list + length, sizeof list - length, "%s%d.%d", length ? ", " : "", *built / 10, *built % 10);
    return tc_fail(err, TC_ERROR_STATE,
                   "CUDA is not available: GPU %d has compute capability %d.%d, and the CUDA library has code for %s and later; use "
                   "another GPU, or device=\"cpu\"",
                   index, capabilities[index] / 10, capabilities[index] % 10, list);
}

/* One GPU that can be used is enough; others are refused when they are named. */
static tc_status describe_devices(const tc_cuda_api *api, int count, tc_error *err)
{
    bool any = false;
    for (int i = 0; i < count; i++) {
        int code = api->compute_capability(&capabilities[i], i);
        if (!code) code = api->multiprocessors(&multiprocessors[i], i);
        if (!code) code = api->block_shared_bytes(&block_shared_bytes[i], i);
        if (code) return tc_fail(err, TC_ERROR_STATE, "CUDA is not available: %.400s", api->error_text(code));
        any = any || has_code_for(api, capabilities[i]);
    }
    return any ? TC_OK : no_code_for(api, 0, err);
}

/* The library, which is kept without a device as well. The lock is held. */
static tc_status load_once(const tc_cuda_api **out, tc_error *err)
{
    static const tc_cuda_api *loaded;
    const tc_status status = loaded ? TC_OK : load(&loaded, err);
    *out = loaded;
    return status;
}

/* A failure is not kept: the next call tries again. */
static tc_status open_library(const tc_cuda_api **out, tc_error *err)
{
    if (tc_cuda_forked())
        return tc_fail(err, TC_ERROR_STATE,
                       "CUDA cannot be used in a process forked from one that used it; start processes with the method \"spawn\", or use "
                       "CUDA only after the fork");
    *out = atomic_load_explicit(&opened, memory_order_acquire);
    if (*out) return TC_OK;
    tc_lock_take(&opening);
    tc_status status = load_once(out, err);
    if (status == TC_OK) status = count_devices(*out, &device_count, err);
    if (status == TC_OK) status = describe_devices(*out, device_count, err);
    if (status == TC_OK) atomic_store_explicit(&opened, *out, memory_order_release);
    tc_lock_give(&opening);
    return status;
}

static tc_status check_device(const tc_cuda_api *api, int index, tc_error *err)
{
    if (api->emulated && index != TC_EMULATED_GPU)
        return tc_fail(err, TC_ERROR_STATE,
                       "device \"cuda:%d\" is not available: " LIBRARY_VARIABLE " names an emulated GPU, which is device=\"cuda:emulated\"",
                       index);
    if (!api->emulated && index == TC_EMULATED_GPU)
        return tc_fail(err, TC_ERROR_STATE,
                       "device \"cuda:emulated\" exists in tests only, when " LIBRARY_VARIABLE " names the library of the emulation");
    if (index >= device_count)
        return tc_fail(err, TC_ERROR_STATE, "device \"cuda:%d\" does not exist: there %s %d GPU%s, cuda:0 to cuda:%d", index,
                       device_count == 1 ? "is" : "are", device_count, device_count == 1 ? "" : "s", device_count - 1);
    return has_code_for(api, capabilities[tc_cuda_slot(index)]) ? TC_OK : no_code_for(api, tc_cuda_slot(index), err);
}

static tc_status usable(const tc_cuda_api **out, int index, tc_error *err)
{
    TC_TRY(open_library(out, err));
    return check_device(*out, index, err);
}

int tc_cuda_multiprocessors(int index) { return multiprocessors[tc_cuda_slot(index)]; }
int tc_cuda_capability(int index) { return capabilities[tc_cuda_slot(index)]; }
int tc_cuda_block_shared_bytes(int index) { return block_shared_bytes[tc_cuda_slot(index)]; }

tc_status tc_cuda_check(int index, tc_error *err)
{
    const tc_cuda_api *api;
    return usable(&api, index, err);
}

tc_status tc_cuda_enter(tc_cuda_stay *stay, int index, tc_error *err)
{
    const tc_cuda_api *api;
    int before = 0;
    TC_TRY(usable(&api, index, err));
    const int slot = tc_cuda_slot(index);
    int code = api->current_device(&before);
    if (!code && before != slot) code = api->select_device(slot);
    if (code) return tc_cuda_failed(api, index, "selecting the device", code, err);
    *stay = (tc_cuda_stay){.api = api, .before = before == slot ? -1 : before};
    return TC_OK;
}

void tc_cuda_leave(tc_cuda_stay *stay)
{
    if (stay->before >= 0) (void)stay->api->select_device(stay->before);
}

tc_status tc_cuda_device_count(int *count, tc_error *err)
{
    const tc_cuda_api *api;
    *count = 0;
    const tc_status status = open_library(&api, err);
    if (status == TC_OK) *count = device_count;
    return status;
}

tc_status tc_cuda_describe(int *capability, int *cores, int index, tc_error *err)
{
    const tc_cuda_api *api;
    TC_TRY(open_library(&api, err));
    const int slot = tc_cuda_slot(index);
    if (slot < 0 || slot >= device_count) return tc_fail(err, TC_ERROR_VALUE, "there is no GPU %d: there are %d", index, device_count);
    *capability = capabilities[slot];
    *cores = multiprocessors[slot];
    return TC_OK;
}

tc_status tc_cuda_code_for(const int **found, tc_error *err)
{
    const tc_cuda_api *api;
    tc_lock_take(&opening);
    const tc_status status = load_once(&api, err);
    tc_lock_give(&opening);
    if (status == TC_OK) *found = api->code_for;
    return status;
}

tc_status tc_cuda_failed(const tc_cuda_api *api, int index, const char *what, int code, tc_error *err)
{
    char name[TC_DEVICE_TEXT];
    if (code == TC_CUDA_OF_A_CAPTURE)
        return tc_fail(
            err, TC_ERROR_STATE,
            "%s on %s used a Tensor that another thread computed, or got as an argument, while tc.cuda.graph captured; its values "
            "are there after the capture alone: compute in the function's own thread",
            what, tc_device_text(name, (tc_device){TC_CUDA, index}));
    return tc_fail(err, TC_ERROR_STATE, "%s on %s failed: %.400s (CUDA error %d)", what, tc_device_text(name, (tc_device){TC_CUDA, index}),
                   api->error_text(code), code);
}
