/* Continues prompts with new tokens, several at once.
 *
 * Each prompt has a slot of the infer (infer.h) to itself; the slot of one that
 * has ended takes the next. What a slot holds already, of a prompt that began
 * alike, is not computed again: a conversation whose tokens come whole with
 * every turn costs only what is new.
 *
 * A prompt's continuation is a function of its tokens, its number and the
 * options: not of the other prompts, of slots, threads or how tokens are cut
 * into calls. It ends with one of the tokens `eos`, which is not part of it;
 * with one of the texts `stop`, which is not part of its text; when max_tokens
 * have come; or when the slot is full. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/infer/generate_text.h"
#include "src/infer/infer.h"
#include "src/infer/sample.h"
#include "src/text/tokenizer/tokenizer.h"

struct generate;

/* What continues; borrowed. */
struct generate_model {
    struct infer *infer;
    const struct param_access *access; /* of infer_forward(); may be NULL */
    int64_t sequences, positions;      /* the infer's */
    int64_t rows;       /* tokens of one call, at least `sequences` */
    int64_t vocab_size; /* of the model: numbers in a row of logits */
    int64_t vocab;      /* tokens that may come, the first ones */
    const struct tokenizer *tokenizer;
};

enum generate_end {
    GENERATE_EOS,
    GENERATE_STOP,       /* a stop text */
    GENERATE_MAX_TOKENS, /* as many as were asked for */
    GENERATE_CONTEXT,    /* the slot is full */
    GENERATE_INTERRUPTED /* by a hook */
};
/* "eos", "stop", "max_tokens", "context", "interrupted". */
extern const char *const generate_end_names[];

struct generate_result {
    const int32_t *tokens; /* new ones, without eos */
    size_t count;
    const char *text; /* valid UTF-8; no NUL at its end */
    size_t bytes;
    size_t reused; /* tokens of the prompt that were not computed */
    enum generate_end end;
};

/* What the caller does meanwhile. Each may be NULL; what fails ends the run. */
struct generate_hooks {
    void *arg;
    /* Before each call of infer_forward(): *stop ends everything. */
    enum err (*before)(void *arg, bool *stop);
    /* After it, with what it has returned: what counts instead. */
    enum err (*after)(void *arg, enum err rc);
    /* New text of a prompt, whole characters. */
    enum err (*text)(void *arg, size_t prompt, const char *text, size_t bytes);
    /* A prompt has ended; in the order of prompts. Lent for the call. Those
     * that were not begun before an interruption have none. */
    enum err (*result)(void *arg, size_t prompt,
                       const struct generate_result *result);
};

struct generate_options {
    struct sample_options sample;
    int64_t max_tokens; /* of each prompt, at least 1 */
    const int32_t *eos; /* [eos_count] */
    size_t eos_count;
    const char *const *stop; /* [stop_count] none of them empty */
    size_t stop_count;
    /* Prompt p is number first + p * stride of all; stride 0: p. */
    size_t first, stride;
};

struct generate_prompt {
    const int32_t *tokens;
    size_t count;
};

enum err generate_create(const struct generate_model *model,
                         struct generate **out);
/* NULL is fine. */
void generate_destroy(struct generate *generate);

/* ERR_USAGE before anything is computed: a prompt is empty, has more tokens
 * than a slot or ones outside the vocabulary, or options are out of range. */
enum err generate_run(struct generate *generate,
                      const struct generate_options *options,
                      const struct generate_prompt *prompts, size_t count,
                      const struct generate_hooks *hooks);

/* Appends the text's tokens, -log of the probability of all but the first,
 * summed. ERR_USAGE: more than a slot. */
enum err generate_score(struct generate *generate, const int32_t *tokens,
                        size_t count, const struct generate_hooks *hooks,
                        double *nll);
