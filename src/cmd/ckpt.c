/* tessera-ckpt: look at the checkpoints of a run, prove that they are good, and
 * look after them. One process, no GPU, no Slurm: a login node will do. */
#include <stdio.h>

#include "src/cmd/ckpt_cmd.h"
#include "src/cmd/cmd_main.h"

static const char usage_text[] =
    "usage: tessera-ckpt ls RUN|CHECKPOINT       committed checkpoints of a "
    "run\n"
    "       tessera-ckpt show CHECKPOINT [--stats]\n"
    "                                            step, ranks and tensors\n"
    "       tessera-ckpt verify CHECKPOINT|RUN   check every byte\n"
    "       tessera-ckpt view CHECKPOINT         write a lost or damaged "
    "checkpoint.h5\n"
    "                                            again\n"
    "       tessera-ckpt digest CHECKPOINT       SHA-256 of the contents, "
    "whatever the\n"
    "                                            number of shards\n"
    "       tessera-ckpt diff A B                which tensors differ, where "
    "and how much\n"
    "       tessera-ckpt reshard CHECKPOINT OUT --ranks N\n"
    "                                            copy, as N ranks would write "
    "it\n"
    "       tessera-ckpt pin CHECKPOINT [--reason TEXT]\n"
    "       tessera-ckpt unpin CHECKPOINT        never delete it; do again\n"
    "       tessera-ckpt prune RUN --keep K|--keep-every M [--dry-run]\n"
    "                                            delete old checkpoints\n"
    "       tessera-ckpt interval RUN | --cost S --mtbf S\n"
    "                                            how often to save\n"
    "       tessera-ckpt scavenge RUN --local DIR [--timeout S]\n"
    "                                            on each node of a job: what "
    "only they have\n"
    "                                            goes to RUN\n"
    "       tessera-ckpt --help | --version\n\n"
    "RUN is a run directory; CHECKPOINT, A and B are folders "
    "RUN/checkpoints/step-*.\nEvery command takes --json.\n"
    "  --stats            minimum, maximum, mean, standard deviation, norm\n"
    "  --ranks N          shards of the copy; OUT must not exist\n"
    "  --keep K           keep the K newest good ones (1)\n"
    "  --keep-every M     and those whose step is a multiple of M\n"
    "  --dry-run          only say what would go\n"
    "  --local DIR        checkpoint.local_dir of the run\n"
    "  --timeout S        longest wait for another node (120)\n"
    "  --cost S           seconds that a save blocks the training\n"
    "  --mtbf S           seconds between failures of the job\n"
    "  --persist S        seconds that a save goes on beside the training (0)\n"
    "  --restart S        seconds from a failure to the next step (300)\n"
    "  --detect S         seconds until a failure is noticed (0)\n"
    "  --overhead F       largest share of the time in saves\n"
    "  --prior-hours H    node-hours per failure before any were seen (6000)\n"
    "\nexit codes: 0 good, or equal; 1 diff: they differ; 64 usage; 75 the "
    "file system\nfailed, try again; 93 damaged, missing, not readable, or no "
    "room\n";

static const struct command {
    const char *name;
    ckpt_cmd_fn run;
    const char *letters;
    int paths_min, paths_max;
    int checkpoints; /* so many paths, from the first on, are checkpoints */
} commands[] = {
    { "ls", ckpt_cmd_ls, "j", 1, 1, 0 },
    { "show", ckpt_cmd_show, "js", 1, 1, 1 },
    { "verify", ckpt_cmd_verify, "j", 1, 1, 0 },
    { "view", ckpt_cmd_view, "j", 1, 1, 1 },
    { "digest", ckpt_cmd_digest, "j", 1, 1, 1 },
    { "diff", ckpt_cmd_diff, "j", 2, 2, 2 },
    { "reshard", ckpt_cmd_reshard, "jr", 2, 2, 1 },
    { "pin", ckpt_cmd_pin, "jt", 1, 1, 1 },
    { "unpin", ckpt_cmd_unpin, "j", 1, 1, 1 },
    { "prune", ckpt_cmd_prune, "jken", 1, 1, 0 },
    { "interval", ckpt_cmd_interval, "jCMPRDOH", 0, 1, 0 },
    { "scavenge", ckpt_cmd_scavenge, "jLT", 1, 1, 0 },
};

static enum err run(int argc, char **argv, int *exit_code)
{
    struct ckpt_cmd cmd;
    const void *row;
    TRY(cmd_main_command(argv[1], commands,
                         sizeof commands / sizeof commands[0],
                         sizeof commands[0], &row));
    const struct command *command = row;
    TRY(ckpt_cmd_parse(argc - 1, argv + 1, command->letters, command->paths_min,
                       command->paths_max, &cmd));
    for (int p = 0; p < command->checkpoints; p++)
        TRY(ckpt_cmd_need_checkpoint(cmd.paths[p]));
    return command->run(&cmd, exit_code);
}

static void usage(FILE *out)
{
    fputs(usage_text, out);
}

int main(int argc, char **argv)
{
    const struct cmd_main ckpt = {
        .name = "ckpt", .usage = usage, .commands = true, .run = run
    };
    return cmd_main(&ckpt, argc, argv);
}
