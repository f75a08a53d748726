/* The options of tessera-plan. */
#include "src/cmd/plan_options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/units.h"
#include "src/cmd/cmd_main.h"

#define RANKS_MAX 65536

static const struct option options[] = {
    { "json", no_argument, NULL, 'j' },
    { "memory", required_argument, NULL, 'm' },
    { "ranks", required_argument, NULL, 'r' },
    { "nodes", required_argument, NULL, 'n' },
    { "rate", required_argument, NULL, 't' },
    { "mfu", required_argument, NULL, 'u' },
    { "mtbf", required_argument, NULL, 'f' },
    { "write-rate", required_argument, NULL, 'w' },
    { NULL, 0, NULL, 0 },
};

static enum err parse_count(const char *name, int *out)
{
    char *end = NULL;
    errno = 0;
    long value = strtol(optarg, &end, 10);
    if (end == optarg || *end != '\0' || errno != 0 || value < 1 ||
        value > RANKS_MAX)
        return err_set(ERR_USAGE,
                       "--%s takes a whole number from 1 to %d, not '%.64s'",
                       name, RANKS_MAX, optarg);
    *out = (int)value;
    return ERR_OK;
}

static enum err parse_number(const char *name, double max, double *out)
{
    char *end = NULL;
    double value = strtod(optarg, &end);
    if (end == optarg || *end != '\0' || !isfinite(value) || value <= 0.0 ||
        value > max)
        return err_set(ERR_USAGE,
                       "--%s takes a number above 0 and up to %g, not '%.64s'",
                       name, max, optarg);
    *out = value;
    return ERR_OK;
}

static enum err parse_bytes(const char *name, int64_t *out)
{
    enum err rc = units_bytes_parse(optarg, out);
    if (rc == ERR_OK && *out == 0)
        rc = err_set(ERR_USAGE, "a size above 0 is needed");
    return rc == ERR_OK ? rc : err_prefix(rc, "--%s", name);
}

static enum err set_option(int letter, struct plan_options *out)
{
    switch (letter) {
    case 'j':
        out->json = true;
        return ERR_OK;
    case 'm':
        return parse_bytes("memory", &out->memory_bytes);
    case 'r':
        return parse_count("ranks", &out->ranks);
    case 'n':
        return parse_count("nodes", &out->nodes);
    case 't':
        return parse_number("rate", 1e18, &out->rate);
    case 'u':
        return parse_number("mfu", 1, &out->mfu);
    case 'f':
        return parse_number("mtbf", 1e9, &out->mtbf_h);
    default:
        return parse_bytes("write-rate", &out->write_bytes_per_s);
    }
}

enum err plan_options_parse(int argc, char **argv, struct plan_options *out)
{
    *out = (struct plan_options){ .ranks = 1, .nodes = 1 };
    opterr = 0;
    for (;;) {
        int letter = getopt_long(argc, argv, ":", options, NULL);
        if (letter == -1)
            break;
        if (letter == ':')
            return err_set(ERR_USAGE, "%s needs a value; see --help",
                           argv[optind - 1]);
        if (letter == '?')
            return cmd_main_no_option("no option ", argv[optind - 1], options);
        TRY(set_option(letter, out));
    }
    if (out->nodes > out->ranks)
        return err_set(ERR_USAGE,
                       "--nodes %d, but only --ranks %d: each node has at "
                       "least one rank",
                       out->nodes, out->ranks);
    if (out->rate > 0 && out->mfu > 0)
        return err_set(ERR_USAGE, "--rate and --mfu say the same: give one");
    if (out->mtbf_h > 0 && out->write_bytes_per_s == 0)
        return err_set(ERR_USAGE,
                       "--mtbf is for the interval of checkpoints, which takes "
                       "--write-rate, too");
    if (optind < argc && strchr(argv[optind], '=') == NULL)
        out->path = argv[optind++];
    out->overrides = argv + optind;
    out->override_count = argc - optind;
    return ERR_OK;
}
