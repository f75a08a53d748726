/* A MODEL for tessera-eval: its tokenizer first, weights when they are needed.
 */
#pragma once

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/eval/eval_options.h"
#include "src/comm/comm.h"
#include "src/eval/icl_score.h"
#include "src/model/params.h"
#include "src/text/tokenizer/tokenizer.h"
#include "src/formats/weights.h"

struct eval_model {
    struct weights *weights;
    const struct weights_about *about; /* lent by weights */
    struct tokenizer *tokenizer;       /* NULL: the model has none */
    int64_t max_seq_len;
    int threads;
    /* from eval_model_load() on */
    const struct kernels *kernels;
    struct params *params;
    struct weights_resident *resident;
    /* from eval_model_start() on */
    struct infer *infer;
    struct icl_model icl;
};

/* Zeros before; to be closed in any case. */
enum err eval_model_open(const struct eval_options *options, struct comm *comm,
                         struct eval_model *model);
void eval_model_close(struct eval_model *model);

/* Reads the weights. */
enum err eval_model_load(struct eval_model *model);

/* Makes model->icl, with slots of so many positions; `alone`: nobody else needs
 * the weights that were read. */
enum err eval_model_start(struct eval_model *model,
                          const struct eval_options *options, int64_t positions,
                          bool alone);
