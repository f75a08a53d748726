/* tessera-ckpt scavenge: before a job ends, what only its nodes have goes into the
 * run directory. Started by the launch script, once on each node.
 *
 * Checkpoints on the nodes may be taken every few minutes and shared ones every
 * hour; when the job's nodes are given back, what the former have more is gone. The
 * ranks of the training are dead by then and perhaps a node, so one process on each
 * node that is left tells what it has, and the newest step that can be put
 * together is written where the next job looks. */
#include <assert.h>
#include <stdio.h>

#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/tools/ckpt_tools.h"
#include "src/base/clean.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cmd/ckpt_cmd.h"
#include "src/comm/comm.h"
#include "src/job/ledger.h"
#include "src/job/lock.h"
#include "src/job/slurm.h"
#include "src/train/state/on_checkpoint_parts.h"

#define TIMEOUT_S 120.0

/* It is a commit of the attempt that saved the step. The time is not called
 * "seconds": it tells nothing about what a save costs the training. */
static enum err scavenge_record(const char *run_dir,
                                const struct ckpt_scavenged *scavenged)
{
    int next;
    TRY(ledger_next_attempt(run_dir, &next));
    assert(scavenged->step >= 0 && next >= 1);
    return ledger_append(run_dir, "commit", next - 1,
                         json_pack("{s:I, s:I, s:f, s:b}", "step",
                                   (json_int_t)scavenged->step, "bytes",
                                   (json_int_t)scavenged->bytes, "copy_s",
                                   scavenged->seconds, "scavenged", 1));
}

static enum err scavenge_report(const struct ckpt_cmd *cmd,
                                const struct ckpt_scavenged *scavenged)
{
    if (cmd->json)
        return ckpt_cmd_print(json_pack(
            "{s:I, s:I, s:f}", "step", (json_int_t)scavenged->step, "bytes",
            (json_int_t)scavenged->bytes, "seconds", scavenged->seconds));
    if (scavenged->step < 0)
        puts("the nodes have nothing newer than the run directory");
    else
        clean_printf("step %lld: %s from the nodes in %.2fs\n",
                     (long long)scavenged->step, UNITS_BYTES(scavenged->bytes),
                     scavenged->seconds);
    return ERR_OK;
}

/* Rank 0. */
static enum err open_run(const struct ckpt_cmd *cmd, struct lock **lock)
{
    TRY(ckpt_cmd_need_root(cmd->paths[0]));
    TRY(lock_acquire(cmd->paths[0], LOCK_BEAT_S, lock));
    return ckpt_index_sweep(cmd->paths[0]);
}

/* Rank 0 alone touches the run directory and holds its lock; ranks agree on whether
 * it could before anybody reads gigabytes. A ledger without the line is worth a
 * warning, not the checkpoint, which is there. */
static enum err scavenge(struct comm *comm, const struct ckpt_cmd *cmd,
                         struct lock **lock)
{
    enum err rc = ERR_OK;
    bool first = comm_rank(comm) == 0;
    assert(cmd->local_dir != NULL);
    char attempt[64];
    struct on_checkpoint_local local = { .own.fd = -1 };
    struct ckpt_scavenged scavenged;
    struct slurm slurm;
    slurm_read(&slurm);
    snprintf(attempt, sizeof attempt, "%ld.scavenge", slurm.job_id);
    TRY(comm_agree(comm, first ? open_run(cmd, lock) : ERR_OK));
    TRY(on_checkpoint_local_open(comm, cmd->local_dir, cmd->paths[0], &local));
    if (local.dir == NULL)
        return err_set(ERR_SPACE, "nothing of the nodes can be read");
    rc = ckpt_scavenge(comm, cmd->paths[0], local.dir, local.secret, attempt,
                       &scavenged);
    on_checkpoint_local_close(&local);
    TRY(rc);
    if (first && scavenged.step >= 0 &&
        scavenge_record(cmd->paths[0], &scavenged) != ERR_OK)
        log_warn("step %lld: no line in the ledger: %s",
                 (long long)scavenged.step, err_text());
    if (first)
        rc = scavenge_report(cmd, &scavenged);
    return comm_agree(comm, rc);
}

enum err ckpt_cmd_scavenge(struct ckpt_cmd *cmd)
{
    enum err rc = ERR_OK;
    struct comm *comm = NULL;
    struct lock *lock = NULL;
    TRY_OUT(comm_create("auto", NULL, NULL,
                        cmd->timeout_s > 0 ? cmd->timeout_s : TIMEOUT_S,
                        &comm));
    if (comm_size(comm) > 1)
        log_init("ckpt", comm_rank(comm), LOG_INFO);
    rc = scavenge(comm, cmd, &lock);
out:
    lock_release(lock);
    if (rc == ERR_COMM && comm != NULL) {
        fprintf(stderr, "tessera-ckpt: %s\n", err_text());
        comm_abort(comm, err_exit_code(rc));
    }
    comm_destroy(comm);
    return rc;
}
