// bug.h: what every planted bug shares. A file has the bug and its mended twin in one kernel, and says by which flavour and
// schedule the bug is caught and with what words, on lines that test_bugs.py reads:
//
//     // caught by plain greedy: wrong result
//     // caught by access: race: .* at \{here\}        {here} is the line marked "<- here"
//
// The program is run as  NAME buggy|fixed round_robin|greedy|random SEED  and ends with 0 when all is well.
#pragma once
#include "device.cuh"
#include <cstdio>
#include <cstring>
#include <vector>

// An array on the device with these values.
template <class T> T *device_array(const std::vector<T> &values)
{
    void *pointer = nullptr;
    if (cudaMalloc(&pointer, values.size() * sizeof(T)) != cudaSuccess) return nullptr;
    cudaMemcpyAsync(pointer, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice, nullptr);
    return static_cast<T *>(pointer);
}

inline std::vector<float> counting(size_t n, float first = 0.0f)
{
    std::vector<float> values(n);
    for (size_t i = 0; i < n; i++) values[i] = first + static_cast<float>(i);
    return values;
}

// Of the threads, by its name.
inline void set_schedule(const char *name, const char *seed)
{
    const char *names[] = {"round_robin", "greedy", "random"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i])) emulator_set_schedule(i, strtoull(seed, nullptr, 10));
}

// Runs one twin: `buggy` or `fixed` is called with an output of expected.size() floats and gives the launch's error.
inline int run_bug(int argc, char **argv, int (*buggy)(float *), int (*fixed)(float *), const std::vector<float> &expected)
{
    if (argc != 4) return 2;
    set_schedule(argv[2], argv[3]);
    void *output = nullptr;
    if (cudaMalloc(&output, expected.size() * sizeof(float)) != cudaSuccess) return 2;
    const int error = (strcmp(argv[1], "fixed") ? buggy : fixed)(static_cast<float *>(output));
    if (error) {
        printf("error %d: %s\n", error, emulator_report());
        return 1;
    }
    std::vector<float> result(expected.size());
    cudaMemcpyAsync(result.data(), output, result.size() * sizeof(float), cudaMemcpyDeviceToHost, nullptr);
    for (size_t i = 0; i < result.size(); i++) {
        if (result[i] == expected[i]) continue;
        printf("wrong result: [%zu] is %g, expected %g\n", i, static_cast<double>(result[i]), static_cast<double>(expected[i]));
        return 1;
    }
    return 0;
}

// The same, and in the flavour that counts, the kernel may not need more than `limit` of a column of count.cpp.
inline int run_costly(int argc, char **argv, int (*buggy)(float *), int (*fixed)(float *), const std::vector<float> &expected,
                      const char *column, int64_t limit)
{
    if (const int error = run_bug(argc, argv, buggy, fixed, expected)) return error;
    const int64_t count = emulator_count(column);
    if (count <= limit) return 0;
    printf("costly: %s is %lld, %lld would do\n", column, static_cast<long long>(count), static_cast<long long>(limit));
    return 1;
}

#define BUG_MAIN(expected)                                                                                                                 \
    int main(int argc, char **argv) { return run_bug(argc, argv, run<false>, run<true>, expected); }
#define COSTLY_MAIN(expected, column, limit)                                                                                               \
    int main(int argc, char **argv) { return run_costly(argc, argv, run<false>, run<true>, expected, column, limit); }
