/* tessera-ckpt ledger: what launch scripts ask of a run's ledger, and what they
 * add. They know words; JSON is read and written here.
 *
 * Without --event it prints a line for each number, name and value with a blank
 * between, which jobs/lib/ledger.sh reads: a name that is changed here has to be
 * changed there. With --event each KEY=VALUE is checked against the event's row
 * (src/job/ledger_rows.h), so that what a script writes can be read again by those
 * who count attempts and failures. */
#include "src/cmd/ckpt_cmd.h"

#include <inttypes.h>
#include <stdio.h>

#include "src/job/ledger.h"
#include "src/job/ledger_history.h"

enum err ckpt_cmd_ledger(struct ckpt_cmd *cmd)
{
    struct ledger_job job;
    if (cmd->event != NULL)
        return ledger_append_words(cmd->paths[0], cmd->event, (int)cmd->attempt,
                                   cmd->words, cmd->word_count);
    if (cmd->word_count > 0)
        return err_set(ERR_USAGE, "ledger: '%s': give its --event",
                       cmd->words[0]);
    TRY(ledger_job_read(cmd->paths[0], cmd->job, &job));
    printf("attempts %d\nstarted %d\nfutile %d\nunstarted %d\n", job.attempts,
           job.started, job.futile, job.unstarted);
    if (job.local_step >= 0)
        printf("local step-%09" PRId64 "\n", job.local_step);
    if (job.excluded != NULL)
        printf("excluded %s\n", job.excluded);
    if (job.expired != NULL)
        printf("expired %s\n", job.expired);
    if (job.slow != NULL)
        printf("slow %s\n", job.slow);
    ledger_job_free(&job);
    return ERR_OK;
}
