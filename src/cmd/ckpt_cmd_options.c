/* The options of tessera-ckpt's commands. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/tools/ckpt_reshard.h"
#include "src/cmd/ckpt_cmd.h"
#include "src/cmd/cmd_main.h"

static const struct option options[] = {
    { "json", no_argument, NULL, 'j' },
    { "stats", no_argument, NULL, 's' },
    { "dry-run", no_argument, NULL, 'n' },
    { "ranks", required_argument, NULL, 'r' },
    { "keep", required_argument, NULL, 'k' },
    { "keep-every", required_argument, NULL, 'e' },
    { "reason", required_argument, NULL, 't' },
    { "local", required_argument, NULL, 'L' },
    { "timeout", required_argument, NULL, 'T' },
    { "cost", required_argument, NULL, 'C' },
    { "mtbf", required_argument, NULL, 'M' },
    { "persist", required_argument, NULL, 'P' },
    { "restart", required_argument, NULL, 'R' },
    { "detect", required_argument, NULL, 'D' },
    { "overhead", required_argument, NULL, 'O' },
    { "prior-hours", required_argument, NULL, 'H' },
    { NULL, 0, NULL, 0 }
};

static const char *option_name(int letter)
{
    const struct option *option = options;
    while (option->name != NULL && option->val != letter)
        option++;
    return option->name;
}

static enum err parse_whole(int letter, int64_t max, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(optarg, &end, 10);
    if (end == optarg || *end != '\0' || errno != 0 || value < 1 || value > max)
        return err_set(ERR_USAGE,
                       "--%s takes a whole number from 1 to %lld, not '%s'",
                       option_name(letter), (long long)max, optarg);
    *out = value;
    return ERR_OK;
}

/* Seconds or hours: products of two stay far from the end of doubles. */
#define NUMBER_MAX 1e12

static enum err parse_number(int letter, double *out)
{
    char *end = NULL;
    *out = strtod(optarg, &end);
    if (end == optarg || *end != '\0' || !(*out >= 0 && *out <= NUMBER_MAX))
        return err_set(ERR_USAGE, "--%s takes a number from 0 to %g, not '%s'",
                       option_name(letter), NUMBER_MAX, optarg);
    return ERR_OK;
}

static enum err set_option(struct ckpt_cmd *out, int letter)
{
    switch (letter) {
    case 'j':
        out->json = true;
        return ERR_OK;
    case 's':
        out->stats = true;
        return ERR_OK;
    case 'n':
        out->dry_run = true;
        return ERR_OK;
    case 't':
        out->reason = optarg;
        return ERR_OK;
    case 'L':
        out->local_dir = optarg;
        return ERR_OK;
    case 'T':
        return parse_number(letter, &out->timeout_s);
    case 'r':
        return parse_whole(letter, CKPT_RESHARD_RANKS_MAX, &out->ranks);
    case 'k':
        return parse_whole(letter, 1000000, &out->keep);
    case 'e':
        return parse_whole(letter, INT64_MAX, &out->keep_every);
    case 'C':
        return parse_number(letter, &out->interval.cost_s);
    case 'M':
        return parse_number(letter, &out->interval.mtbf_s);
    case 'P':
        return parse_number(letter, &out->interval.persist_s);
    case 'R':
        return parse_number(letter, &out->interval.restart_s);
    case 'D':
        return parse_number(letter, &out->interval.detect_s);
    case 'O':
        return parse_number(letter, &out->interval.overhead_max);
    default:
        return parse_number(letter, &out->prior_hours);
    }
}

/* optopt is 0 after a long option that is unknown. Short ones can be several in
 * one argument, of which optind tells nothing. */
static enum err no_option(char **argv, int letter)
{
    if (letter == '?' && optopt != 0)
        return err_set(ERR_USAGE, "%s has no option -%c; see --help", argv[0],
                       optopt);
    char what[64];
    snprintf(what, sizeof what, "%.32s has no option ", argv[0]);
    return cmd_main_no_option(what, argv[optind - 1], options);
}

enum err ckpt_cmd_parse(int argc, char **argv, const char *letters,
                        int paths_min, int paths_max, struct ckpt_cmd *out)
{
    *out = (struct ckpt_cmd){
        .interval = { .cost_s = -1,
                      .persist_s = -1,
                      .mtbf_s = -1,
                      .restart_s = -1,
                      .detect_s = -1,
                      .overhead_max = -1 },
        .prior_hours = CKPT_INTERVAL_PRIOR_HOURS,
    };
    opterr = 0;
    optind = 1;
    for (;;) {
        int letter = getopt_long(argc, argv, ":", options, NULL);
        if (letter == -1)
            break;
        if (letter == ':')
            return err_set(ERR_USAGE, "%s needs a value; see --help",
                           argv[optind - 1]);
        if (letter == '?' || strchr(letters, letter) == NULL)
            return no_option(argv, letter);
        TRY(set_option(out, letter));
    }
    int paths = argc - optind;
    if (paths < paths_min || paths > paths_max)
        return err_set(ERR_USAGE, "%s takes %d path%s, not %d; see --help",
                       argv[0], paths_max, paths_max == 1 ? "" : "s", paths);
    for (int i = 0; i < paths; i++) {
        out->paths[i] = argv[optind + i];
        if (out->paths[i][0] == '\0')
            return err_set(ERR_USAGE, "%s: a path is empty", argv[0]);
    }
    return ERR_OK;
}
