/* The order of a save. The thread does one task at a time for the main thread,
 * which alone communicates:
 *
 *   rank 0's thread   begin: the temporary folder
 *   broadcast         its outcome
 *   every thread      write: the shard
 *   all-reduce        every rank's code, length of its record, times
 *   to rank 0         the records; or, if a rank failed, its text to all
 *   rank 0's thread   end: manifest, commit, retention; or remove everything
 *   broadcast         the outcome
 */
#include "checkpoint/ckpt_saver_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt_crash.h"

/* Enough for what has come already, when the deadline asks who is missing. */
#define LAST_LOOK_S 1e-3

static bool is_task(enum ckpt_saver_state state)
{
    switch (state) {
    case STATE_BEGIN:
    case STATE_WRITE:
    case STATE_END:
    case STATE_LOCAL_WRITE:
    case STATE_LOCAL_MANIFEST:
    case STATE_LOCAL_PREPARE:
    case STATE_LOCAL_VERIFY:
    case STATE_LOCAL_COMMIT:
    case STATE_LOCAL_TIDY:
    case STATE_LOCAL_CLEAN:
        return true;
    default:
        return false;
    }
}

enum err ckpt_saver_broadcast(struct ckpt_saver *saver,
                              enum ckpt_saver_state state, int root)
{
    saver->state = state;
    return comm_start_broadcast(saver->comm, &saver->outcome,
                                sizeof saver->outcome, root, &saver->request);
}

void ckpt_saver_take_outcome(struct ckpt_saver *saver)
{
    const struct ckpt_save *save = &saver->save;
    saver->outcome = saver->done;
    if (saver->done.code != ERR_OK && save->ranks > 1) {
        err_set((enum err)saver->done.code, "rank %d (%s): %s", save->rank,
                comm_host(saver->comm, save->rank), saver->done.text);
        snprintf(saver->outcome.text, sizeof saver->outcome.text, "%s",
                 err_text());
    }
}

static enum err start_end(struct ckpt_saver *saver)
{
    if (saver->save.rank != 0)
        return ckpt_saver_broadcast(saver, STATE_RESULT, 0);
    saver->state = STATE_END;
    ckpt_saver_task_give(saver, TASK_END);
    return ERR_OK;
}

enum err ckpt_saver_after_begin(struct ckpt_saver *saver)
{
    ckpt_saver_take_outcome(saver);
    return ckpt_saver_broadcast(saver, STATE_FOLDER, 0);
}

static enum err after_folder(struct ckpt_saver *saver)
{
    if (saver->outcome.code != ERR_OK)
        return start_end(saver);
    ckpt_crash_point("folder-agreed", saver->save.rank);
    saver->state = STATE_WRITE;
    ckpt_saver_task_give(saver, TASK_WRITE);
    return ERR_OK;
}

enum err ckpt_saver_agree(struct ckpt_saver *saver, enum ckpt_saver_state state)
{
    const struct ckpt_save *save = &saver->save;
    struct ckpt_saver_numbers *numbers = &saver->numbers;
    int rank = save->rank;
    memset(numbers->codes, 0, numbers->count * sizeof *numbers->codes);
    ckpt_saver_take_outcome(saver);
    numbers->codes[rank] = saver->outcome.code;
    if (save->record != NULL)
        numbers->lengths[rank] = (int64_t)strlen(save->record) + 1;
    numbers->stage_us[rank] = (int64_t)(saver->progress.stage_s * 1e6);
    numbers->write_us[rank] = (int64_t)(saver->task_s * 1e6);
    saver->state = state;
    return comm_start_all_reduce_i64(saver->comm, numbers->codes,
                                     numbers->count, COMM_SUM, &saver->request);
}

enum err ckpt_saver_gather(struct ckpt_saver *saver,
                           enum ckpt_saver_state state)
{
    struct ckpt_save *save = &saver->save;
    size_t ranks = (size_t)save->ranks;
    size_t *send_bytes = comm_sizes(saver->comm, 0);
    size_t *send_offsets = comm_sizes(saver->comm, 1);
    size_t *recv_bytes = comm_sizes(saver->comm, 2);
    size_t *recv_offsets = comm_sizes(saver->comm, 3);
    size_t total = 0;
    for (size_t r = 0; r < ranks; r++) {
        size_t length = (size_t)saver->numbers.lengths[r];
        send_bytes[r] = send_offsets[r] = 0;
        recv_bytes[r] = save->rank == 0 ? length : 0;
        recv_offsets[r] = save->rank == 0 ? total : 0;
        total += length;
    }
    send_bytes[0] = (size_t)saver->numbers.lengths[save->rank];
    if (save->rank == 0) {
        save->records = malloc(total + 1);
        /* The others wait for rank 0: nothing but its end can tell them. */
        if (save->records == NULL)
            return err_set(ERR_MEMORY, "checkpoint: out of memory");
    }
    saver->state = state;
    return comm_start_all_to_all(saver->comm, save->record, send_bytes,
                                 send_offsets, save->records, recv_bytes,
                                 recv_offsets, &saver->request);
}

/* The largest code and, of the ranks that have it, the lowest speaks. */
int ckpt_saver_agreed(struct ckpt_saver *saver)
{
    const struct ckpt_saver_numbers *numbers = &saver->numbers;
    int64_t stage_us = 0, write_us = 0;
    int worst = 0;
    for (int r = 0; r < saver->save.ranks; r++) {
        if (numbers->codes[r] > numbers->codes[worst])
            worst = r;
        if (numbers->stage_us[r] > stage_us)
            stage_us = numbers->stage_us[r];
        if (numbers->write_us[r] > write_us)
            write_us = numbers->write_us[r];
    }
    saver->progress.stage_s = (double)stage_us / 1e6;
    saver->progress.persist_s += (double)write_us / 1e6;
    return numbers->codes[worst] != ERR_OK ? worst : -1;
}

static enum err after_agree(struct ckpt_saver *saver)
{
    int failed = ckpt_saver_agreed(saver);
    if (failed >= 0)
        return ckpt_saver_broadcast(saver, STATE_REASON, failed);
    saver->progress.phase = CKPT_PERSISTED;
    ckpt_crash_point("shards-agreed", saver->save.rank);
    return ckpt_saver_gather(saver, STATE_RECORDS);
}

static enum err after_end(struct ckpt_saver *saver)
{
    struct ckpt_saver_outcome reason = saver->outcome;
    ckpt_saver_take_outcome(saver);
    if (reason.code != ERR_OK)
        saver->outcome = reason; /* it names the rank already */
    saver->outcome.commit_s = saver->task_s;
    return ckpt_saver_broadcast(saver, STATE_RESULT, 0);
}

void ckpt_saver_forget(struct ckpt_save *save)
{
    free(save->record);
    free(save->records);
    json_decref(save->state);
    save->record = save->records = NULL;
    save->state = NULL;
}

enum err ckpt_saver_finish(struct ckpt_saver *saver)
{
    struct ckpt_progress *progress = &saver->progress;
    progress->error = (enum err)saver->outcome.code;
    progress->commit_s = saver->outcome.commit_s;
    snprintf(progress->text, sizeof progress->text, "%s", saver->outcome.text);
    progress->phase = progress->error == ERR_OK ? CKPT_COMMITTED : CKPT_FAILED;
    saver->state = STATE_IDLE;
    ckpt_saver_forget(&saver->save);
    if (progress->error == ERR_OK) {
        ckpt_crash_point("result-agreed", saver->save.rank);
        ckpt_crash_point("done", saver->save.rank);
    }
    return ERR_OK;
}

static enum err next(struct ckpt_saver *saver)
{
    switch (saver->state) {
    case STATE_BEGIN:
        return ckpt_saver_after_begin(saver);
    case STATE_FOLDER:
        return after_folder(saver);
    case STATE_WRITE:
        return ckpt_saver_agree(saver, STATE_AGREE);
    case STATE_AGREE:
        return after_agree(saver);
    case STATE_RECORDS:
    case STATE_REASON:
        return start_end(saver);
    case STATE_END:
        return after_end(saver);
    case STATE_RESULT:
        return ckpt_saver_finish(saver);
    default:
        return ckpt_saver_local_next(saver);
    }
}

enum err ckpt_saver_advance(struct ckpt_saver *saver)
{
    enum err rc = ERR_OK;
    while (saver->state != STATE_IDLE) {
        if (is_task(saver->state)) {
            if (!ckpt_saver_task_done(saver))
                break;
        } else if (saver->state == STATE_LOCAL_COPY) {
            if (ckpt_saver_local_waits(saver))
                break;
        } else {
            if (!comm_test(saver->request))
                break;
            TRY(comm_wait(saver->request, 0.0));
        }
        TRY(next(saver));
    }
out:
    return rc;
}

enum err ckpt_saver_deadline(struct ckpt_saver *saver)
{
    const struct ckpt_save *save = &saver->save;
    if (saver->state == STATE_LOCAL_COPY && ckpt_saver_task_done(saver))
        return ckpt_saver_local_deadline(saver, LAST_LOOK_S);
    if (!is_task(saver->state) && saver->state != STATE_LOCAL_COPY) {
        enum err rc = comm_wait(saver->request, LAST_LOOK_S);
        return rc != ERR_OK ? rc : next(saver);
    }
    return err_set(ERR_COMM,
                   "rank %d (%s) is still writing: look at its file system",
                   save->rank, comm_host(saver->comm, save->rank));
}
