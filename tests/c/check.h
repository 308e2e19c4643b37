/* check.h: shared by the C test programs. CHECK counts failures and continues; main() returns
 * check_finish(), which is non-zero when anything did not. */
#ifndef TC_TESTS_CHECK_H
#define TC_TESTS_CHECK_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef __has_feature /* clang's; GCC defines macros */
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define THREAD_SANITIZED 1
#else
#define THREAD_SANITIZED 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define ADDRESS_SANITIZED 1
#else
#define ADDRESS_SANITIZED 0
#endif

static atomic_int check_failures, check_count;

__attribute__((format(printf, 4, 5))) static void check_that(int holds, const char *file, int line, const char *format, ...)
{
    atomic_fetch_add(&check_count, 1);
    if (holds || atomic_fetch_add(&check_failures, 1) >= 20) return;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, text);
}

#define CHECK(condition) check_that((condition) ? 1 : 0, __FILE__, __LINE__, "%s", #condition)
#define CHECK_EQUAL(a, b)                                                                                                                  \
    do {                                                                                                                                   \
        const long long check_a = (long long)(a), check_b = (long long)(b);                                                                \
        check_that(check_a == check_b, __FILE__, __LINE__, "%s == %s (%lld, %lld)", #a, #b, check_a, check_b);                             \
    } while (0)
#define CHECK_TEXT(text, part) check_that(strstr(text, part) != NULL, __FILE__, __LINE__, "\"%s\" contains \"%s\"", text, part)

/* Runs `body` in a forked child; the child's failures count here, and so does a child that hangs. */
__attribute__((unused)) static void check_in_child(void (*body)(void), const char *file, int line)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        atomic_store(&check_failures, 0);
        body();
        fflush(NULL);
        _exit(atomic_load(&check_failures) ? 1 : 0);
    }
    int status = -1;
    const pid_t waited = child > 0 ? waitpid(child, &status, 0) : -1;
    check_that(waited == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, file, line, "the forked child ends well (wait status %d)",
               status);
}
#define CHECK_IN_CHILD(body) check_in_child(body, __FILE__, __LINE__)

/* Lets this process take `bytes` more of address space than it has now. */
__attribute__((unused)) static void limit_address_space(size_t bytes)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld", &pages) == 1);
    if (file) fclose(file);
    const rlim_t limit = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + bytes;
    CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){limit, limit}) == 0);
}

__attribute__((unused)) static int check_finish(void)
{
    const int failures = atomic_load(&check_failures), count = atomic_load(&check_count);
    if (failures) fprintf(stderr, "%d of %d checks do not hold\n", failures, count);
    return failures || !count;
}

#endif
