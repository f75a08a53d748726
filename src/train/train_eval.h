/* Listener: loss on held-out text, every eval.interval and at the end.
 *
 * The data set is read in its own order in leaves of train.microbatch samples,
 * dealt to the ranks in contiguous ranges; losses are summed in leaf order, so
 * the result does not depend on the number of ranks. Results go to
 * RUN/eval.jsonl: attempt, step, eval_loss (nats per token, %.9g; null where
 * it is not finite), tokens, seconds. A stop signal ends an evaluation early,
 * without a result; the last step's is then made up for by the next attempt
 * (trainer->eval_missing). */
#ifndef TESSERA_TRAIN_TRAIN_EVAL_H
#define TESSERA_TRAIN_TRAIN_EVAL_H

#include "src/base/err.h"
#include "src/train/trainer.h"

struct train_eval;

enum err train_eval_create(const struct trainer *trainer,
                           struct train_eval **out);
void train_eval_destroy(struct train_eval *eval);
struct listener train_eval_listener(struct train_eval *eval);

/* Evaluate now; *loss is the same on all ranks. *done is false when a signal
 * cut it short. Collective. */
enum err train_eval_run(struct train_eval *eval, struct trainer *trainer,
                        double *loss, bool *done);

#endif
