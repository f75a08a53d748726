/* What of a run concerns several of its parts.
 *
 * Nothing here decides what is trained: durations become steps by the rates that
 * the schedule has settled, tokens are counted from the position, so that neither
 * is kept twice; and the swap of weights brackets whatever looks at the model
 * between steps. It is a swap and not a copy: who comes back to the weights that
 * train finds the same bits, and no third set of them has to have room. */
#include "src/train/run/run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"

bool run_due(const struct run *run, struct duration interval)
{
    int64_t steps = 0;
    assert(run->position.step >= 0);
    if (interval.unit == UNIT_SEC || interval.unit == UNIT_AUTO)
        return false;
    if (units_steps(interval, &run->plan.rates, &steps) != ERR_OK || steps == 0)
        return false;
    return run->position.step % steps == 0;
}

enum err run_steps(const struct run *run, const char *key,
                   struct duration duration, int64_t *steps)
{
    return err_prefix(units_steps(duration, &run->plan.rates, steps), "%s",
                      key);
}

int64_t run_tokens(const struct run *run)
{
    int64_t all = run->position.step * run->plan.rates.tokens_per_step;
    assert(run->position.tokens_left_out >= 0);
    assert(run->position.tokens_left_out <= all);
    return all - run->position.tokens_left_out;
}

enum err run_share(struct comm *comm, char **text)
{
    enum err rc = ERR_OK;
    bool first = comm_rank(comm) == 0;
    int64_t bytes = first && *text != NULL ? (int64_t)strlen(*text) + 1 : 0;
    TRY(comm_broadcast(comm, &bytes, sizeof bytes, 0));
    if (bytes > 0 && !first) {
        free(*text);
        rc = new_room(text, (size_t)bytes);
    }
    TRY(comm_agree(comm, rc));
    return bytes > 0 ? comm_broadcast(comm, *text, (size_t)bytes, 0) : ERR_OK;
}

enum err run_put(json_t *state, const char *key, json_t *value)
{
    return json_object_set_new(state, key, value) == 0
               ? ERR_OK
               : err_set(ERR_MEMORY, "out of memory");
}

enum err run_swap(const struct run *run)
{
    const struct run_engine *engine = &run->engine;
    if (!run->settings.needs.swaps)
        return ERR_OK;
    /* ranks of a node may have the weights in common */
    TRY(comm_barrier(run->comm));
    /* a checkpoint may still be copying the weights */
    TRY(engine->kernels->memory->event_await(engine->copied, engine->stream));
    return algorithms_swap(&run->algorithms);
}

enum err run_algorithm_steps(struct run *run, const void *self, const char *key,
                             struct duration duration, int64_t *steps)
{
    struct algorithm *a = run->algorithms.list;
    assert(self != NULL);
    TRY(run_steps(run, key, duration, steps));
    while (a->self != self)
        a++;
    assert(a < run->algorithms.list + run->algorithms.count);
    assert(a->time_count < ALGORITHM_TIMES);
    a->times[a->time_count++] = (struct algorithm_time){ key, duration, steps };
    return ERR_OK;
}

struct average {
    const struct run_engine *engine;
    int kept;
    float keep;
};

/* weights + keep * (kept - weights): two additions of the op table. */
static enum err average_partition(void *arg,
                                  const struct replica_partition *partition)
{
    const struct average *average = arg;
    const struct kernels *kernels = average->engine->kernels;
    const struct kernel_ctx *ctx = &average->engine->ctx;
    float *mean = partition->kept[average->kept];
    TRY(kernels->add(ctx, DTYPE_F32, partition->elements, mean, -1.0f,
                     partition->weights, mean));
    return kernels->add(ctx, DTYPE_F32, partition->elements, partition->weights,
                        average->keep, mean, mean);
}

enum err run_average(struct run *run, int kept, double keep)
{
    struct average average = { &run->engine, kept, (float)keep };
    assert(kept >= 0 && kept < REPLICA_KEPT);
    assert(keep >= 0.0 && keep <= 1.0);
    return replica_visit(run->engine.replica, average_partition, &average);
}

/* --- what listeners ask of a record --- */

json_t *step_eval_json(const struct step_eval *eval)
{
    return json_pack("{s:o, s:I}", "loss", jsontext_real(eval->loss), "tokens",
                     (json_int_t)eval->tokens);
}

bool step_record_logs(const struct step_record *step)
{
    return step->step % step->log_interval == 0 || step->finished ||
           step->stop_signal != 0;
}

bool step_record_seconds_due(struct duration interval, double *since)
{
    if (interval.unit != UNIT_SEC || interval.value <= 0 ||
        clock_now() - *since < interval.value)
        return false;
    *since = clock_now();
    return true;
}
