/* Two checkpoints compared, whatever their shardings. */
#pragma once

#include "checkpoint/tools/ckpt_tensor.h"

enum ckpt_diff_kind {
    CKPT_DIFF_EQUAL,  /* bit for bit */
    CKPT_DIFF_VALUES, /* same type and shape */
    CKPT_DIFF_FORM,   /* another type or shape; values are not compared */
    CKPT_DIFF_ONLY_A,
    CKPT_DIFF_ONLY_B,
};

/* `differing` elements have other bits, the first at `first`. `non_finite` of
 * them are NaN or Inf on a side and do not count in the maxima. max_relative is
 * |a - b| / max(|a|, |b|). */
struct ckpt_diff {
    enum ckpt_diff_kind kind;
    const struct ckpt_tensor *a, *b; /* NULL: not there */
    int64_t differing, first, non_finite;
    double max_absolute, max_relative;
};

/* Called for every tensor, those of a in its order, then those only b has. */
typedef enum err (*ckpt_diff_fn)(void *arg, const struct ckpt_diff *diff);

/* Streams both; damage of either is ERR_CHECKPOINT. */
enum err ckpt_diff_tensors(const char *dir_a, const struct ckpt_manifest *a,
                           const char *dir_b, const struct ckpt_manifest *b,
                           ckpt_diff_fn each, void *arg);

/* The entries in which two states differ: a new array of {"entry": "a.b",
 * "a": ..., "b": ...}, where a missing side is null; NULL: out of memory. */
json_t *ckpt_diff_states(const json_t *a, const json_t *b);
