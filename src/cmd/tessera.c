/* tessera: list the commands, or run one: `tessera train ...` is
 * `tessera-train ...` from the same folder. */
#include <dirent.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/job/exit_code.h"

static int list_commands(const char *folder)
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, NULL, alphasort);
    printf("tessera " TESSERA_VERSION ": trains large language models on Slurm "
           "clusters and keeps them training\n\nusage: tessera COMMAND ...\n\n"
           "commands (each has --help):\n");
    for (int i = 0; i < count; i++) {
        if (strncmp(entries[i]->d_name, "tessera-", 8) == 0)
            printf("  %s\n", entries[i]->d_name + 8);
        free(entries[i]);
    }
    free(entries);
    return EXIT_DONE;
}

int main(int argc, char **argv)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) {
        fprintf(stderr, "tessera: cannot read /proc/self/exe\n");
        return EXIT_STOP;
    }
    self[length] = '\0';
    const char *folder = dirname(self);
    if (argc < 2 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
        return list_commands(folder);
    if (strcmp(argv[1], "--version") == 0) {
        puts("tessera " TESSERA_VERSION);
        return EXIT_DONE;
    }
    char program[PATH_MAX + 64];
    int n = snprintf(program, sizeof program, "%s/tessera-%s", folder, argv[1]);
    if (strchr(argv[1], '/') == NULL && n < (int)sizeof program)
        execv(program, argv + 1);
    fprintf(
        stderr,
        "tessera: no command '%s'; `tessera` without arguments lists them\n",
        argv[1]);
    return EXIT_USAGE;
}
