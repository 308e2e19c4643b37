// launchers.h: one launcher per kernel and storage dtype, declared for table.cu and instantiated by the kernel's file.
#pragma once
#include "device.cuh"

#define TC_FOR_EACH_DTYPE(X, name)                                                                                                         \
    X(name, float)                                                                                                                         \
    X(name, double)                                                                                                                        \
    X(name, tc::float16)                                                                                                                   \
    X(name, tc::bfloat16)

#define TC_DECLARE_CPU(name)
#define TC_DECLARE_CUDA(name) template <class T> int tc_cuda_##name(const void *args, int64_t items, void *scratch, void *stream);
#define TC_DECLARE_CUDA_ALONE(name) TC_DECLARE_CUDA(name)
#define TC_DECLARE_CUDA_SCRATCH(name)                                                                                                      \
    TC_DECLARE_CUDA(name)                                                                                                                  \
    template <class T> size_t tc_cuda_##name##_scratch(const void *args);
#define TC_KERNEL_ENTRY(name, gpu, args, ...) TC_DECLARE_##gpu(name)
#include "../kernels.def"
#undef TC_KERNEL_ENTRY

#define TC_CUDA_INSTANTIATE(name, T) template int tc_cuda_##name<T>(const void *, int64_t, void *, void *);
#define TC_CUDA_INSTANTIATE_WITH_SCRATCH(name, T)                                                                                          \
    TC_CUDA_INSTANTIATE(name, T)                                                                                                           \
    template size_t tc_cuda_##name##_scratch<T>(const void *);
