/* tessera-ckpt ledger: what launch scripts ask of a run's ledger, and what they
 * add. They know words; JSON is read and written here. */
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
    return ERR_OK;
}
