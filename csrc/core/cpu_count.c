/* cpu_count.c: processors by affinity (sched_getaffinity) and by control group quota (the kernel's
 * Documentation/admin-guide/cgroup-v2.rst, "cpu.max", and scheduler/sched-bwc.rst for version 1). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity, CPU_ALLOC */
#endif
#include "cpu_count.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif

enum { PATH_SIZE = 4096 + 256 };

static int affinity_count(void)
{
#ifdef __linux__
    /* The call refuses a mask smaller than the kernel's own, so the size grows until it is accepted. */
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (!set) break;
        const size_t size = CPU_ALLOC_SIZE((size_t)cpus);
        const bool known = sched_getaffinity(0, size, set) == 0;
        const int error = errno;
        const int count = known ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (known) return count;
        if (error != EINVAL) break;
    }
#endif
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > INT_MAX ? INT_MAX : (int)online;
}

/* The first line of directory/name, without its end. */
static bool read_line(char *line, int size, const char *directory, const char *name)
{
    char path[PATH_SIZE];
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path) return false;
    FILE *file = fopen(path, "re");
    if (!file) return false;
    const bool read = fgets(line, size, file) != NULL;
    fclose(file);
    return read;
}

/* The limit in one directory of the hierarchy; 0: none. */
static int directory_quota(const char *directory)
{
    char line[64];
    int64_t quota = 0, period = 0;
    if (read_line(line, sizeof line, directory, "cpu.max")) { /* version 2: "50000 100000" or "max 100000" */
        if (sscanf(line, "%" SCNd64 " %" SCNd64, &quota, &period) != 2) return 0;
    } else { /* version 1: two files, -1 for no limit */
        if (!read_line(line, sizeof line, directory, "cpu.cfs_quota_us") || sscanf(line, "%" SCNd64, &quota) != 1) return 0;
        if (!read_line(line, sizeof line, directory, "cpu.cfs_period_us") || sscanf(line, "%" SCNd64, &period) != 1) return 0;
    }
    if (quota <= 0 || period <= 0) return 0;
    const int64_t cpus = quota / period + (quota % period != 0);
    return cpus > INT_MAX ? INT_MAX : (int)cpus;
}

static int tighter(int a, int b) { return a == 0 ? b : b == 0 ? a : a < b ? a : b; }

/* The limit of a group is the smallest on the path up to the root. Inside a container the path may be the host's and not exist, but then
 * the root of the mount is the container's own group. `path` is overwritten. */
static int group_quota(const char *mount, const char *controller, char *path)
{
    int limit = 0;
    for (;;) {
        char directory[PATH_SIZE];
        if (snprintf(directory, sizeof directory, "%s%s%s", mount, controller, path) < (int)sizeof directory)
            limit = tighter(limit, directory_quota(directory));
        char *last = strrchr(path, '/');
        if (!last) return limit;
        *last = '\0';
    }
}

/* A membership line is "number:controllers:path"; version 2 has number 0 and no controllers. */
static int line_quota(const char *mount, char *line)
{
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path) return 0;
    *controllers++ = '\0';
    *path++ = '\0';
    if (controllers[0] == '\0') return group_quota(mount, "", path);
    char *rest = NULL;
    for (char *name = strtok_r(controllers, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        if (strcmp(name, "cpu") == 0) return group_quota(mount, "/cpu", path);
    }
    return 0;
}

int tc_cpu_quota(const char *membership, const char *mount)
{
    FILE *file = fopen(membership, "re");
    if (!file) return 0;
    int limit = 0;
    char line[PATH_SIZE];
    while (fgets(line, sizeof line, file)) limit = tighter(limit, line_quota(mount, line));
    fclose(file);
    return limit;
}

int tc_cpu_count(void)
{
    const int count = tighter(affinity_count(), tc_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup"));
    return count < 1 ? 1 : count;
}
