/* What a kind of MODEL implements: a row of the table in weights.c, and a file
 * weights_NAME.c with its `const struct weights_ops weights_NAME`. Nobody else
 * includes this.
 *
 * A row lists the tensors as they are seen from params.h (queries, keys and
 * values as one, rows in our order), so that comparing names and shapes,
 * filling and ignoring are the same code for all kinds. */
#pragma once

#include "src/formats/weights.h"

#define WEIGHTS_NAME_BYTES 128

/* A tensor as the source has it. */
struct weights_tensor {
    char name[WEIGHTS_NAME_BYTES];
    bool other;       /* no parameter of its configuration, under its own name,
                         which may be one of ours: matches nothing */
    int dims;         /* 1 or 2; 0: what is no parameter, of another shape */
    int64_t shape[2]; /* of an embedding its own rows, without those added */
};

/* A source that is open. All is the row's: allocated by open, freed by close,
 * also after an open that has failed; zeros before. */
struct weights_source {
    struct weights_about
        about; /* path: the opened one's, unless open sets it */
    struct weights_tensor *list;
    int count;
    struct weights_slices *slices; /* of a kind whose tensors are slices */
    void *state;
};

struct weights_ops {
    enum weights_kind kind;
    const char *what; /* for who gave another path, after "a model is" */
    /* Whether the path looks like one, from names and first bytes. */
    bool (*is)(const char *path);
    enum err (*open)(const char *path, struct weights_source *source);
    void (*close)(struct weights_source *source);
    /* Elements [begin, end) of tensor number `index` of the list, a parameter:
     * counted from 0 in rows of the listed shape, within it, never none. */
    enum err (*read)(struct weights_source *source, int index, int64_t begin,
                     int64_t end, float *out);
    /* weights_read_lora(); NULL: never has adapters. */
    enum err (*read_lora)(struct weights_source *source, const char *name,
                          int64_t rows, int64_t cols, float **out);
};

extern const struct weights_ops weights_ckpt;
extern const struct weights_ops weights_peft;
extern const struct weights_ops weights_hf;
extern const struct weights_ops weights_gguf;
