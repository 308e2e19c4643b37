/* shim.c: a library for LD_PRELOAD that makes calls of the system fail: memory, threads, and files.
 *
 * faults_arm() names what must fail and at which call; until then, and after faults_disarm(), everything passes. Calls of all threads
 * count, and of files only those beyond standard error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MEMORY = 1, THREAD = 2, OPEN = 4, READ = 8, WRITE = 16, FSYNC = 32, RENAME = 64, CLOSE = 128 };

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static atomic_int armed; /* the kinds that count; 0: off */
static atomic_long count;
static long fail_at; /* the number of the call that fails; 0: none, calls are only counted */
static int error;    /* errno of a failed file; 0: reads and writes do half of what is asked */
static char failed_call[32];
/* Whether this thread is in dlsym, which may allocate. In the memory that a thread begins with: the first use allocates nothing. */
static _Thread_local int looks_up __attribute__((tls_model("initial-exec")));

/* Whether this call, of a kind that is armed, fails. */
static int fails(int kind, const char *name)
{
    if (!(atomic_load_explicit(&armed, memory_order_relaxed) & kind) || looks_up) return 0;
    const long now = atomic_fetch_add(&count, 1) + 1;
    if (now == fail_at) snprintf(failed_call, sizeof failed_call, "%s", name);
    return now == fail_at;
}

void faults_arm(int kinds, long at, int code)
{
    atomic_store(&count, 0);
    fail_at = at;
    error = code;
    failed_call[0] = '\0';
    atomic_store(&armed, kinds);
}

long faults_disarm(void)
{
    atomic_store(&armed, 0);
    return atomic_load(&count);
}

const char *faults_failed_call(void) { return failed_call; }

/* ---- crashes of CPython ---------------------------------------------------------------------------------------------------
 *
 * CPython itself ends in a few places when memory for a small object runs out (3.11: making an iterator over the items of a dict). A crash
 * while calls fail, with nothing of the extension among the innermost functions, is its own: exit status 77. */

enum { OWN_FRAMES = 2, INNERMOST = 8 }; /* the handler and the frame of the signal come first */

static void on_crash(int number)
{
    void *frames[OWN_FRAMES + INNERMOST];
    const int n = backtrace(frames, OWN_FRAMES + INNERMOST);
    int ours = !atomic_load(&armed) || !failed_call[0];
    for (int i = OWN_FRAMES; i < n; i++) {
        Dl_info info;
        if (dladdr(frames[i], &info) && strstr(info.dli_fname, "transformer_c")) ours = 1;
    }
    if (!ours) _exit(77);
    signal(number, SIG_DFL);
}

void faults_watch_crashes(void)
{
    void *frames[2];
    (void)backtrace(frames, 2); /* loads what it needs now */
    signal(SIGSEGV, on_crash);
}

/* ---- memory and threads -------------------------------------------------------------------------------------------------- */

static void *none(void)
{
    errno = ENOMEM;
    return NULL;
}

void *malloc(size_t n) { return fails(MEMORY, "malloc") ? none() : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return fails(MEMORY, "calloc") ? none() : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return fails(MEMORY, "realloc") ? none() : __libc_realloc(p, n); }
void *memalign(size_t alignment, size_t n) { return fails(MEMORY, "memalign") ? none() : __libc_memalign(alignment, n); }
void *aligned_alloc(size_t alignment, size_t n) { return fails(MEMORY, "aligned_alloc") ? none() : __libc_memalign(alignment, n); }

int posix_memalign(void **p, size_t alignment, size_t n)
{
    void *block = fails(MEMORY, "posix_memalign") ? NULL : __libc_memalign(alignment, n);
    if (block) *p = block;
    return block ? 0 : ENOMEM;
}

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name)
{
    looks_up = 1;
    void *found = dlsym(RTLD_NEXT, name);
    looks_up = 0;
    return found;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    return fails(THREAD, "pthread_create") ? EAGAIN : REAL(pthread_create)(thread, attributes, start, argument);
}

/* ---- files ------------------------------------------------------------------------------------------------------------------ */

static int broken(void)
{
    errno = error ? error : EIO;
    return -1;
}

#define DEFINE_OPEN(name)                                                                                                                  \
    int name(const char *path, int flags, ...)                                                                                             \
    {                                                                                                                                      \
        va_list more;                                                                                                                      \
        va_start(more, flags);                                                                                                             \
        const int mode = va_arg(more, int);                                                                                                \
        va_end(more);                                                                                                                      \
        return error && fails(OPEN, #name) ? broken() : REAL(name)(path, flags, mode);                                                     \
    }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)

ssize_t read(int file, void *to, size_t n)
{
    if (file > 2 && fails(READ, "read")) {
        if (error) return broken();
        n = n > 1 ? n / 2 : n;
    }
    return REAL(read)(file, to, n);
}

ssize_t write(int file, const void *from, size_t n)
{
    if (file > 2 && fails(WRITE, "write")) {
        if (error) return broken();
        n = n > 1 ? n / 2 : n;
    }
    return REAL(write)(file, from, n);
}

int fsync(int file) { return error && fails(FSYNC, "fsync") ? broken() : REAL(fsync)(file); }
int rename(const char *from, const char *to) { return error && fails(RENAME, "rename") ? broken() : REAL(rename)(from, to); }

/* The file is closed all the same, as Linux does. */
int close(int file)
{
    const int result = REAL(close)(file);
    return file > 2 && error && fails(CLOSE, "close") ? broken() : result;
}
