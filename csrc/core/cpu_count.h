/* cpu_count.h: how many processors this process may use. */
#ifndef TC_CORE_CPU_COUNT_H
#define TC_CORE_CPU_COUNT_H

/* Processors in the affinity mask of the calling thread, or fewer where a control group (a container's limit) grants
 * less time than that. At least 1. */
int tc_cpu_count(void);

/* The smallest limit in the control groups listed in the file `membership` (/proc/self/cgroup), below `mount` (/sys/fs/cgroup), rounded up
 * to whole processors; 0 when there is none. */
int tc_cpu_quota(const char *membership, const char *mount);

#endif
