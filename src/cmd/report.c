/* tessera-report RUN...: what runs have come to, as a page and figures. It reads
 * files that others write at this moment and writes none of theirs.
 *
 * src/report reads the runs, computes all figures once, and shows them in two ways,
 * the page and JSON, so that the two cannot differ. Neither may land on a file of a
 * run or on the other, which output_check() sees before a run is read; a run of a
 * month takes some seconds. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "src/base/output.h"
#include "src/cmd/cmd_main.h"
#include "src/report/report.h"

struct report_options {
    const char *out, *json;
    double price; /* NaN: not given */
};

static const struct options_row rows[] = {
    OPTION_TEXT(struct report_options, out, "out", "FILE.html",
                "the page (report.html, unless --json is given)"),
    OPTION_TEXT(struct report_options, json, "json", "FILE", "all figures"),
    OPTION_REAL(struct report_options, price, "price", "N", 0, 1e9,
                "of an hour of a GPU, or of a core without GPUs"),
    { 0 },
};

static enum err check(const struct options *options, struct report_options *out)
{
    if (options->operand_count < 1)
        return err_set(ERR_USAGE, "give a run directory; see --help");
    if (options->operand_count > REPORT_RUNS_MAX)
        return err_set(ERR_USAGE, "%d runs, but at most %d fit over each other",
                       options->operand_count, REPORT_RUNS_MAX);
    if (out->out == NULL && out->json == NULL)
        out->out = "report.html";
    return ERR_OK;
}

/* What is written is nothing that a run has. */
static enum err check_outputs(const struct report_options *options)
{
    const char *const page[] = { options->out };
    if (options->out != NULL)
        TRY(output_check(options->out, NULL, 0));
    return options->json != NULL ? output_check(options->json, page, 1)
                                 : ERR_OK;
}

static enum err write_all(const struct report_options *options,
                          struct report *report)
{
    if (options->out != NULL)
        TRY(report_html(report, options->out));
    assert(options->out != NULL || options->json != NULL);
    if (options->json != NULL)
        TRY(report_json(report, options->json));
    if (options->out != NULL)
        printf("%s\n", options->out);
    return ERR_OK;
}

/* All runs are read before anything is written: a run that cannot be read leaves
 * the page of yesterday. */
static enum err run(const struct options *options, int *exit_code)
{
    enum err rc = ERR_OK;
    struct report_options *asked = options->into;
    struct run_history *runs[REPORT_RUNS_MAX] = { NULL };
    struct report report = { .plots = NULL };
    (void)exit_code;
    TRY(check(options, asked));
    TRY(check_outputs(asked));
    for (int r = 0; r < options->operand_count; r++)
        TRY_OUT(run_history_create(options->operands[r], &runs[r]));
    TRY_OUT(report_create(runs, options->operand_count, asked->price, &report));
    TRY_OUT(write_all(asked, &report));
out:
    report_free(&report);
    for (int r = 0; r < options->operand_count; r++)
        run_history_destroy(runs[r]);
    return rc;
}

static const struct options_command commands[] = {
    { .operands = "RUN...", .rows = rows, .operands_max = -1 }
};

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "report",
        .about =
            "Reads run directories, also of runs that go on, and writes one "
            "HTML file that needs\nno network: losses, learning rate, gradient "
            "norm, throughput, utilization, times of\nranks, memory, "
            "checkpoints, attempts, nodes, goodput and what was lost to "
            "what,\nhours, cost, samples, scores. Several runs are drawn over "
            "each other.\n",
        .end = "exit codes: 0; 64 usage, or no such folder; 75 a file could "
               "not be read or\nwritten; 93 no run there\n",
        OPTIONS_COMMANDS(commands),
    };
    struct report_options asked = { .price = NAN };
    return cmd_main(&(struct cmd_main){ &program, &asked, run }, argc, argv);
}
