/* tessera-ckpt: look at the checkpoints of a run, prove that they are good, and
 * look after them. One process, no GPU, no Slurm: a login node will do. */
#include "checkpoint/tools/ckpt_tools.h"
#include "src/cmd/ckpt_cmd.h"
#include "src/cmd/cmd_main.h"

/* Seconds or hours: products of two stay far from the end of doubles. */
#define NUMBER_MAX 1e12

static const struct options_row rows[] = {
    OPTION_FLAG(struct ckpt_cmd, json, "json", "one JSON document"),
    OPTION_FLAG(struct ckpt_cmd, stats, "stats",
                "minimum, maximum, mean, standard deviation, norm"),
    OPTION_WHOLE(struct ckpt_cmd, ranks, "ranks", "N", 1,
                 CKPT_RESHARD_RANKS_MAX,
                 "shards of the copy; OUT must not exist"),
    OPTION_TEXT(struct ckpt_cmd, reason, "reason", "TEXT",
                "why it is kept, for whoever finds it"),
    OPTION_WHOLE(struct ckpt_cmd, keep, "keep", "K", 1, 1000000,
                 "keep the K newest good ones (1)"),
    OPTION_WHOLE(struct ckpt_cmd, keep_every, "keep-every", "M", 1, INT64_MAX,
                 "and those whose step is a multiple of M"),
    OPTION_FLAG(struct ckpt_cmd, dry_run, "dry-run", "only say what would go"),
    OPTION_PATH(struct ckpt_cmd, local_dir, "local", "DIR",
                "checkpoint.local_dir of the run"),
    OPTION_REAL(struct ckpt_cmd, timeout_s, "timeout", "S", 0, NUMBER_MAX,
                "longest wait for another node (120)"),
    OPTION_REAL(struct ckpt_cmd, interval.cost_s, "cost", "S", 0, NUMBER_MAX,
                "seconds that a save blocks the training"),
    OPTION_REAL(struct ckpt_cmd, interval.mtbf_s, "mtbf", "S", 0, NUMBER_MAX,
                "seconds between failures of the job"),
    OPTION_REAL(struct ckpt_cmd, interval.persist_s, "persist", "S", 0,
                NUMBER_MAX,
                "seconds that a save goes on beside the training (0)"),
    OPTION_REAL(struct ckpt_cmd, interval.restart_s, "restart", "S", 0,
                NUMBER_MAX, "seconds from a failure to the next step (300)"),
    OPTION_REAL(struct ckpt_cmd, interval.detect_s, "detect", "S", 0,
                NUMBER_MAX, "seconds until a failure is noticed (0)"),
    OPTION_REAL(struct ckpt_cmd, interval.overhead_max, "overhead", "F", 0,
                NUMBER_MAX, "largest share of the time in saves"),
    OPTION_REAL(struct ckpt_cmd, prior_hours, "prior-hours", "H", 0, NUMBER_MAX,
                "node-hours per failure before any were seen (6000)"),
    OPTION_WHOLE(struct ckpt_cmd, job, "job", "ID", 0, INT64_MAX,
                 "whose decisions count"),
    OPTION_TEXT(struct ckpt_cmd, event, "event", "NAME",
                "add such a line, with each KEY=VALUE"),
    OPTION_WHOLE(struct ckpt_cmd, attempt, "attempt", "N", 0, INT32_MAX,
                 "whose line it is"),
    { 0 },
};

static const struct command {
    struct options_command command;
    ckpt_cmd_fn run;
    int checkpoints; /* so many paths, from the first on, are checkpoints */
} commands[] = {
    { { "ls", "RUN|CHECKPOINT", "committed checkpoints of a run", rows, "json",
        1, 1 },
      ckpt_cmd_ls,
      0 },
    { { "show", "CHECKPOINT", "step, ranks and tensors", rows, "json stats", 1,
        1 },
      ckpt_cmd_show,
      1 },
    { { "verify", "CHECKPOINT|RUN", "check every byte", rows, "json", 1, 1 },
      ckpt_cmd_verify,
      0 },
    { { "view", "CHECKPOINT", "write a lost or damaged checkpoint.h5 again",
        rows, "json", 1, 1 },
      ckpt_cmd_view,
      1 },
    { { "digest", "CHECKPOINT",
        "SHA-256 of the contents, whatever the number of shards", rows, "json",
        1, 1 },
      ckpt_cmd_digest,
      1 },
    { { "diff", "A B", "which tensors differ, where and how much", rows, "json",
        2, 2 },
      ckpt_cmd_diff,
      2 },
    { { "reshard", "CHECKPOINT OUT", "copy, as N ranks would write it", rows,
        "ranks! json", 2, 2 },
      ckpt_cmd_reshard,
      1 },
    { { "pin", "CHECKPOINT", "never delete it", rows, "json reason", 1, 1 },
      ckpt_cmd_pin,
      1 },
    { { "unpin", "CHECKPOINT", "let it be deleted again", rows, "json", 1, 1 },
      ckpt_cmd_unpin,
      1 },
    { { "prune", "RUN", "delete old checkpoints", rows,
        "keep|keep-every! dry-run json", 1, 1 },
      ckpt_cmd_prune,
      0 },
    { { "interval", "[RUN]", "how often to save, by RUN or --cost and --mtbf",
        rows, "json cost mtbf persist restart detect overhead prior-hours", 0,
        1 },
      ckpt_cmd_interval,
      0 },
    { { "scavenge", "RUN",
        "on each node of a job: what only they have goes to RUN", rows,
        "local! timeout json", 1, 1 },
      ckpt_cmd_scavenge,
      0 },
    { { "ledger", "RUN [KEY=VALUE...]",
        "what a launch script asks of the ledger, or adds", rows,
        "job event attempt", 1, -1 },
      ckpt_cmd_ledger,
      0 },
};

static enum err run(const struct options *options, int *exit_code)
{
    struct ckpt_cmd *cmd = options->into;
    const struct command *command = (const void *)options->command;
    cmd->words = options->operands + 1;
    cmd->word_count = options->operand_count - 1;
    for (int i = 0; i < options->operand_count && i < CKPT_CMD_PATHS; i++) {
        cmd->paths[i] = options->operands[i];
        if (cmd->paths[i][0] == '\0')
            return err_set(ERR_USAGE, "%s: a path is empty",
                           command->command.name);
    }
    for (int p = 0; p < command->checkpoints; p++)
        TRY(ckpt_cmd_need_checkpoint(cmd->paths[p]));
    TRY(command->run(cmd));
    *exit_code = cmd->exit_code;
    return ERR_OK;
}

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "ckpt",
        .about = "RUN is a run directory; CHECKPOINT, A and B are folders "
                 "RUN/checkpoints/step-*.\n",
        .end = "exit codes: 0 good, or equal; 1 diff: they differ; 64 usage; "
               "75 the file system\nfailed, try again; 93 damaged, missing, "
               "not readable, or no room\n",
        OPTIONS_COMMANDS(commands),
    };
    struct ckpt_cmd cmd = {
        .interval = { .cost_s = -1,
                      .persist_s = -1,
                      .mtbf_s = -1,
                      .restart_s = -1,
                      .detect_s = -1,
                      .overhead_max = -1 },
        .prior_hours = CKPT_INTERVAL_PRIOR_HOURS,
    };
    return cmd_main(&(struct cmd_main){ &program, &cmd, run }, argc, argv);
}
