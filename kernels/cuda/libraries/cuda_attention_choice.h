/* Attention of the table: own kernels or cuDNN's, whichever was measured to be
 * faster for a shape and direction. Bits follow from the choice, so all ranks
 * and attempts of a run should have the same: it is the own one until
 * cuda_attention_choice_measure() or _choose() says otherwise, and goes into
 * checkpoints as text. cuDNN is asked only for what cuda_dnn_attention_fits(),
 * and taken only where ctx->scratch has room for a part of it, as
 * cuda_dnn_attention.h cuts it; a choice says the parts and cuDNN's engine. */
#pragma once

#include <stddef.h>

#include "kernels/kernels.h"

/* Used by one thread at a time. */
struct cuda_attention_choice;
struct cuda_dnn_library;

/* The own kernels, and cuda_device_time; others in tests. */
struct cuda_attention_own {
    enum err(*forward) KERNEL_LIKE(attention_forward);
    enum err(*backward) KERNEL_LIKE(attention_backward);
    enum err (*time)(void *stream, enum err (*run)(void *), void *argument,
                     double *us);
};

/* For the GPU that the thread uses, which is there. `library` is lent; NULL:
 * the real one is opened. ERR_UNSUPPORTED without it. */
enum err cuda_attention_choice_create(const struct cuda_dnn_library *library,
                                      const struct cuda_attention_own *own,
                                      struct cuda_attention_choice **out);
void cuda_attention_choice_destroy(struct cuda_attention_choice *choice);

/* 91900: version 9.19. */
size_t
cuda_attention_choice_version(const struct cuda_attention_choice *choice);

/* What attention is. */
struct cuda_attention_count {
    int shapes, dnn;   /* that cuDNN is asked for, and has */
    const char *unfit; /* the last reason not to ask; NULL: there was none */
};
void cuda_attention_choice_count(const struct cuda_attention_choice *choice,
                                 struct cuda_attention_count *out);

enum err cuda_attention_choice_forward(struct cuda_attention_choice *choice,
                                       const struct kernel_ctx *ctx,
                                       enum dtype dtype,
                                       const struct attention *shape,
                                       const void *qkv, void *out, float *lse);
enum err cuda_attention_choice_backward(
    struct cuda_attention_choice *choice, const struct kernel_ctx *ctx,
    enum dtype dtype, const struct attention *shape, const void *qkv,
    const void *out, const float *lse, const void *dout, void *dqkv);

/* Times both for all shapes that were used so far and have no choice, on
 * operands in `memory` (device memory of ordinary numbers, overwritten). Those
 * that need more than `bytes`, and those that cuDNN has nothing for or not
 * enough scratch, stay with the own kernels if cuda_fallback() lets them. */
enum err cuda_attention_choice_measure(struct cuda_attention_choice *choice,
                                       const struct kernel_ctx *ctx,
                                       void *memory, size_t bytes);

/* All choices as text; the caller frees it. */
enum err cuda_attention_choice_write(const struct cuda_attention_choice *choice,
                                     char **text);
/* Takes them from text and makes their plans, which takes seconds. ERR_DATA: it is
 * damaged; ERR_UNSUPPORTED: it wants another version of cuDNN, an engine that it
 * does not have here or more than ctx's scratch, or is too old to say. Nothing is
 * changed then. */
enum err cuda_attention_choice_read(struct cuda_attention_choice *choice,
                                    const struct kernel_ctx *ctx,
                                    const char *text);
/* As at the beginning: attention is the own one until shapes are met anew. */
void cuda_attention_choice_forget(struct cuda_attention_choice *choice);
