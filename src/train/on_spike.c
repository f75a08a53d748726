/* The listener that judges whether a step's loss or gradient is far beyond
 * those before, and keeps the history by which it judges. An update that it
 * asks to leave out is left out by trainer_step.c. */
#include "src/train/on_spike.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/log.h"
#include "src/base/median.h"
#include "src/train/trainer.h"

#define KEY "spike_history"

/* The median, of an even number of values the upper one. */
static double median(const double *values, int count)
{
    double sorted[ON_SPIKE_STEPS];
    memcpy(sorted, values, (size_t)count * sizeof sorted[0]);
    return median_upper(sorted, count);
}

static void take(struct on_spike *spike, double loss, double norm)
{
    if (spike->count == ON_SPIKE_STEPS) {
        size_t bytes = (ON_SPIKE_STEPS - 1) * sizeof spike->loss[0];
        memmove(spike->loss, spike->loss + 1, bytes);
        memmove(spike->norm, spike->norm + 1, bytes);
        spike->count--;
    }
    spike->loss[spike->count] = loss;
    spike->norm[spike->count] = norm;
    spike->count++;
}

bool on_spike_judge(struct on_spike *spike, double loss_factor,
                    double norm_factor, double loss, double norm, char *text,
                    size_t size)
{
    int count = spike->count;
    double loss_median = count > 0 ? median(spike->loss, count) : loss;
    double norm_median = count > 0 ? median(spike->norm, count) : norm;
    take(spike, loss, norm);
    if (count == 0)
        return false;
    if (loss_factor > 0 && loss > loss_factor * loss_median &&
        loss > loss_median + ON_SPIKE_NATS)
        snprintf(text, size,
                 "loss %.4g is %.3g times the median of the last %d steps, "
                 "%.4g (train.spike_loss = %g)",
                 loss, loss / loss_median, count, loss_median, loss_factor);
    else if (norm_factor > 0 && norm > norm_factor * norm_median)
        snprintf(text, size,
                 "gradient norm %.4g is %.3g times the median of the last %d "
                 "steps, %.4g (train.spike_norm = %g)",
                 norm, norm / norm_median, count, norm_median, norm_factor);
    else
        return false;
    return true;
}

static json_t *numbers(const double *values, int count)
{
    json_t *array = json_array();
    for (int i = 0; array != NULL && i < count; i++)
        if (json_array_append_new(array, json_real(values[i])) != 0) {
            json_decref(array);
            array = NULL;
        }
    return array;
}

enum err on_spike_store(const struct on_spike *spike, json_t *state)
{
    if (spike->count == 0)
        return ERR_OK;
    json_t *history =
        json_pack("{s:o, s:o}", "loss", numbers(spike->loss, spike->count),
                  "grad_norm", numbers(spike->norm, spike->count));
    /* refuses NULL */
    return json_object_set_new(state, KEY, history) == 0
               ? ERR_OK
               : err_set(ERR_MEMORY, "out of memory");
}

static bool read_numbers(const json_t *array, int count, double *out)
{
    if (!json_is_array(array) || json_array_size(array) != (size_t)count)
        return false;
    for (int i = 0; i < count; i++) {
        const json_t *value = json_array_get(array, (size_t)i);
        out[i] = json_number_value(value);
        if (!json_is_number(value) || !isfinite(out[i]))
            return false;
    }
    return true;
}

enum err on_spike_restore(struct on_spike *spike, const json_t *state)
{
    const json_t *history = json_object_get(state, KEY);
    const json_t *loss = json_object_get(history, "loss");
    struct on_spike read = { 0 };
    if (history == NULL) {
        *spike = read;
        return ERR_OK;
    }
    size_t count = json_array_size(loss);
    read.count = count <= ON_SPIKE_STEPS ? (int)count : -1;
    if (read.count < 0 || !read_numbers(loss, read.count, read.loss) ||
        !read_numbers(json_object_get(history, "grad_norm"), read.count,
                      read.norm))
        return err_set(ERR_CHECKPOINT, "the checkpoint's " KEY
                                       " is no history of losses and gradient "
                                       "norms: go on from another one");
    *spike = read;
    return ERR_OK;
}

struct listening_spike {
    const struct train_settings *settings; /* lent */
    struct on_spike history;
};

static enum err spike_create(void *self, struct trainer *trainer)
{
    struct listening_spike *spike = self;
    spike->settings = &trainer->settings;
    return ERR_OK;
}

static enum err spike_handle(void *self, enum event event,
                             const struct step_record *step, struct asks *asks)
{
    struct listening_spike *spike = self;
    const struct train_settings *s = spike->settings;
    char text[256];
    (void)event;
    /* a batch without a token to learn from says nothing */
    if (step->loss_tokens == 0 ||
        !on_spike_judge(&spike->history, s->train.spike_loss,
                        s->train.spike_norm, step->loss, step->grad_norm, text,
                        sizeof text))
        return ERR_OK;
    long long number = (long long)step->step + 1;
    if (s->train.on_spike == ON_SPIKE_STOP)
        return err_set(ERR_NUMERIC,
                       "step %lld: %s: stopped before the update by "
                       "train.on_spike; lower optimizer.lr, check the data, or "
                       "set train.on_spike=skip",
                       number, text);
    bool skip = s->train.on_spike == ON_SPIKE_SKIP;
    events_ask(asks, ASK_SKIP, skip);
    if (step->rank == 0)
        log_warn("step %lld: %s%s", number, text,
                 skip ? ": the update is left out" : "");
    return ERR_OK;
}

static enum err spike_store(const void *self, json_t *state)
{
    const struct listening_spike *spike = self;
    return on_spike_store(&spike->history, state);
}

static enum err spike_restore(void *self, const json_t *state)
{
    struct listening_spike *spike = self;
    return on_spike_restore(&spike->history, state);
}

const struct listener_ops on_spike_ops = {
    .bytes = sizeof(struct listening_spike),
    .create = spike_create,
    .handle = spike_handle,
    .store = spike_store,
    .restore = spike_restore,
};
