/* tessera-ckpt: look at the checkpoints of a run, prove that they are good, and
 * look after them. One process, no GPU, no Slurm: a login node will do. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "src/base/log.h"
#include "src/cmd/ckpt_cmd.h"
#include "src/job/exit_code.h"

static const char usage[] =
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
    "       tessera-ckpt prune RUN [--keep K] [--keep-every M] [--dry-run]\n"
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

static const struct {
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
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        TRY(ckpt_cmd_parse(argc - 1, argv + 1, commands[i].letters,
                           commands[i].paths_min, commands[i].paths_max, &cmd));
        for (int p = 0; p < commands[i].checkpoints; p++)
            TRY(ckpt_cmd_need_checkpoint(cmd.paths[p]));
        return commands[i].run(&cmd, exit_code);
    }
    return err_set(ERR_USAGE, "no command '%s'; see --help", argv[1]);
    return ERR_OK;
}

/* After a command too. */
static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && i <= 2; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    int exit_code = EXIT_DONE;
    log_init("ckpt", -1, LOG_INFO);
    if (wants_help(argc, argv)) {
        fputs(usage, stdout);
        return EXIT_DONE;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("tessera " TESSERA_VERSION);
        return EXIT_DONE;
    }
    if (argc < 2) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    enum err rc = run(argc, argv, &exit_code);
    /* Before the error, so that the two come in order on one terminal. */
    bool printed = fflush(stdout) == 0 && !ferror(stdout);
    if (rc == ERR_OK && !printed)
        rc = err_errno("standard output");
    if (rc != ERR_OK)
        fprintf(stderr, "tessera-ckpt: %s\n", err_text());
    return rc != ERR_OK ? err_exit_code(rc) : exit_code;
}
