/* Putting stored elements where a rank wants them: both sides are parts of one
 * tensor, which meet in the runs of the flattened tensor. */
#pragma once

#include "checkpoint/files/ckpt_part.h"
#include "src/base/dtype.h"
#include "src/base/err.h"

struct ckpt_memory;

struct ckpt_place {
    int dims;
    const int64_t *shape;
    struct ckpt_part stored, wanted;
    enum dtype stored_dtype, wanted_dtype;
    void *data; /* the wanted part's elements; others are never touched */
    const struct ckpt_memory *memory; /* where data is; NULL: the program's */
};

/* Does the wanted part have any of the stored part's elements number [first,
 * end), counted from 0 in the order in which they are stored? */
bool ckpt_place_touches(int dims, const int64_t *shape,
                        const struct ckpt_part *stored, int64_t first,
                        int64_t end, const struct ckpt_part *wanted);

/* Copy from `elements`, which are the stored part's number [first, end), what
 * is wanted; converted where the dtypes differ. Fails only with `memory`. */
enum err ckpt_place_copy(const struct ckpt_place *place, int64_t first,
                         int64_t end, const void *elements);

/* The value of element number i of an array. */
double ckpt_place_value(enum dtype dtype, const void *data, int64_t i);

/* Two dtypes between which elements can be converted. */
bool ckpt_place_converts(enum dtype from, enum dtype to);

/* `count` elements, rounded to nearest even: beyond the largest finite number
 * is Inf, NaN stays NaN (a quiet one), denormals are kept. */
void ckpt_place_convert(enum dtype from, const void *source, enum dtype to,
                        void *target, int64_t count);
