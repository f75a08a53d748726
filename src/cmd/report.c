/* tessera-report RUN...: what runs have come to, as a page and figures. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/output.h"
#include "src/cmd/cmd_main.h"
#include "src/report/report.h"

static const char help[] =
    "usage: tessera-report RUN... [--out FILE.html] [OPTION ...]\n"
    "       tessera-report --help | --version\n\n"
    "Reads run directories, also of runs that go on, and writes one HTML file "
    "that needs\nno network: losses, learning rate, gradient norm, throughput, "
    "utilization, times of\nranks, memory, checkpoints, attempts, nodes, "
    "goodput and what was lost to what,\nhours, cost, samples, scores. "
    "Several runs are drawn over each other.\n\n"
    "  --out FILE.html    the page (report.html, unless --json is given)\n"
    "  --json FILE        all figures\n"
    "  --price N          of an hour of a GPU, or of a core without GPUs\n\n"
    "exit codes: 0; 64 usage, or no such folder; 75 a file could not be "
    "read or\nwritten; 93 no run there\n";

struct options {
    const char *out, *json;
    double price; /* NaN: not given */
    char **runs;
    int run_count;
};

static const struct option names[] = {
    { "out", required_argument, NULL, 'o' },
    { "png", required_argument, NULL, 'p' },
    { "json", required_argument, NULL, 'j' },
    { "price", required_argument, NULL, 'c' },
    { NULL, 0, NULL, 0 },
};

static enum err parse_price(double *out)
{
    char *end = NULL;
    *out = strtod(optarg, &end);
    if (end == optarg || *end != '\0' || !(*out >= 0 && *out <= 1e9))
        return err_set(ERR_USAGE,
                       "--price takes a number from 0 to 1e9, not '%.64s'",
                       optarg);
    return ERR_OK;
}

static enum err parse(int argc, char **argv, struct options *out)
{
    *out = (struct options){ .price = NAN };
    opterr = 0;
    for (;;) {
        int letter = getopt_long(argc, argv, ":", names, NULL);
        if (letter == -1)
            break;
        if (letter == '?')
            return cmd_main_no_option("no option ", argv[optind - 1], names);
        if (letter == ':')
            return err_set(ERR_USAGE, "%s needs a value; see --help",
                           argv[optind - 1]);
        if (letter == 'o')
            out->out = optarg;
        else if (letter == 'p')
            return err_set(ERR_USAGE,
                           "--png is gone: the page of --out has every plot as "
                           "SVG, and a browser's screenshot makes PNG of it");
        else if (letter == 'j')
            out->json = optarg;
        else
            TRY(parse_price(&out->price));
    }
    out->runs = argv + optind;
    out->run_count = argc - optind;
    if (out->run_count < 1)
        return err_set(ERR_USAGE, "give a run directory; see --help");
    if (out->run_count > REPORT_RUNS_MAX)
        return err_set(ERR_USAGE, "%d runs, but at most %d fit over each other",
                       out->run_count, REPORT_RUNS_MAX);
    if (out->out == NULL && out->json == NULL)
        out->out = "report.html";
    return ERR_OK;
}

/* What is written is nothing that a run has. */
static enum err check_outputs(const struct options *options)
{
    const char *const page[] = { options->out };
    if (options->out != NULL)
        TRY(output_check(options->out, NULL, 0));
    return options->json != NULL ? output_check(options->json, page, 1)
                                 : ERR_OK;
}

static enum err write_all(const struct options *options, struct report *report)
{
    if (options->out != NULL)
        TRY(report_html(report, options->out));
    if (options->json != NULL)
        TRY(report_json(report, options->json));
    if (options->out != NULL)
        printf("%s\n", options->out);
    return ERR_OK;
}

static enum err run(int argc, char **argv, int *exit_code)
{
    enum err rc = ERR_OK;
    struct options options;
    struct run_history *runs[REPORT_RUNS_MAX] = { NULL };
    struct report report = { .plots = NULL };
    (void)exit_code;
    TRY(parse(argc, argv, &options));
    TRY(check_outputs(&options));
    for (int r = 0; r < options.run_count; r++)
        TRY_OUT(run_history_create(options.runs[r], &runs[r]));
    TRY_OUT(report_create(runs, options.run_count, options.price, &report));
    TRY_OUT(write_all(&options, &report));
out:
    report_free(&report);
    for (int r = 0; r < options.run_count; r++)
        run_history_destroy(runs[r]);
    return rc;
}

static void usage(FILE *out)
{
    fputs(help, out);
}

int main(int argc, char **argv)
{
    static const struct cmd_main program = { .name = "report",
                                             .usage = usage,
                                             .run = run };
    return cmd_main(&program, argc, argv);
}
