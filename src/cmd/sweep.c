/* tessera-sweep FILE: runs every combination of some settings' values, one after
 * the other or as an array of jobs, and compares what came of them. What was
 * finished before is left alone, so that the same command goes on.
 *
 * It is called in three roles: by a user; in each job of an array, by itself, with
 * the number of a run (--task); and only to look (--report, --list). In the second it
 * becomes tessera-train and does not return, so the comparison is the user's call's
 * alone. */
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/base/output.h"
#include "src/cmd/cmd_main.h"
#include "src/sweep/sweep.h"

struct sweep_options {
    const char *json, *svg;
    bool report, list, slurm;
    int64_t task; /* -1: none */
};

static const struct options_row rows[] = {
    OPTION_FLAG(struct sweep_options, report, "report", "only compare"),
    OPTION_TEXT(struct sweep_options, json, "json", "FILE",
                "the comparison for programs"),
    OPTION_TEXT(struct sweep_options, svg, "svg", "FILE",
                "and as a picture: quality against time"),
    OPTION_FLAG(struct sweep_options, list, "list", "only the command lines"),
    OPTION_FLAG(struct sweep_options, slurm, "slurm",
                "as an array of jobs, of those that are not finished"),
    OPTION_WHOLE(struct sweep_options, task, "task", "NUMBER", 0, INT64_MAX,
                 "one run of them, in place of this program"),
    { 0 },
};

/* A table for people, in any case, and JSON and a picture if they are asked for. */
static enum err compare(const struct sweep *sweep, struct output *json,
                        struct output *svg)
{
    enum err rc = ERR_OK;
    struct sweep_result *results = NULL;
    TRY(new_zeroed(&results, (size_t)sweep->runs));
    for (int64_t i = 0; i < sweep->runs; i++)
        TRY_OUT(sweep_result(sweep, i, &results[i]));
    sweep_front(sweep, results);
    TRY_OUT(sweep_print(sweep, results, stdout));
    if (json->file != NULL)
        TRY_OUT(sweep_json(sweep, results, json->file));
    if (svg->file != NULL)
        TRY_OUT(sweep_picture(sweep, results, svg->file));
    fflush(stdout); /* it is out before the files may fail */
    TRY_OUT(output_end(json, false));
    TRY_OUT(output_end(svg, false));
out:
    free(results);
    return rc;
}

/* The programs beside this one are found first, also where no module is loaded.
 */
static enum err add_own_folder(void)
{
    char self[FSIO_PATH_MAX], path[16384];
    const char *before = getenv("PATH");
    TRY(fsio_own_folder(self));
    int n = snprintf(path, sizeof path, "%s:%s", self,
                     before != NULL ? before : "/usr/bin:/bin");
    if (n >= (int)sizeof path || setenv("PATH", path, 1) != 0)
        return err_set(ERR_MEMORY, "PATH is too long");
    return ERR_OK;
}

/* What is finished is left alone and what is not goes on, so a sweep that was
 * stopped, by anybody and at any time, is continued by the same command. */
static enum err run(const struct options *line, int *exit_code)
{
    enum err rc = ERR_OK;
    const struct sweep_options *options = line->into;
    const char *file = line->operands[0];
    struct output json = { .file = NULL }, svg = { .file = NULL };
    struct sweep *sweep = NULL;
    TRY(new_zeroed(&sweep, 1));
    TRY_OUT(add_own_folder());
    sweep_run_signals();
    TRY_OUT(sweep_load(file, sweep));
    if (options->list) {
        rc = sweep_run_list(sweep);
        goto out;
    }
    const char *const inputs[] = { file, sweep->settings.config };
    if (options->json != NULL && options->svg != NULL &&
        strcmp(options->json, options->svg) == 0)
        TRY_OUT(err_set(ERR_USAGE, "--json and --svg have the same file"));
    if (options->json != NULL)
        TRY_OUT(output_begin(options->json, inputs, 2, &json));
    if (options->svg != NULL)
        TRY_OUT(output_begin(options->svg, inputs, 2, &svg));
    TRY_OUT(fsio_mkdirs(sweep->settings.dir));
    if (options->task >= 0)
        rc = sweep_run_task(sweep, options->task);
    else if (options->slurm)
        rc = sweep_run_submit(sweep, file, exit_code);
    else if (!options->report)
        rc = sweep_run_all(sweep, exit_code);
    if (rc == ERR_OK && !options->slurm)
        rc = compare(sweep, &json, &svg);
out:
    output_drop(&json);
    output_drop(&svg);
    sweep_free(sweep);
    free(sweep);
    return rc;
}

static const struct options_command commands[] = {
    { .operands = "FILE", .rows = rows, .operands_min = 1, .operands_max = 1 }
};

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "sweep",
        .about =
            "Trains with every combination of the values in FILE's grid, each "
            "in a run\ndirectory of its own, one after the other; runs that "
            "are finished are left alone,\nothers go on. Then, or with "
            "--report alone, compares them: quality, time, time to\nthe "
            "target, and which are not beaten in both.\n",
        .end = "exit codes: 0; 85 a run was stopped: the same command goes on; "
               "93 some failed; 64\nusage or configuration\n\nFILE has:\n",
        .more = sweep_help,
        OPTIONS_COMMANDS(commands),
    };
    struct sweep_options options = { .task = -1 };
    return cmd_main(&(struct cmd_main){ &program, &options, run }, argc, argv);
}
