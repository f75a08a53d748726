/* The life of a save, as one table of states: what each rank does in it, what
 * the ranks exchange at its end, and which state is next. It begins when the
 * caller's thread has copied the items (ckpt_saver_stage() in ckpt_saver.c) and
 * is all in the saver's thread. What is done to files is in ckpt_save.c and,
 * for the nodes' own folders, in ckpt_saver_local.c. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/ckpt_saver_private.h"
#include "checkpoint/files/ckpt_crash.h"
#include "src/base/clock.h"
#include "src/base/new.h"

/* --- the outcome ---------------------------------------------------------- */

/* The outcome becomes rc and its text. */
static void set_outcome(struct ckpt_saver *saver, enum err rc)
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

/* How the save stands if the outcome is its end. */
static void conclude(const struct ckpt_saver *saver,
                     struct ckpt_progress *progress)
{
    const struct ckpt_saver_outcome *outcome = &saver->outcome;
    progress->error = (enum err)outcome->code;
    progress->phase = progress->error == ERR_OK ? CKPT_COMMITTED : CKPT_FAILED;
    progress->commit_s = outcome->commit_s;
    progress->total_s = clock_now() - saver->start_s;
    snprintf(progress->text, sizeof progress->text, "%s", outcome->text);
}

/* --- what a rank does for a save to the run directory --------------------- */

static enum err write_shard(struct ckpt_saver *saver)
{
    ckpt_crash_point("folder-agreed", saver->save.rank);
    return ckpt_save_write_group(saver, ckpt_saver_staged(saver));
}

/* Tells both the caller and its `record` that all shards are durable. */
static enum err persisted(struct ckpt_saver *saver)
{
    const struct ckpt_options *options = &saver->save.options;
    saver->work.phase = CKPT_PERSISTED;
    if (saver->save.rank == 0 && options->record != NULL)
        options->record(options->record_arg, &saver->work);
    ckpt_saver_publish(saver);
    return ERR_OK;
}

static enum err persisted_in_run(struct ckpt_saver *saver)
{
    (void)persisted(saver);
    ckpt_crash_point("shards-agreed", saver->save.rank);
    return ERR_OK;
}

/* Tells the caller's `record` how the save has ended. */
static enum err record(struct ckpt_saver *saver)
{
    const struct ckpt_options *options = &saver->save.options;
    struct ckpt_progress progress = saver->work;
    conclude(saver, &progress);
    if (options->record != NULL)
        options->record(options->record_arg, &progress);
    return ERR_OK;
}

static enum err record_in_run(struct ckpt_saver *saver)
{
    saver->outcome.commit_s = clock_now() - saver->met_s;
    TRY(record(saver));
    if (saver->outcome.code == ERR_OK)
        ckpt_save_tidy(saver);
    return ERR_OK;
}

/* --- what the ranks exchange ---------------------------------------------- */

enum err ckpt_saver_meet(struct ckpt_saver *saver, struct comm_request *request)
{
    enum err rc = comm_wait(request, saver->save.options.timeout_s);
    saver->met_s = clock_now();
    return rc;
}

/* The outcome of `root` becomes that of all ranks. */
static enum err tell_from(struct ckpt_saver *saver, int root)
{
    struct comm_request *request;
    TRY(comm_start_broadcast(saver->comm, &saver->outcome,
                             sizeof saver->outcome, root, &request));
    return ckpt_saver_meet(saver, request);
}

/* A failure stays what it was, whatever else fails behind it. */
static enum err note(struct ckpt_saver *saver, enum err rc)
{
    if (rc != ERR_OK && saver->outcome.code == ERR_OK)
        set_outcome(saver, rc);
    return ERR_OK;
}

static enum err tell(struct ckpt_saver *saver, enum err rc)
{
    TRY(note(saver, rc));
    return tell_from(saver, 0);
}

/* The worst of the ranks' codes becomes the outcome, on all ranks, unless the
 * save had failed before; of the ranks that have it the lowest speaks. All know
 * the longest times then. */
static enum err agree(struct ckpt_saver *saver, enum err own)
{
    const struct ckpt_save *save = &saver->save;
    struct ckpt_saver_outcome before = saver->outcome;
    struct comm_request *request;
    int64_t *numbers = saver->numbers;
    set_outcome(saver, own);
    /* one number has both code and rank, as in comm_agree() */
    numbers[SAVER_WORST] =
        (int64_t)own * save->ranks + save->ranks - 1 - save->rank;
    numbers[SAVER_STAGE_US] = (int64_t)(saver->work.stage_s * 1e6);
    numbers[SAVER_WRITE_US] = (int64_t)((clock_now() - saver->met_s) * 1e6);
    TRY(comm_start_all_reduce_i64(saver->comm, numbers, SAVER_NUMBERS, COMM_MAX,
                                  &request));
    TRY(ckpt_saver_meet(saver, request));
    saver->work.stage_s = (double)numbers[SAVER_STAGE_US] / 1e6;
    saver->work.persist_s += (double)numbers[SAVER_WRITE_US] / 1e6;
    if (numbers[SAVER_WORST] / save->ranks != ERR_OK)
        TRY(tell_from(saver, save->ranks - 1 -
                                 (int)(numbers[SAVER_WORST] % save->ranks)));
    if (before.code != ERR_OK)
        saver->outcome = before;
    return ERR_OK;
}

/* All have done what they had to with the step that goes, if one does. */
static enum err pass(struct ckpt_saver *saver, enum err rc)
{
    struct comm_request *request;
    (void)rc;
    if (saver->outcome.trash[0] == '\0')
        return ERR_OK;
    saver->numbers[0] = 0;
    TRY(comm_start_all_reduce_i64(saver->comm, saver->numbers, 1, COMM_MAX,
                                  &request));
    return ckpt_saver_meet(saver, request);
}

/* Whether a rank has a record: of a save to the nodes' folders, or of one to the
 * run directory, in which a group's maker has it. */
static bool has_record(const struct ckpt_saver *saver, int rank)
{
    const struct ckpt_save *save = &saver->save;
    return saver->work.local ? save->shard_of[rank] >= 0 : save->makes[rank];
}

/* What ranks with a record have, `bytes` of it, goes to rank 0: there lengths[r]
 * bytes of rank r, one behind the other, or NULL: as many of each, in the order
 * of ranks. */
static enum err to_first(struct ckpt_saver *saver, const void *own,
                         size_t bytes, void *all, const int64_t *lengths)
{
    struct comm_request *request;
    bool first = saver->save.rank == 0;
    size_t *send_bytes = comm_sizes(saver->comm, 0);
    size_t *send_offsets = comm_sizes(saver->comm, 1);
    size_t *recv_bytes = comm_sizes(saver->comm, 2);
    size_t *recv_offsets = comm_sizes(saver->comm, 3);
    size_t total = 0;
    for (int r = 0; r < saver->save.ranks; r++) {
        send_bytes[r] =
            r == 0 && has_record(saver, saver->save.rank) ? bytes : 0;
        send_offsets[r] = 0;
        recv_bytes[r] = !first || !has_record(saver, r) ? 0
                        : lengths == NULL               ? bytes
                                                        : (size_t)lengths[r];
        recv_offsets[r] = lengths == NULL ? (size_t)r * bytes : total;
        total += recv_bytes[r];
    }
    TRY(comm_start_all_to_all(saver->comm, own, send_bytes, send_offsets, all,
                              recv_bytes, recv_offsets, &request));
    return ckpt_saver_meet(saver, request);
}

/* The shards' records go to rank 0, which asks how long they are first. */
static enum err gather(struct ckpt_saver *saver, enum err rc)
{
    struct ckpt_save *save = &saver->save;
    size_t total = 0;
    (void)rc;
    saver->length = (int64_t)save->record_bytes;
    if (save->rank == 0)
        memset(save->lengths, 0, (size_t)save->ranks * sizeof *save->lengths);
    TRY(to_first(saver, &saver->length, sizeof saver->length, save->lengths,
                 NULL));
    for (int r = 0; r < save->ranks && save->rank == 0; r++)
        total += (size_t)save->lengths[r];
    /* The others wait for rank 0: nothing but its end can tell them. */
    TRY(new_room(&save->records, total + 1));
    return to_first(saver, save->record, (size_t)saver->length, save->records,
                    save->lengths);
}

/* --- the table ------------------------------------------------------------ */

enum who { EVERY, FIRST };

struct row {
    enum who who; /* every rank, or rank 0 */
    /* NULL: nothing. A failure does not end the saver: it becomes, by `meet`,
     * the outcome of the save on all ranks. */
    enum err (*work)(struct ckpt_saver *saver);
    /* All ranks hear of it; a failure ends the saver: a rank is missing. note:
     * nothing is exchanged, and no rank's next exchange depends on it. */
    enum err (*meet)(struct ckpt_saver *saver, enum err rc);
    enum ckpt_saver_state good, failed; /* what is next, by the outcome */
};

/* No node sees another's folder, so all agree before any of them renames, and
 * all have renamed before any removes an older step. */
static const struct row rows[] = {
    /* clang-format off */
    /* to the run directory */
    [RUN_BEGIN]     = { FIRST, ckpt_save_begin,  tell,   RUN_WRITE,     RUN_GIVE_UP },
    [RUN_WRITE]     = { EVERY, write_shard,      agree,  RUN_PERSISTED, RUN_GIVE_UP },
    [RUN_PERSISTED] = { EVERY, persisted_in_run, gather, RUN_COMMIT,    RUN_GIVE_UP },
    [RUN_COMMIT]    = { FIRST, ckpt_save_commit, note,   RUN_END,       RUN_GIVE_UP },
    [RUN_GIVE_UP]   = { FIRST, ckpt_save_give_up, note,  RUN_END,       RUN_END },
    [RUN_END]       = { FIRST, record_in_run,    tell,   RUN_REMOVE,    SAVER_IDLE },
    [RUN_REMOVE]    = { EVERY, ckpt_save_remove_file, pass, RUN_REMOVED, RUN_REMOVED },
    [RUN_REMOVED]   = { FIRST, ckpt_save_remove_rest, note, SAVER_IDLE,  SAVER_IDLE },
    /* to the nodes' own folders */
    [NODE_WRITE]     = { EVERY, ckpt_saver_local_write,   agree,  NODE_GATHER,    NODE_CLEAN },
    [NODE_GATHER]    = { EVERY, NULL,                     gather, NODE_MANIFEST,  NODE_CLEAN },
    [NODE_MANIFEST]  = { FIRST, ckpt_saver_local_format,  tell,   NODE_SHARE,     NODE_CLEAN },
    [NODE_SHARE]     = { EVERY, NULL,     ckpt_saver_local_share, NODE_PREPARE,   NODE_CLEAN },
    [NODE_PREPARE]   = { EVERY, ckpt_saver_local_prepare, agree,  NODE_EXCHANGE,  NODE_CLEAN },
    [NODE_EXCHANGE]  = { EVERY, NULL,  ckpt_saver_local_exchange, NODE_VERIFY,    NODE_CLEAN },
    [NODE_VERIFY]    = { EVERY, ckpt_saver_local_verify,  agree,  NODE_PERSISTED, NODE_CLEAN },
    [NODE_PERSISTED] = { EVERY, persisted,                note,   NODE_COMMIT,    NODE_CLEAN },
    [NODE_COMMIT]    = { EVERY, ckpt_saver_local_commit,  agree,  NODE_END,       NODE_TAKE_BACK },
    [NODE_TAKE_BACK] = { EVERY, ckpt_saver_local_revoke,  note,   NODE_CLEAN,     NODE_CLEAN },
    [NODE_CLEAN]     = { EVERY, ckpt_saver_local_clean,   agree,  NODE_END,       NODE_END },
    [NODE_END]       = { FIRST, record,                   note,   NODE_TIDY,      SAVER_IDLE },
    [NODE_TIDY]      = { EVERY, ckpt_saver_local_tidy,    note,   SAVER_IDLE,     SAVER_IDLE },
    /* clang-format on */
};

enum err ckpt_saver_run(struct ckpt_saver *saver, enum ckpt_saver_state state)
{
    assert(state > SAVER_QUIT && state <= NODE_TIDY);
    saver->outcome = (struct ckpt_saver_outcome){ 0 };
    saver->met_s = clock_now();
    while (state != SAVER_IDLE) {
        const struct row *row = &rows[state];
        enum err rc = ERR_OK;
        if (row->work != NULL && (row->who == EVERY || saver->save.rank == 0))
            rc = row->work(saver);
        ckpt_saver_meets(saver, true);
        TRY(row->meet(saver, rc));
        ckpt_saver_meets(saver, false);
        state = saver->outcome.code == ERR_OK ? row->good : row->failed;
    }
    conclude(saver, &saver->work);
    return ERR_OK;
}
