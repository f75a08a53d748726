/* A model that continues and scores texts: forward only, with the keys and
 * values of what it has seen kept (KV cache), over the same op table, layer by
 * layer through param_access, so that it runs on weights in memory as on those
 * that a training run has spread over its ranks.
 *
 * There are `sequences` slots, each with room for `positions` tokens. A call
 * appends tokens to some of them; each row's logits depend on the tokens of its
 * own slot alone: to the bit not on what else is in the call, on how the tokens
 * were cut into calls, on threads or kernel set. So a score does not depend on
 * the size of a batch, and what was read once (a preamble) can be copied
 * instead of read again.
 *
 * Tokens attend to all earlier ones of their slot; ALiBi, rotary and learned
 * positions, grouped heads, experts, qk norms, clipping: all of
 * model_config.h. No dropout, no jitter. What is frozen and adapters (params.h,
 * lora.h) are computed with as in training, in fp32: what an adapter adds is
 * scaled where it has `rank` numbers, and added to the finished product. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/model/group_access.h"
#include "src/model/model_config.h"
#include "src/model/params.h"

struct infer;

/* How matrices are held, the embedding too; the rest of the weights, positions
 * and routers stay fp32. Decoding reads all of them for every token, so its
 * speed is that of memory divided by their bytes. */
enum infer_weights {
    INFER_F32,  /* as they are */
    INFER_BF16, /* rounded to nearest even; products in fp32 */
    INFER_INT8  /* each row scaled by its largest magnitude / 127; products in
                   fp32 */
};
static const char *const infer_weights_names[] = { "fp32", "bf16", "int8",
                                                   NULL };

/* Memory of the host that engines of one model share for what they hold: of the
 * `held` bytes that infer_plan() says, zeroed, at a multiple of 64. infer_hold() fills
 * the blocks part, part + parts, ... of it, and forward wants all of them. */
struct infer_room {
    void *memory;
    int part, parts;
};

/* What computes. */
enum infer_backend { INFER_CPU, INFER_CUDA };
static const char *const infer_backend_names[] = { "cpu", "cuda", NULL };

/* The table, and a stream of it on the device of this place among a node's ranks,
 * which the calling thread uses from then on. ERR_UNSUPPORTED: there is none. */
enum err infer_backend_find(enum infer_backend backend, int local_rank,
                            const struct kernels **out, void **stream);

/* Bytes that are left on the machine, or the device; SIZE_MAX: not known. */
size_t infer_available(const struct kernels *kernels);

struct infer_options {
    int threads;
    int64_t sequences; /* slots */
    int64_t positions; /* of each, at most config->max_seq_len where positions
                          are learned */
    int64_t rows;      /* tokens that are computed at a time; a call may have
                          more */
    double lora_alpha; /* of the adapters, where params has some */
    const struct group_access *experts; /* ranks of which each is lent its part
                                           of the experts (params.h); NULL:
                                           all are lent */
    void *stream;                       /* as in model_options */
    enum dtype dtype; /* of what an access lends: DTYPE_F32 or DTYPE_BF16; it is
                          computed in fp32 */
    const struct infer_room *room; /* lent; NULL: what is held is its own */
};

/* params and kernels are borrowed. ERR_MEMORY names what is missing. */
enum err infer_create(const struct model_config *config,
                      const struct params *params,
                      const struct kernels *kernels,
                      const struct infer_options *options, struct infer **out);
void infer_destroy(struct infer *infer);
/* Bytes that infer_create() and infer_hold() would take: of keys and values, of
 * weights that are held, and of all. */
enum err infer_plan(const struct model_config *config,
                    const struct params *params, const struct kernels *kernels,
                    const struct infer_options *options,
                    enum infer_weights weights, size_t *cache, size_t *held,
                    size_t *total);

/* Takes a copy of all weights, in the form that decoding reads quickest; then
 * `access` of infer_forward() is not used and what it lent may go. At most
 * once. Without it every call gathers the blocks through `access`, all of them
 * in order for each options.rows of its tokens, once if there are none. Where
 * that is collective, or with options.experts, ranks make the same number of
 * calls, each for as many times rows of tokens as the others'; parts of experts
 * are not held. */
enum err infer_hold(struct infer *infer, const struct param_access *access,
                    enum infer_weights weights);

/* Tokens to append to a slot, and what is wanted of them. */
struct infer_tokens {
    int64_t slot;
    int64_t count; /* 0: nothing */
    const int32_t *tokens;
    /* For the last `wanted` of them (0: none): */
    int64_t wanted;
    float *logits;         /* [wanted, vocab_size], scaled; NULL: not */
    const int32_t *labels; /* [wanted]; NULL: none */
    float *nll;            /* [wanted] -log p(label), with labels; 0 where the
                              label is below 0 */
    int32_t *argmax;       /* [wanted] the first of the largest; NULL: not */
};

/* ERR_USAGE: a slot is full, a token or label is outside the vocabulary;
 * ERR_NUMERIC: an argmax was asked for where no logit is a number. After an
 * error slots hold what they held before. No slot twice in a call. Waits. */
enum err infer_forward(struct infer *infer, const struct param_access *access,
                       const struct infer_tokens *list, int count);

/* Tokens that a slot holds; forget those from `length` on. */
int64_t infer_length(const struct infer *infer, int64_t slot);
void infer_cut(struct infer *infer, int64_t slot, int64_t length);
