/* The tensors of a Hugging Face model or GGUF file and the parameters of ours.
 * A slice is some rows of one of our parameters, and a tensor of theirs. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/formats/arch/arch.h"
#include "src/model/params.h"

struct hf_slice {
    char name[128];
    int param; /* in params->list */
    int dims;
    int64_t shape[2]; /* theirs */
    int64_t begin;    /* first row in it, where it has those of others, too */
    bool transposed;
    int64_t pairs; /* > 0: heads of so many rows, in the order of pairs
                      (gguf.h) */
    int64_t row;   /* first of ours */
    int64_t rows;
};

struct hf_names {
    struct hf_slice *list; /* by parameter, then by row */
    int count;
};

/* vocab: rows of their embedding and output layer, at most ours; rows beyond it
 * belong to no slice. ERR_UNSUPPORTED names a parameter that the architecture
 * has no tensor for. */
enum err hf_names_create(const struct arch_form *form,
                         const struct model_config *model,
                         const struct params *params, int64_t vocab,
                         struct hf_names **out);
void hf_names_destroy(struct hf_names *names);

/* Is it a tensor that old files have beside the weights: masks, rotary
 * frequencies? */
bool hf_names_is_buffer(enum arch arch, const char *name);
