/* Listener: loss on held-out text, every eval.interval and at the end.
 *
 * The data set is read in its own order in leaves of train.microbatch samples,
 * dealt in contiguous ranges to the ranks, or to groups of
 * parallel.sequence_degree ranks that compute one together. A leaf has a loss
 * for each of its parallel.sequence_chunks; losses are summed in the order of
 * leaves and their chunks, so the result does not depend on the number of
 * ranks, nor on how many share a sequence. Results go to
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
