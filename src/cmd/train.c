/* tessera-train RUN.cfg [key=value ...]: starts a run or goes on with it. Here
 * are its command line and its exit code only: an attempt is
 * src/train/loop/train_run.c.
 *
 * The command line is no table of options as those of other programs are: nearly all
 * that can be said of a run is a setting, written key=value, and settings have rows
 * and a help of their own (src/base/settings/settings.h).
 *
 * Every rank runs this main and has to come to the same end. So a rank that cannot
 * read its settings does not leave at once, with the others waiting for it until
 * their deadline: it keeps the error, meets them, and all agree that it was the end.
 * Only then does rank 0 speak. A rank that has lost the others (ERR_COMM) is adrift:
 * it can agree with nobody, so it speaks for itself and ends them all. The exit code
 * tells jobs/launch whether to start another attempt (src/base/exit_code.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/base/new.h"
#include "src/base/settings/options.h"
#include "src/comm/comm.h"
#include "src/base/exit_code.h"
#include "src/job/stop.h"
#include "src/mirror/home.h"
#include "src/train/loop/train_stages.h"
#include "src/train/loop/trainer.h"
#include "src/train/settings/train_settings.h"
#include "src/train/start/start_settings.h"

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: tessera-train RUN.cfg [key=value ...]\n"
        "       tessera-train --print KEY[,KEY...] RUN.cfg [key=value ...]\n"
        "       tessera-train --help [RUN.cfg] [key=value ...]\n"
        "       tessera-train --help KEY  (or how keys begin: "
        "optimizer)\n"
        "       tessera-train --version\n\n"
        "Trains the model that RUN.cfg describes, alone or on the ranks "
        "that mpirun or\nsrun starts, from the newest good checkpoint in "
        "run.dir. --print shows\nresolved settings, a line each, --help all "
        "of them: with RUN.cfg or key=value, such as\nmodel.preset=llama3-8b, "
        "what they resolve to.\n\n"
        "exit codes: 0 finished; 85 stopped by a signal or the file STOP, "
        "checkpointed; 75\ntransient failure, start again; 93 do not start "
        "again; 64 usage "
        "or configuration\n\nsettings:\n");
}

/* A script must not take what could not be written for an empty value. */
static enum err written(void)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        return err_errno("standard output");
    return ERR_OK;
}

static bool is_help(const char *argument)
{
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

/* The settings whose keys begin so; false: there are none. */
static bool help_of(const char *word)
{
    bool any = false;
    for (int i = 0; i < train_settings_count; i++)
        if (strncmp(train_settings_schema[i].key, word, strlen(word)) == 0) {
            settings_help(&train_settings_schema[i], 1, NULL, stdout);
            any = true;
        }
    return any;
}

/* --help may stand anywhere; what else there is may be missing. */
static int help(int argc, char **argv)
{
    int kept = 0;
    for (int i = 0; i < argc; i++)
        if (!is_help(argv[i]))
            argv[kept++] = argv[i];
    argc = kept;
    bool has_path = argc > 0 && strchr(argv[0], '=') == NULL;
    if (has_path && argc == 1 && access(argv[0], F_OK) != 0 && help_of(argv[0]))
        return err_exit_code(written());
    const char *path = has_path ? argv[0] : NULL;
    enum err rc = ERR_OK;
    struct train_settings *settings = NULL;
    TRY_OUT(new_zeroed(&settings, 1));
    if (argc > 0)
        TRY_OUT(start_settings_read(path, argv + has_path, argc - has_path,
                                    true, settings));
    if (argc > 0)
        TRY_OUT(start_settings_complete(settings));
    usage(stdout);
    settings_help(train_settings_schema, train_settings_count,
                  argc > 0 ? settings : NULL, stdout);
    TRY_OUT(written());
out:
    if (rc != ERR_OK)
        log_error("%s", err_text());
    free(settings);
    return err_exit_code(rc);
}

/* For scripts: the launch script asks for run.dir and others before it starts a
 * rank. Nothing but the values goes to standard output. */
static int print_settings(char *keys, const char *path, char **overrides,
                          int override_count)
{
    enum err rc = ERR_OK;
    struct train_settings *settings = NULL;
    TRY_OUT(new_zeroed(&settings, 1));
    TRY_OUT(
        start_settings_read(path, overrides, override_count, false, settings));
    TRY_OUT(start_settings_print(keys, settings, stdout));
    TRY_OUT(written());
out:
    if (rc != ERR_OK)
        log_error("%s", err_text());
    free(settings);
    return err_exit_code(rc);
}

/* The order matters: handlers of signals before the ranks meet, as a job may be
 * stopped while they wait; the log's rank as soon as it is known; and what rank
 * 0 alone has opened is shared only after all have read their settings. */
static int train(int argc, char **argv)
{
    enum err rc = ERR_OK;
    int exit_code = EXIT_DONE;
    bool adrift = false;
    struct comm *comm = NULL;
    struct train_stages *stages = NULL;
    struct train_settings *settings = calloc(1, sizeof *settings);
    if (settings == NULL)
        return EXIT_STOP;
    enum err loaded =
        start_settings_read(argv[1], argv + 2, argc - 2, false, settings);
    if (loaded == ERR_OK)
        loaded = start_settings_outputs(argv[1], settings);
    struct err_kept loading;
    err_keep(&loading, loaded);
    double timeout_s = loaded == ERR_OK ? settings->parallel.timeout_s : 60.0;
    if (memory_address_space() != SIZE_MAX)
        memory_share_heap(); /* before there are threads */
    TRY_OUT(stop_install());
    TRY_OUT(stop_outlive_readers());
    TRY_OUT(stop_watch());
    stages = train_stages_create();
    train_stages_next(stages, "ranks");
    TRY_OUT(comm_create("auto", NULL, NULL, timeout_s, &comm));
    int rank = comm_rank(comm);
    train_stages_next(stages, rank == 0 ? "settings" : NULL);
    stages = rank == 0 ? stages : NULL;
    log_init("train", rank, rank == 0 ? LOG_INFO : LOG_ERROR);
    TRY_OUT(comm_agree(comm, err_again(&loading)));
    if (rank == 0)
        log_set_level(settings->log.level);
    home_terms(settings->data.remote_deadline, stop_is_requested);
    TRY_OUT(start_settings_share(comm, settings));
    TRY_OUT(comm_beat_start(comm, settings->parallel.lost_s));
    TRY_OUT(train_run(comm, settings, stages, &exit_code, &adrift));
out:
    if (rc != ERR_OK) {
        exit_code = err_exit_code(rc);
        /* every rank has the same error; when a peer is dead, rank 0 may be it
         */
        adrift |= rc == ERR_COMM;
        if (comm == NULL || comm_rank(comm) == 0 || adrift)
            log_error("%s", err_text());
    }
    free(settings);
    if (adrift && comm != NULL)
        comm_abort(comm, exit_code);
    comm_destroy(comm);
    return exit_code;
}

int main(int argc, char **argv)
{
    kernels_wait_passively(argv);
    log_init("train", -1, LOG_INFO);
    for (int i = 1; i < argc; i++)
        if (is_help(argv[i]))
            return help(argc - 1, argv + 1);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("tessera " TESSERA_VERSION);
        return EXIT_DONE;
    }
    bool print = argc >= 2 && strcmp(argv[1], "--print") == 0;
    if (print && argc >= 4)
        return print_settings(argv[2], argv[3], argv + 4, argc - 4);
    if (print)
        log_error("usage: tessera-train --print KEY[,KEY...] RUN.cfg "
                  "[key=value ...]");
    else if (argc < 2)
        log_error("which configuration? usage: tessera-train RUN.cfg "
                  "[key=value ...]; see --help");
    else if (argv[1][0] == '-') {
        options_unknown(
            "no option ", argv[1],
            (const char *const[]){ "print", "help", "version", NULL });
        log_error("%s", err_text());
    } else if (strchr(argv[1], '=') != NULL && access(argv[1], F_OK) != 0)
        log_error("RUN.cfg comes first: tessera-train RUN.cfg %s%s", argv[1],
                  argc > 2 ? " ..." : "");
    else
        return train(argc, argv);
    return EXIT_USAGE;
}
