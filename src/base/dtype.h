/* Element types of tensors, shared by kernels, model and checkpoint. */
#pragma once

#include <stddef.h>

/* The numbers are stored in checkpoints: append only. */
enum dtype {
    DTYPE_F32 = 0,
    DTYPE_BF16 = 1,
    DTYPE_I32 = 2,
    DTYPE_F64 = 3,
    DTYPE_U8 = 4,
    DTYPES
};

/* Numbers with a fraction, which can be converted into each other. */
static inline int dtype_is_real(enum dtype dtype)
{
    return dtype != DTYPE_I32 && dtype != DTYPE_U8;
}

static inline size_t dtype_bytes(enum dtype dtype)
{
    static const size_t bytes[] = { 4, 2, 4, 8, 1 };
    return bytes[dtype];
}

static inline const char *dtype_name(enum dtype dtype)
{
    static const char *const names[] = { "f32", "bf16", "i32", "f64", "u8" };
    return names[dtype];
}
