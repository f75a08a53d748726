/* tessera: list the commands, or run one: `tessera train ...` is
 * `tessera-train ...` from the same folder. Commands are found there, not in a
 * list: what is beside this program is a command, whoever has put it there. It
 * becomes the command and is gone, so that signals, exit codes and process numbers
 * are the command's own.
 *
 * It links nothing of the library but the nearest name for a mistyped command, as it
 * is what somebody types first, on any machine. `tessera help NAME` is `tessera-NAME
 * --help`; a NAME with a slash is refused, for it would lead out of the folder. */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/settings/options.h"
#include "src/base/exit_code.h"

/* What each is for; one that is not named here is listed all the same. */
static const struct command {
    const char *name, *does;
} commands[] = {
    { "train", "train, or go on from the newest good checkpoint" },
    { "chat", "talk to a model" },
    { "generate", "continue or score texts" },
    { "eval", "in-context tasks, perplexity, gauntlets" },
    { "hf", "from and to Hugging Face folders and GGUF files" },
    { "convert", "another trainer's configuration as one of ours" },
    { "plan", "memory, batch, time and disk of a run, before it is queued" },
    { "launch", "in a Slurm job: check nodes, start, watch, restart" },
    { "data", "make data sets and tokenizers, look at them, check them" },
    { "ckpt", "list, show, verify, compare and prune checkpoints" },
    { "health", "is this node fit to train?" },
    { "report", "what runs have come to, as a page" },
    { "ls", "the runs in folders: state, step, loss, why one ended" },
    { "top", "how a run goes, in the terminal" },
    { "submit", "write a run's batch script, and submit it" },
    { "status", "what Slurm says of a run's job, and how far it is" },
    { "logs", "what a run's job has said" },
    { "stop", "have a run saved and ended" },
    { "sweep", "every combination of some settings" },
    { "hash", "does this machine train to the same bits as every other?" },
};
#define COMMANDS (sizeof commands / sizeof *commands)

/* Commands of tessera-job that are called without its name. */
static bool is_of_job(const char *name)
{
    static const char *const names[] = { "submit", "status", "logs", "stop" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static void list_command(const char *name)
{
    size_t c = 0;
    while (c < COMMANDS && strcmp(commands[c].name, name) != 0)
        c++;
    printf("  %-10s%s\n", name, c < COMMANDS ? commands[c].does : "");
}

static int list_commands(const char *folder)
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, NULL, alphasort);
    printf("tessera " TESSERA_VERSION ": trains large language models on Slurm "
           "clusters and keeps them training\n\nusage: tessera COMMAND ...\n"
           "       tessera help COMMAND\n\ncommands:\n");
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name + strlen("tessera-");
        if (strncmp(entries[i]->d_name, "tessera-", strlen("tessera-")) == 0) {
            if (strcmp(name, "job") != 0)
                list_command(name);
            for (size_t c = 0; c < COMMANDS && strcmp(name, "job") == 0; c++)
                if (is_of_job(commands[c].name))
                    list_command(commands[c].name);
        }
        free(entries[i]);
    }
    free(entries);
    return EXIT_DONE;
}

int main(int argc, char **argv)
{
    char folder[FSIO_PATH_MAX];
    if (fsio_own_folder(folder) != ERR_OK) {
        fprintf(stderr, "tessera: %s\n", err_text());
        return EXIT_STOP;
    }
    bool help = argc >= 2 && strcmp(argv[1], "help") == 0;
    if (argc < 2 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0 || (help && argc == 2))
        return list_commands(folder);
    if (strcmp(argv[1], "--version") == 0) {
        puts("tessera " TESSERA_VERSION);
        return EXIT_DONE;
    }
    char program[FSIO_PATH_MAX + 64], option[] = "--help";
    char *name = argv[help ? 2 : 1];
    char *ask[] = { name, option, NULL };
    bool of_job = is_of_job(name);
    int n = snprintf(program, sizeof program, "%s/tessera-%s", folder,
                     of_job ? "job" : name);
    if (strchr(name, '/') == NULL && n < (int)sizeof program)
        execv(program, help ? ask : of_job ? argv : argv + 1);
    const char *names[COMMANDS + 1] = { NULL };
    for (size_t c = 0; c < COMMANDS; c++)
        names[c] = commands[c].name;
    (void)options_unknown("no command ", name, names);
    fprintf(stderr, "tessera: %s\n", err_text());
    return EXIT_USAGE;
}
