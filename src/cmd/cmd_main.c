/* Mains: from the command line to the exit code. What is the same in all programs
 * is here: that a call without arguments shows the usage, that --help is a result
 * and goes to standard output while a mistake is none and goes to standard error,
 * that an error is one line with the program's name, and which code it ends with.
 * The exit codes are a contract with the launch script (src/base/exit_code.h): they
 * say whether another attempt may help. */
#include "src/cmd/cmd_main.h"

#include <assert.h>

#include "src/base/log.h"
#include "src/base/exit_code.h"

int cmd_main_end(const struct cmd_main *cmd, enum err rc, int exit_code)
{
    /* before the error, so that the two come in order on one terminal */
    assert(exit_code >= 0 && exit_code < 256);
    bool printed = fflush(stdout) == 0 && !ferror(stdout);
    if (rc == ERR_OK && !printed)
        rc = err_errno("standard output");
    if (rc != ERR_OK)
        fprintf(stderr, "tessera-%s: %s\n", cmd->program->name, err_text());
    return rc != ERR_OK ? err_exit_code(rc) : exit_code;
}

bool cmd_main_options(const struct cmd_main *cmd, int argc, char **argv,
                      struct options *options, int *exit_code)
{
    assert(argc > 0 && cmd->into != NULL);
    *exit_code = EXIT_USAGE;
    if (argc < 2 && !cmd->program->bare) {
        options_usage(cmd->program, stderr);
        return true;
    }
    enum err rc = options_parse(cmd->program, argc, argv, cmd->into, options);
    if (rc == ERR_OK && !options->help && !options->version)
        return false;
    if (rc == ERR_OK && options->help)
        options_usage(cmd->program, stdout);
    else if (rc == ERR_OK)
        puts("tessera " TESSERA_VERSION);
    *exit_code = cmd_main_end(cmd, rc, EXIT_DONE);
    return true;
}

int cmd_main(const struct cmd_main *cmd, int argc, char **argv)
{
    struct options options;
    int exit_code = EXIT_DONE;
    log_init(cmd->program->name, -1, LOG_INFO);
    if (cmd_main_options(cmd, argc, argv, &options, &exit_code))
        return exit_code;
    exit_code = EXIT_DONE;
    assert(cmd->run != NULL && !options.help && !options.version);
    enum err rc = cmd->run(&options, &exit_code);
    return cmd_main_end(cmd, rc, exit_code);
}
