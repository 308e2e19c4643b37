/* dlpack.h: the structures of DLPack 1.0, as its specification lays them out in memory. */
#ifndef TC_PYTHON_DLPACK_H
#define TC_PYTHON_DLPACK_H

#include <stdint.h>

enum { DLPACK_CPU = 1, DLPACK_CUDA = 2, DLPACK_CUDA_HOST = 3 };                                 /* kinds of devices */
enum { DLPACK_INT = 0, DLPACK_UINT = 1, DLPACK_FLOAT = 2, DLPACK_BFLOAT = 4, DLPACK_BOOL = 6 }; /* kinds of elements */
enum { DLPACK_READ_ONLY = 1, DLPACK_IS_COPIED = 2 };                                            /* flags */
enum { DLPACK_MAJOR = 1, DLPACK_MINOR = 0 };

typedef struct dlpack_tensor {
    void *data;
    int32_t device_kind, device_index;
    int32_t ndim;
    uint8_t dtype_kind, dtype_bits;
    uint16_t dtype_lanes;
    int64_t *shape, *strides; /* elements; strides NULL: C order without gaps */
    uint64_t byte_offset;
} dlpack_tensor;

/* The content of a capsule "dltensor". */
typedef struct dlpack_managed {
    dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct dlpack_managed *self);
} dlpack_managed;

/* The content of a capsule "dltensor_versioned". */
typedef struct dlpack_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dlpack_versioned *self);
    uint64_t flags;
    dlpack_tensor tensor;
} dlpack_versioned;

#endif
