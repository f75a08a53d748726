/* Reads and writes the ledger's rollbacks, and places the run's steps in its
 * data. What is left out is counted by rollback.c.
 *
 * Rank 0 reads the ledger, all get its events: the list decides what each rank
 * reads, so it must not depend on whose file system is a second behind. A rollback
 * is written to the ledger before anything of the new way is computed. A process
 * that dies before that comes to the same step again and judges it as before; one
 * that dies behind it finds the rollback in the ledger. Either way the batches are
 * left out once. */
#include "src/train/start/start.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/log.h"
#include "src/job/ledger.h"

int64_t trainer_rollback_position(const struct run *run, int64_t step)
{
    assert(step >= 0);
    return rollback_batch(&run->position.rollbacks, step) *
           run->settings.train.global_batch;
}

int64_t trainer_rollback_read(const struct run *run, int64_t step)
{
    return rollback_behind(&run->position.rollbacks, step) *
           run->settings.train.global_batch;
}

/* Rank 0's events as text. */
static enum err read_text(const struct run *run, char **text)
{
    json_t *events = NULL;
    if (run->rank != 0)
        return ERR_OK;
    TRY(ledger_events(run->settings.run.dir, "rollback", &events));
    *text = json_dumps(events, JSON_COMPACT);
    json_decref(events);
    return *text != NULL ? ERR_OK : err_set(ERR_MEMORY, "out of memory");
}

enum err trainer_rollback_find(struct run *run)
{
    enum err rc = ERR_OK;
    char *text = NULL;
    TRY_OUT(comm_agree(run->comm, read_text(run, &text)));
    TRY_OUT(run_share(run->comm, &text));
    assert(text != NULL);
    json_decref(run->position.rollback_events);
    run->position.rollback_events = json_loads(text, 0, NULL);
    if (run->position.rollback_events == NULL)
        rc = err_set(ERR_MEMORY, "out of memory");
    TRY_OUT(comm_agree(run->comm, rc));
out:
    free(text);
    return rc;
}

static enum err record(const struct run *run, const struct rollback *rollback)
{
    json_t *event = rollback_cause_json(&run->position.came_back, run->uuid);
    json_t *place = rollback_json(rollback);
    json_object_set_new(place, "number",
                        json_integer(run->position.rollbacks.count + 1));
    json_object_update(event, place);
    json_decref(place);
    log_warn("back from step %lld to %lld: %lld batches of the data are left "
             "out, from batch %lld on",
             (long long)rollback->from, (long long)rollback->to,
             (long long)rollback->batches, (long long)rollback->first);
    return ledger_append(run->settings.run.dir, "rollback", run->attempt,
                         event);
}

enum err trainer_rollback_begin(struct run *run)
{
    enum err rc = ERR_OK;
    if (!run->position.came_back.asked)
        return ERR_OK;
    assert(run->position.step <= run->position.came_back.from);
    struct rollback rollback =
        rollback_make(&run->position.rollbacks, run->position.came_back.from,
                      run->position.step);
    if (run->rank == 0)
        rc = record(run, &rollback);
    TRY(comm_agree(run->comm, rc));
    return comm_agree(run->comm,
                      rollback_add(&run->position.rollbacks, &rollback));
}
