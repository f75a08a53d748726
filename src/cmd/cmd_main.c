/* Mains, and commands in tables. */
#include "src/cmd/cmd_main.h"

#include <string.h>

#include "src/base/log.h"
#include "src/base/settings/settings.h"
#include "src/job/exit_code.h"

#define CMD_NAMES_MAX 64

static bool wants_help(const struct cmd_main *program, int argc, char **argv)
{
    int last = program->commands ? 2 : 1;
    for (int i = 1; i < argc && i <= last; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

int cmd_main(const struct cmd_main *program, int argc, char **argv)
{
    int exit_code = EXIT_DONE;
    log_init(program->name, -1, LOG_INFO);
    if (wants_help(program, argc, argv)) {
        program->usage(stdout);
        return EXIT_DONE;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("tessera " TESSERA_VERSION);
        return EXIT_DONE;
    }
    if (argc < 2) {
        program->usage(stderr);
        return EXIT_USAGE;
    }
    enum err rc = program->run(argc, argv, &exit_code);
    /* before the error, so that the two come in order on one terminal */
    bool printed = fflush(stdout) == 0 && !ferror(stdout);
    if (rc == ERR_OK && !printed)
        rc = err_errno("standard output");
    if (rc != ERR_OK)
        fprintf(stderr, "tessera-%s: %s\n", program->name, err_text());
    return rc != ERR_OK ? err_exit_code(rc) : exit_code;
}

enum err cmd_main_command(const char *name, const void *table, size_t count,
                          size_t row_bytes, const void **row)
{
    for (size_t i = 0; i < count; i++) {
        const char *its;
        *row = (const char *)table + i * row_bytes;
        memcpy(&its, *row, sizeof its);
        if (strcmp(name, its) == 0)
            return ERR_OK;
    }
    const char *names[CMD_NAMES_MAX + 1] = { NULL };
    for (size_t i = 0; i < count && i < CMD_NAMES_MAX; i++)
        memcpy(&names[i], (const char *)table + i * row_bytes, sizeof *names);
    return cmd_main_unknown("no command ", name, names);
}

enum err cmd_main_unknown(const char *what, const char *given,
                          const char *const *names)
{
    char word[64];
    size_t dashes = strspn(given, "-");
    snprintf(word, sizeof word, "%.*s", (int)strcspn(given + dashes, "="),
             given + dashes);
    const char *near = settings_nearest_choice(names, word);
    if (near == NULL || strcmp(near, word) == 0)
        return err_set(ERR_USAGE, "%s%.64s; see --help", what, given);
    return err_set(ERR_USAGE, "%s%.64s; did you mean %.*s%s? see --help", what,
                   given, (int)dashes, "--", near);
}

enum err cmd_main_no_option(const char *what, const char *given,
                            const struct option *options)
{
    const char *names[CMD_NAMES_MAX + 1] = { NULL };
    for (int i = 0; i < CMD_NAMES_MAX && options[i].name != NULL; i++)
        names[i] = options[i].name;
    return cmd_main_unknown(what, given, names);
}
