/* tessera-ckpt: look at the checkpoints of a run, prove that they are good, and
 * look after them. One process, no GPU, no Slurm: a login node will do.
 *
 * All commands share one struct and one table of options, and the words beside a
 * command's name in the table say which of them it takes. What a command can be
 * given instead of a checkpoint is said there, too, so that each finds the same
 * kind of path in cmd->paths whatever was typed: who asks for show RUN means the
 * newest good checkpoint of it, while pin and reshard refuse a RUN, because what
 * they do to the wrong checkpoint cannot be taken back.
 *
 * Commands print their result and return ERR_OK, or an error that cmd_main() tells.
 * Only diff has a result that is neither (CKPT_CMD_DIFFERENT). scavenge is the one
 * that runs on several ranks; the launch script starts it. */
#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/tools/ckpt_tools.h"
#include "src/cmd/ckpt_cmd.h"
#include "src/cmd/cmd_main.h"
#include "src/mirror/home.h"

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
    OPTION_TEXT(struct ckpt_cmd, before, "before", "STEP",
                "the newest checkpoint when the attempt began"),
    OPTION_TEXT(struct ckpt_cmd, before_local, "before-local", "STEP",
                "the same of those that only nodes have"),
    { 0 },
};

/* What stands behind a command's name, as far as it is judged before. */
enum paths {
    PATH_OTHER,      /* the command itself sees what it is */
    PATH_CHECKPOINT, /* the first one is a checkpoint's folder */
    PATHS_FOUND      /* each is one, or a run, whose newest good one is meant */
};

static const struct command {
    struct options_command command;
    ckpt_cmd_fn run;
    enum paths paths;
} commands[] = {
    { { "ls", "RUN|CHECKPOINT", "committed checkpoints of a run", rows, "json",
        1, 1 },
      ckpt_cmd_ls,
      PATH_OTHER },
    { { "show", "CHECKPOINT|RUN", "step, ranks and tensors", rows, "json stats",
        1, 1 },
      ckpt_cmd_show,
      PATHS_FOUND },
    { { "verify", "CHECKPOINT|RUN", "check every byte", rows, "json", 1, 1 },
      ckpt_cmd_verify,
      PATH_OTHER },
    { { "view", "CHECKPOINT", "write checkpoint.h5, lost, damaged or not made",
        rows, "json", 1, 1 },
      ckpt_cmd_view,
      PATH_CHECKPOINT },
    { { "digest", "CHECKPOINT|RUN",
        "SHA-256 of the contents, whatever the number of shards", rows, "json",
        1, 1 },
      ckpt_cmd_digest,
      PATHS_FOUND },
    { { "diff", "A B", "which tensors differ, where and how much", rows, "json",
        2, 2 },
      ckpt_cmd_diff,
      PATHS_FOUND },
    { { "reshard", "CHECKPOINT OUT", "copy, as N ranks would write it", rows,
        "ranks! json", 2, 2 },
      ckpt_cmd_reshard,
      PATH_CHECKPOINT },
    { { "average", "OUT MODEL...",
        "the mean of weights, summed in fp64, as OUT", rows, "json", 2, -1 },
      ckpt_cmd_average,
      PATH_OTHER },
    { { "pin", "CHECKPOINT", "never delete it", rows, "json reason", 1, 1 },
      ckpt_cmd_pin,
      PATH_CHECKPOINT },
    { { "unpin", "CHECKPOINT", "let it be deleted again", rows, "json", 1, 1 },
      ckpt_cmd_unpin,
      PATH_CHECKPOINT },
    { { "prune", "RUN", "delete old checkpoints", rows,
        "keep|keep-every! dry-run json", 1, 1 },
      ckpt_cmd_prune,
      PATH_OTHER },
    { { "interval", "[RUN]", "how often to save, by RUN or --cost and --mtbf",
        rows, "json cost mtbf persist restart detect overhead prior-hours", 0,
        1 },
      ckpt_cmd_interval,
      PATH_OTHER },
    { { "scavenge", "RUN",
        "on each node of a job: what only they have goes to RUN", rows,
        "local! timeout json", 1, 1 },
      ckpt_cmd_scavenge,
      PATH_OTHER },
    { { "ledger", "RUN [KEY=VALUE...]",
        "what a launch script asks of the ledger, or adds", rows,
        "job event attempt", 1, -1 },
      ckpt_cmd_ledger,
      PATH_OTHER },
    { { "next", "RUN KEY=VALUE...",
        "decide what a launch script does when an attempt has ended", rows,
        "job! attempt! before before-local", 2, -1 },
      ckpt_cmd_next,
      PATH_OTHER },
    { { "nodes", "RUN FOLDER [SPOOL]",
        "decide, by the checks in FOLDER, on which nodes a job trains", rows,
        "job! attempt!", 2, 3 },
      ckpt_cmd_nodes,
      PATH_OTHER },
    { { "watch", "RUN START_S HANG_S TICK_S",
        "say what is to be done about an attempt that runs", rows,
        "job! attempt!", 4, 4 },
      ckpt_cmd_watch,
      PATH_OTHER },
    { { "reach", "", "which nodes, of stdin, answer on the network", rows, "",
        0, 0 },
      ckpt_cmd_reach,
      PATH_OTHER },
};

/* What is fetched of a path that is an address; false: the command writes there. */
static bool reads(const struct command *command, const struct ckpt_cmd *cmd,
                  int path, enum home_what *what)
{
    *what = command->run == ckpt_cmd_ls                    ? HOME_RUN
            : command->run == ckpt_cmd_show && !cmd->stats ? HOME_HEADS
                                                           : HOME_ALL;
    return command->paths == PATHS_FOUND || command->run == ckpt_cmd_ls ||
           command->run == ckpt_cmd_verify ||
           (command->run == ckpt_cmd_reshard && path == 0);
}

static enum err fetch(const struct command *command, struct ckpt_cmd *cmd)
{
    char exact[FSIO_PATH_MAX];
    enum home_what what;
    for (int p = 0; p < CKPT_CMD_PATHS && cmd->paths[p] != NULL; p++) {
        if (!home_is(cmd->paths[p]) ||
            (command->run == ckpt_cmd_average && p > 0))
            continue;
        TRY(home_check(cmd->paths[p]));
        if (!reads(command, cmd, p, &what))
            return err_set(ERR_USAGE,
                           "%s: %s is for a directory of this machine; what "
                           "stays in a mirror say checkpoint.mirror_keep, "
                           "keep_every and keep_best of its run",
                           cmd->paths[p], command->command.name);
        TRY(home_open(cmd->paths[p], what, cmd->named[p], exact));
        cmd->paths[p] = cmd->named[p];
    }
    return ERR_OK;
}

/* Paths are judged here, before the command, so that a typing error is told before
 * anything is read, and in the same words by every command. */
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
    TRY(fetch(command, cmd));
    for (int p = 0; p < options->operand_count && p < CKPT_CMD_PATHS; p++)
        if ((p == 0 || command->paths == PATHS_FOUND) &&
            ckpt_index_is_named(cmd->paths[p])) {
            TRY(ckpt_index_named(cmd->paths[p], cmd->named[p]));
            cmd->paths[p] = cmd->named[p];
        }
    if (command->paths == PATH_CHECKPOINT)
        TRY(ckpt_cmd_need_checkpoint(cmd->paths[0]));
    for (int p = 0; p < options->operand_count; p++)
        if (command->paths == PATHS_FOUND)
            TRY(ckpt_cmd_find_checkpoint(&cmd->paths[p], cmd->found[p]));
    TRY(command->run(cmd));
    *exit_code = cmd->exit_code;
    return ERR_OK;
}

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "ckpt",
        .about = "RUN is a run directory; CHECKPOINT is a folder "
                 "RUN/checkpoints/step-*, RUN#STEP\nor RUN#best; A and B are "
                 "either. Of a RUN show, digest and diff take the newest\n"
                 "good checkpoint. ls, show, verify, digest, diff and reshard "
                 "read s3://BUCKET/PREFIX,\na mirror, a run or a checkpoint, "
                 "too; of several all but ls take the newest.\n",
        .end = "exit codes: 0 good, or equal; 1 diff: they differ; 64 usage; "
               "75 the file system\nfailed, try again; 93 damaged, missing, "
               "not readable, or no room\n",
        OPTIONS_COMMANDS(commands),
    };
    /* 0 seconds may be given, so what is not given is -1 */
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
