/* Scores the examples of a part with a model.
 *
 * Each example has one of the model's slots until it is done; its rows are read
 * one after the other, and what a row begins with as the slot's last one did, a
 * context before its choices, a preamble before the next example, is not read
 * again. A call has the next row, or the next token to generate, of each slot.
 * A score depends on its row alone, since the model's logits do (infer.h): not
 * on how many slots there are, which examples share a call, or which rank has
 * them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/array.h"
#include "src/base/err.h"
#include "src/eval/icl_prompts.h"
#include "src/eval/icl_records.h"
#include "src/infer/infer.h"
#include "src/text/tokenizer/tokenizer.h"

/* infer.h behind a table, since during training each call needs more around it.
 */
struct icl_model {
    void *self;
    int64_t slots;     /* > 0 */
    int64_t positions; /* of each: icl_set_positions() at least */
    int64_t rows;      /* tokens of a call at most, > 0 */
    enum err (*forward)(void *self, const struct infer_tokens *list, int count);
    void (*cut)(void *self, int64_t slot, int64_t length);
    /* Whether one of the ranks has something left to compute: then all make
     * another call, with nothing in it if need be; if not, they end, whether
     * they are done or not. NULL: calls are this rank's own. */
    enum err (*any)(void *self, bool mine, bool *any);
};

/* Examples [begin, end) of a part. */
struct icl_score_range {
    int64_t begin, end;
    bool lines; /* a line of JSON for each example, too */
};

struct icl_score {
    int64_t examples, right;
    int64_t cut;         /* examples that lost tokens at the left */
    struct buffer lines; /* in the order of examples; the caller frees it */
};

/* Where model->any is there it is collective, also when it fails: a rank that
 * has failed goes on with empty calls until the others are done. */
enum err
icl_score_part(const struct icl_task *task, const struct icl_part *part,
               const struct tokenizer *tokenizer, const struct icl_model *model,
               const struct icl_score_range *range, struct icl_score *out);
