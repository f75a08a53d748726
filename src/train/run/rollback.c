/* Which batches of the data a run's rollbacks leave out, as a list and as
 * intervals, to and from a checkpoint's state. When a run goes back, and what
 * the ledger says of it, is trainer_rollback.c.
 *
 * Two counts run side by side: completed steps, and batches of the data. Without
 * rollbacks both are the same. One from step 12 back to 10 leaves out the batches
 * 10, 11 and 12, that of the step that was judged among them, and step 10 reads
 * batch 13 from then on. What steps before 10 have read stays, so the list may
 * grow, but an entry never changes; and a run that begins again at an older
 * checkpoint finds later entries in the ledger and reads as it would have read.
 *
 * What the list leaves out is kept as intervals that are ascending and apart, so
 * that a step's batch is found by one walk. */
#include "src/train/run/rollback.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/jsontext.h"

#define KEY "rollbacks"

json_t *rollback_cause_json(const struct rollback_cause *cause,
                            const char *run_uuid)
{
    return json_pack("{s:s, s:s, s:I, s:o, s:o, s:o}", "run_uuid", run_uuid,
                     "kind", cause->kind, "step", (json_int_t)cause->from + 1,
                     "loss", jsontext_real(cause->loss), "grad_norm",
                     jsontext_real(cause->grad_norm), "reason",
                     jsontext_string(cause->text));
}

void rollback_free(struct rollbacks *rollbacks)
{
    free(rollbacks->list);
    free(rollbacks->gaps);
    *rollbacks = (struct rollbacks){ .list = NULL };
}

int64_t rollback_batch(const struct rollbacks *rollbacks, int64_t step)
{
    int64_t batch = step;
    assert(step >= 0);
    for (int i = 0; i < rollbacks->gap_count; i++) {
        if (rollbacks->gaps[i].first > batch)
            break;
        batch += rollbacks->gaps[i].batches;
    }
    return batch;
}

int64_t rollback_behind(const struct rollbacks *rollbacks, int64_t step)
{
    return step > 0 ? rollback_batch(rollbacks, step - 1) + 1 : 0;
}

int64_t rollback_left_out(const struct rollbacks *rollbacks, int64_t step)
{
    return rollback_batch(rollbacks, step) - step;
}

struct rollback rollback_make(const struct rollbacks *rollbacks, int64_t from,
                              int64_t to)
{
    assert(0 <= to && to <= from);
    int64_t first = rollback_batch(rollbacks, to);
    return (struct rollback){ .from = from,
                              .to = to,
                              .first = first,
                              .batches =
                                  rollback_batch(rollbacks, from) + 1 - first };
}

/* Joins the interval with those that it meets. */
static void leave_out(struct rollbacks *rollbacks, int64_t first, int64_t end)
{
    struct rollback *gaps = rollbacks->gaps;
    int count = rollbacks->gap_count, at = 0, met = 0;
    while (at < count && gaps[at].first + gaps[at].batches < first)
        at++;
    for (; at + met < count && gaps[at + met].first <= end; met++) {
        int64_t its_end = gaps[at + met].first + gaps[at + met].batches;
        first = gaps[at + met].first < first ? gaps[at + met].first : first;
        end = its_end > end ? its_end : end;
    }
    memmove(gaps + at + 1, gaps + at + met,
            (size_t)(count - at - met) * sizeof gaps[0]);
    gaps[at] = (struct rollback){ .first = first, .batches = end - first };
    rollbacks->gap_count = count + 1 - met;
}

enum err rollback_add(struct rollbacks *rollbacks,
                      const struct rollback *rollback)
{
    /* each can make one interval more, at most */
    assert(rollbacks->gap_count <= rollbacks->count);
    TRY(array_room(&rollbacks->list, &rollbacks->list_room,
                   rollbacks->count + 1));
    TRY(array_room(&rollbacks->gaps, &rollbacks->gap_room,
                   rollbacks->count + 1));
    rollbacks->list[rollbacks->count++] = *rollback;
    leave_out(rollbacks, rollback->first, rollback->first + rollback->batches);
    return ERR_OK;
}

json_t *rollback_json(const struct rollback *rollback)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "from", (json_int_t)rollback->from,
                     "to", (json_int_t)rollback->to, "first",
                     (json_int_t)rollback->first, "batches",
                     (json_int_t)rollback->batches);
}

/* So that sums of some of them stay within 64 bits. */
#define LARGEST ((int64_t)1 << 48)

static enum err rollback_parse(const json_t *json, struct rollback *out)
{
    static const char *const names[] = { "from", "to", "first", "batches" };
    int64_t values[4];
    bool good = true;
    for (int i = 0; i < 4; i++) {
        const json_t *value = json_object_get(json, names[i]);
        values[i] = json_integer_value(value);
        good = good && json_is_integer(value) && values[i] >= 0 &&
               values[i] < LARGEST;
    }
    *out = (struct rollback){ values[0], values[1], values[2], values[3] };
    return good && out->to <= out->from && out->batches > 0
               ? ERR_OK
               : err_set(ERR_CHECKPOINT,
                         "a rollback has no whole from >= to, first and "
                         "batches");
}

enum err rollback_store(const struct rollbacks *rollbacks, json_t *state)
{
    if (rollbacks->count == 0)
        return ERR_OK;
    json_t *array = json_array();
    for (int i = 0; i < rollbacks->count; i++)
        jsontext_append(&array, rollback_json(&rollbacks->list[i]));
    return json_object_set_new(state, KEY, array) == 0
               ? ERR_OK
               : err_set(ERR_MEMORY, "out of memory");
}

static enum err add_parsed(struct rollbacks *rollbacks, const json_t *json,
                           const char *where)
{
    struct rollback rollback;
    TRY(err_prefix(rollback_parse(json, &rollback), "%s", where));
    return rollback_add(rollbacks, &rollback);
}

/* One of the ledger's: what another run in this folder has done before is not
 * this one's, and what the state has is there already. */
static enum err add_event(struct rollbacks *rollbacks, int64_t step,
                          const json_t *event, const char *run_uuid)
{
    const char *its = json_string_value(json_object_get(event, "run_uuid"));
    json_int_t number = json_integer_value(json_object_get(event, "number"));
    if (its == NULL || strcmp(its, run_uuid) != 0 || number <= rollbacks->count)
        return ERR_OK;
    if (number > rollbacks->count + 1)
        return err_set(ERR_CHECKPOINT,
                       "ledger.jsonl: its rollback %d is missing, %lld is "
                       "there: put the line back, or go on from a newer "
                       "checkpoint",
                       rollbacks->count + 1, (long long)number);
    TRY(add_parsed(rollbacks, event, "ledger.jsonl"));
    const struct rollback *added = &rollbacks->list[rollbacks->count - 1];
    if (step <= added->to)
        return ERR_OK;
    return err_set(ERR_CHECKPOINT,
                   "the checkpoint of step %lld is of steps that the run has "
                   "given up since, when it went back from step %lld to %lld "
                   "(ledger.jsonl): remove it",
                   (long long)step, (long long)added->from,
                   (long long)added->to);
}

enum err rollback_restore(struct rollbacks *rollbacks, int64_t step,
                          const json_t *state, const json_t *ledger,
                          const char *run_uuid)
{
    size_t i;
    json_t *one;
    const json_t *stored = json_object_get(state, KEY);
    rollback_free(rollbacks);
    if (stored != NULL && !json_is_array(stored))
        return err_set(ERR_CHECKPOINT,
                       "the checkpoint's " KEY " is no list: go on from "
                       "another one");
    json_array_foreach(stored, i, one)
    {
        TRY(add_parsed(rollbacks, one, "the checkpoint's " KEY));
    }
    json_array_foreach(ledger, i, one)
    {
        TRY(add_event(rollbacks, step, one, run_uuid));
    }
    return ERR_OK;
}
