/* Counts what a run has done about its spikes. What is done is on_spike.c's and
 * trainer_rollback.c's. */
#include "src/train/listeners/spike_budget.h"

#include <assert.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/jsontext.h"

#define KEY "spike_budget"
#define TOLD 4 /* interventions that a text names */

static bool counts(const struct spike_budget *budget, int64_t at, int64_t step)
{
    assert(budget->window >= 0 && step >= 0);
    return at > step - budget->window;
}

/* A run that goes on from an older checkpoint knows of rollbacks that it has
 * not come to yet. */
static bool rollback_counts(const struct spike_budget *budget,
                            const struct rollback *rollback, int64_t step)
{
    return rollback->to <= step && counts(budget, rollback->from, step);
}

int64_t spike_budget_used(const struct spike_budget *budget,
                          const struct rollbacks *rollbacks, int64_t step)
{
    int64_t used = 0;
    for (int i = 0; i < budget->count; i++)
        used += counts(budget, budget->skips[i], step);
    for (int i = 0; i < rollbacks->count; i++)
        used += rollback_counts(budget, &rollbacks->list[i], step);
    return used;
}

void spike_budget_skip(struct spike_budget *budget, int64_t step)
{
    int drop = 0;
    while (drop < budget->count && !counts(budget, budget->skips[drop], step))
        drop++;
    if (budget->count - drop == TRAIN_SPIKE_BUDGET_MAX)
        drop++;
    assert(drop <= budget->count &&
           budget->count - drop < TRAIN_SPIKE_BUDGET_MAX);
    budget->count -= drop;
    memmove(budget->skips, budget->skips + drop,
            (size_t)budget->count * sizeof budget->skips[0]);
    budget->skips[budget->count++] = step;
    budget->left_out++;
}

void spike_budget_text(const struct spike_budget *budget,
                       const struct rollbacks *rollbacks, int64_t step,
                       char *text, size_t size)
{
    int told = 0;
    text[0] = '\0';
    for (int i = rollbacks->count - 1; i >= 0 && told < TOLD; i--) {
        const struct rollback *rollback = &rollbacks->list[i];
        if (!rollback_counts(budget, rollback, step))
            continue;
        told++;
        clean_join(text, size, "; ", "back from step %lld to %lld",
                   (long long)rollback->from, (long long)rollback->to);
    }
    for (int i = budget->count - 1; i >= 0 && told < TOLD; i--) {
        if (!counts(budget, budget->skips[i], step))
            continue;
        told++;
        clean_join(text, size, "; ", "left out step %lld",
                   (long long)budget->skips[i] + 1);
    }
    if (told == 0)
        clean_join(text, size, "", "nothing");
}

enum err spike_budget_store(const struct spike_budget *budget, json_t *state)
{
    if (budget->left_out == 0)
        return ERR_OK;
    json_t *skips = json_array();
    for (int i = 0; i < budget->count; i++)
        jsontext_append(&skips, json_integer(budget->skips[i]));
    json_t *own = json_pack("{s:I, s:o}", "left_out",
                            (json_int_t)budget->left_out, "skips", skips);
    return json_object_set_new(state, KEY, own) == 0
               ? ERR_OK
               : err_set(ERR_MEMORY, "out of memory");
}

enum err spike_budget_restore(struct spike_budget *budget, const json_t *state)
{
    const json_t *own = json_object_get(state, KEY);
    const json_t *skips = json_object_get(own, "skips");
    size_t count = json_array_size(skips);
    bool good = own == NULL ||
                (json_is_integer(json_object_get(own, "left_out")) &&
                 json_is_array(skips) && count <= TRAIN_SPIKE_BUDGET_MAX);
    budget->left_out = json_integer_value(json_object_get(own, "left_out"));
    budget->count = 0;
    for (size_t i = 0; i < count && good; i++) {
        const json_t *skip = json_array_get(skips, i);
        good = json_is_integer(skip);
        budget->skips[budget->count++] = json_integer_value(skip);
    }
    return good ? ERR_OK
                : err_set(ERR_CHECKPOINT,
                          "the checkpoint's " KEY
                          " is no count of updates: go on from another one");
}
