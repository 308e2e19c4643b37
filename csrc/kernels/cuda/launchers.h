// launchers.h: one launcher a kernel and storage dtype, declared for table.cu and instantiated by the kernel's file.
#pragma once
#include "device.cuh"

#define TC_FOR_EACH_DTYPE(X, name)                                                                                                         \
    X(name, float)                                                                                                                         \
    X(name, double)                                                                                                                        \
    X(name, tc::float16)                                                                                                                   \
    X(name, tc::bfloat16)

#define TC_CUDA_KERNEL(name) template <class T> int tc_cuda_##name(const void *args, int64_t items, void *scratch, void *stream);
#define TC_CUDA_KERNEL_WITH_SCRATCH(name)                                                                                                  \
    TC_CUDA_KERNEL(name)                                                                                                                   \
    template <class T> size_t tc_cuda_##name##_scratch(const void *args);
#include "cuda_kernels.def"
#undef TC_CUDA_KERNEL_WITH_SCRATCH
#undef TC_CUDA_KERNEL

#define TC_CUDA_INSTANTIATE(name, T) template int tc_cuda_##name<T>(const void *, int64_t, void *, void *);
#define TC_CUDA_INSTANTIATE_WITH_SCRATCH(name, T)                                                                                          \
    TC_CUDA_INSTANTIATE(name, T)                                                                                                           \
    template size_t tc_cuda_##name##_scratch<T>(const void *);
