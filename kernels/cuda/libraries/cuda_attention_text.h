/* The choices of attention as text: a line for each shape and direction, with all
 * that the bits of cuDNN's follow from besides its version and the GPU. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/cuda/libraries/cuda_dnn_attention.h"
#include "kernels/cuda/libraries/cuda_dnn_graph.h"

/* What is chosen for. Compared as bytes: it has no gaps. */
struct cuda_attention_key {
    int64_t batch, seq, heads, kv_heads, head_dim;
    int64_t alibi, backward;
};

/* What was chosen. */
struct cuda_attention_line {
    struct cuda_attention_key key;
    bool dnn; /* false: the own kernels, and what follows means nothing */
    struct cuda_dnn_attention_cut cut;
    char
        engine[CUDA_DNN_ENGINE_BYTES]; /* empty: a text of versions that did not
                                           keep it */
};

/* The scale is a number that kernels are given. */
struct attention cuda_attention_shape(const struct cuda_attention_key *key,
                                      const float *slopes);

void cuda_attention_text_write(FILE *file,
                               const struct cuda_attention_line *line);

/* A line that *text begins with, and goes on behind: of a shape that cuDNN may be
 * asked for, and a cut of it. False: it is damaged. */
bool cuda_attention_text_read(const char **text,
                              struct cuda_attention_line *line);
