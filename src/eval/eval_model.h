/* The model that tessera-eval scores: its tokenizer, by which all prompts are made
 * and judged, its weights on the ranks, and the engine; in two steps, since the
 * second costs more and the first may be the last. */
#pragma once

#include "src/comm/comm.h"
#include "src/eval/eval_options.h"
#include "src/eval/icl_score.h"
#include "src/formats/weights.h"
#include "src/infer/ranks/infer_ranks.h"
#include "src/text/tokenizer/tokenizer.h"

struct eval_model {
    const struct eval_options *options;
    struct comm *comm;
    struct weights *weights;
    const struct weights_about *about; /* lent by weights */
    struct tokenizer *tokenizer;       /* NULL: the model has none */
    int64_t max_seq_len;
    /* from eval_model_load() on */
    struct infer_ranks ranks;
    struct icl_model icl;
};

/* By this rank alone. */
enum err eval_model_open(const struct eval_options *options, struct comm *comm,
                         struct eval_model *model);
/* positions: of the longest prompt; 0: there are no tasks. Collective; fails on all
 * ranks or on none. */
enum err eval_model_load(struct eval_model *model, int64_t positions);
/* Zeros are fine. Collective after eval_model_load(), but after ERR_COMM. */
void eval_model_close(struct eval_model *model);
