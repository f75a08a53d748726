/* A save to the run directory; ckpt_saver_local.c is one to the nodes' own
 * folders.
 *
 * The order of a save, all of it in the saver's thread:
 *
 *   rank 0        begin: the temporary folder
 *   broadcast     its outcome
 *   every rank    write: the shard
 *   all-reduce    every rank's code, length of its record, times
 *   to rank 0     the records; or, if a rank failed, its text to all
 *   rank 0        end: manifest, commit, retention; or remove everything
 *   broadcast     the outcome
 */
#include "checkpoint/ckpt_saver_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt_crash.h"
#include "src/base/clock.h"

enum err ckpt_saver_meet(struct ckpt_saver *saver, struct comm_request *request)
{
    ckpt_saver_meets(saver, true);
    enum err rc = comm_wait(request, saver->save.options.timeout_s);
    ckpt_saver_meets(saver, false);
    saver->met_s = clock_now();
    return rc;
}

void ckpt_saver_set_outcome(struct ckpt_saver *saver, enum err rc)
{
    const struct ckpt_save *save = &saver->save;
    struct ckpt_saver_outcome *outcome = &saver->outcome;
    *outcome = (struct ckpt_saver_outcome){ .code = rc };
    if (rc == ERR_OK)
        return;
    if (save->ranks > 1)
        err_prefix(rc, "rank %d (%s)", save->rank,
                   comm_host(saver->comm, save->rank));
    snprintf(outcome->text, sizeof outcome->text, "%s", err_text());
}

enum err ckpt_saver_tell(struct ckpt_saver *saver, int root)
{
    struct comm_request *request;
    TRY(comm_start_broadcast(saver->comm, &saver->outcome,
                             sizeof saver->outcome, root, &request));
    return ckpt_saver_meet(saver, request);
}

/* The largest code and, of the ranks that have it, the lowest speaks; -1: none
 * failed. */
static int take_numbers(struct ckpt_saver *saver)
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
    saver->work.stage_s = (double)stage_us / 1e6;
    saver->work.persist_s += (double)write_us / 1e6;
    return numbers->codes[worst] != ERR_OK ? worst : -1;
}

enum err ckpt_saver_agree(struct ckpt_saver *saver, enum err own)
{
    const struct ckpt_save *save = &saver->save;
    struct ckpt_saver_numbers *numbers = &saver->numbers;
    struct comm_request *request;
    int rank = save->rank;
    ckpt_saver_set_outcome(saver, own);
    memset(numbers->codes, 0, numbers->count * sizeof *numbers->codes);
    numbers->codes[rank] = own;
    if (save->record != NULL)
        numbers->lengths[rank] = (int64_t)strlen(save->record) + 1;
    numbers->stage_us[rank] = (int64_t)(saver->work.stage_s * 1e6);
    numbers->write_us[rank] = (int64_t)((clock_now() - saver->met_s) * 1e6);
    TRY(comm_start_all_reduce_i64(saver->comm, numbers->codes, numbers->count,
                                  COMM_SUM, &request));
    TRY(ckpt_saver_meet(saver, request));
    int failed = take_numbers(saver);
    if (failed >= 0)
        TRY(ckpt_saver_tell(saver, failed));
    return ERR_OK;
}

enum err ckpt_saver_gather(struct ckpt_saver *saver)
{
    struct ckpt_save *save = &saver->save;
    struct comm_request *request;
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
    TRY(comm_start_all_to_all(saver->comm, save->record, send_bytes,
                              send_offsets, save->records, recv_bytes,
                              recv_offsets, &request));
    return ckpt_saver_meet(saver, request);
}

void ckpt_saver_record(struct ckpt_saver *saver, enum err rc, double commit_s)
{
    const struct ckpt_options *options = &saver->save.options;
    struct ckpt_progress progress = saver->work;
    progress.phase = rc == ERR_OK ? CKPT_COMMITTED : CKPT_FAILED;
    progress.commit_s = commit_s;
    progress.total_s = clock_now() - saver->start_s;
    progress.error = rc;
    snprintf(progress.text, sizeof progress.text, "%s",
             rc == ERR_OK ? "" : err_text());
    if (options->record != NULL)
        options->record(options->record_arg, &progress);
    if (rc != ERR_OK)
        err_set(rc, "%s", progress.text);
}

static enum err write_shard(struct ckpt_saver *saver)
{
    enum err rc = ckpt_saver_staged(saver);
    return rc != ERR_OK ? rc : ckpt_save_write(&saver->save);
}

/* Rank 0: commit, or clear away what a rank's failure left. */
static void end(struct ckpt_saver *saver)
{
    struct ckpt_save *save = &saver->save;
    bool told = saver->outcome.code != ERR_OK; /* and it names the rank */
    double start_s = clock_now();
    if (!told)
        ckpt_saver_set_outcome(saver, ckpt_save_commit(save));
    enum err rc = (enum err)saver->outcome.code;
    if (rc != ERR_OK) {
        ckpt_save_give_up(save);
        err_set(rc, "%s", saver->outcome.text);
    }
    ckpt_saver_record(saver, rc, clock_now() - start_s);
    saver->outcome.commit_s = clock_now() - start_s;
}

enum err ckpt_saver_save(struct ckpt_saver *saver)
{
    struct ckpt_save *save = &saver->save;
    if (save->rank == 0)
        ckpt_saver_set_outcome(saver, ckpt_save_begin(save));
    TRY(ckpt_saver_tell(saver, 0));
    if (saver->outcome.code == ERR_OK) {
        ckpt_crash_point("folder-agreed", save->rank);
        TRY(ckpt_saver_agree(saver, write_shard(saver)));
    }
    if (saver->outcome.code == ERR_OK) {
        ckpt_saver_persisted(saver);
        ckpt_crash_point("shards-agreed", save->rank);
        TRY(ckpt_saver_gather(saver));
    }
    if (save->rank == 0)
        end(saver);
    return ckpt_saver_tell(saver, 0);
}
