/* tessera-ls [FOLDER...]: the runs in folders, a line each: does it go on, how far is
 * it, when was it heard of, why has it ended. Like tessera-top it reads nothing but
 * files, and asks no Slurm.
 *
 * A folder that has a ledger or metrics is a run; in others runs are looked for, a
 * few levels deep. One that cannot be read is told and left out, so that a damaged
 * run does not hide the others. */
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/exit_code.h"
#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/cmd/cmd_main.h"
#include "src/report/run_history.h"
#include "src/report/top_frame.h"

#define DEPTH 3
#define NEWEST_BYTES 16384 /* of metrics: steps of one run in thousands */
/* Nothing has come for so long, and for so many steps: it is silent. */
#define SILENT_S 300.0
#define SILENT_STEPS 10

struct ls_options {
    bool json;
};

static const struct options_row rows[] = {
    OPTION_FLAG(struct ls_options, json, "json",
                "an object of JSON for each run"),
    { 0 },
};

struct listing {
    const struct ls_options *options;
    int64_t runs, unread;
};

static const struct run_attempt *newest(const struct run_history *run)
{
    return run->attempt_count > 0 ? &run->attempts[run->attempt_count - 1]
                                  : NULL;
}

/* By its files; of a run that somebody has killed nobody has told the end. */
static const char *state_of(const struct run_history *run, double silent_s)
{
    const struct run_attempt *last = newest(run);
    if (last == NULL)
        return "new";
    if (run_history_over(run))
        return last->stop_code == EXIT_DONE ? "finished" : "stopped";
    if (last->ended || last->stop_code >= 0)
        return "waiting"; /* for its job, or for whoever starts it again */
    double step_s =
        run->recent_count > 0
            ? run->recent[run->recent_count - 1].of[RUN_STEP_MS] / 1e3
            : 0;
    return silent_s > fmax(SILENT_S, SILENT_STEPS * step_s) ? "silent"
                                                            : "running";
}

static void print_row(const struct run_history *run, const char *path,
                      const char *state, double silent_s)
{
    const struct run_attempt *last = newest(run);
    char name[FSIO_PATH_MAX], why[RUN_TEXT_BYTES], step[48], loss[24];
    int64_t most = run_history_steps_max(run);
    int64_t done = run->last_step > 0 ? run->last_step : 0;
    if (most >= done)
        snprintf(step, sizeof step, "%" PRId64 "/%" PRId64, done, most);
    else
        snprintf(step, sizeof step, "%" PRId64, done);
    snprintf(loss, sizeof loss, "-");
    if (run->recent_count > 0)
        snprintf(loss, sizeof loss, "%.4f",
                 run->recent[run->recent_count - 1].of[RUN_LOSS]);
    top_frame_plain(path, name, sizeof name);
    top_frame_plain(last != NULL && last->ended ? last->reason : "", why,
                    sizeof why);
    printf("%-9s %14s %9s %5d %8s  %s%s%s\n", state, step, loss,
           last != NULL ? last->ranks : 0,
           run->end_us > 0 ? UNITS_SECONDS(silent_s) : "-", name,
           why[0] != '\0' ? ": " : "", why);
}

static void print_json(const struct run_history *run, const char *path,
                       const char *state)
{
    const struct run_attempt *last = newest(run);
    int64_t most = run_history_steps_max(run);
    json_t *row = json_pack(
        "{s:o, s:s, s:I, s:o, s:o, s:i, s:i, s:o, s:o, s:o}", "run",
        jsontext_string(path), "state", state, "step",
        (json_int_t)(run->last_step > 0 ? run->last_step : 0), "max_steps",
        most >= 0 ? json_integer(most) : json_null(), "loss",
        jsontext_real(run->recent_count > 0
                          ? run->recent[run->recent_count - 1].of[RUN_LOSS]
                          : NAN),
        "attempt", last != NULL ? last->number : 0, "ranks",
        last != NULL ? last->ranks : 0, "last_sign",
        jsontext_real(run->end_us > 0 ? (double)run->end_us / 1e6 : NAN),
        "code",
        last != NULL && last->code >= 0 ? json_integer(last->code)
                                        : json_null(),
        "reason", jsontext_string(last != NULL ? last->reason : ""));
    json_dumpf(row, stdout, 0);
    putchar('\n');
    json_decref(row);
}

static void list_run(struct listing *listing, const char *path)
{
    struct run_history *run = NULL;
    if (run_history_create_newest(path, NEWEST_BYTES, &run) != ERR_OK) {
        log_error("%s", err_text());
        listing->unread++;
        return;
    }
    double silent_s = fmax(clock_wall() - (double)run->end_us / 1e6, 0);
    const char *state = state_of(run, silent_s);
    if (listing->options->json)
        print_json(run, path, state);
    else {
        if (listing->runs == 0)
            printf("%-9s %14s %9s %5s %8s  %s\n", "state", "step", "loss",
                   "ranks", "last", "run");
        print_row(run, path, state, silent_s);
    }
    listing->runs++;
    run_history_destroy(run);
}

static bool is_run(const char *path)
{
    char file[FSIO_PATH_MAX];
    return (fsio_path(file, "%s/ledger.jsonl", path) == ERR_OK &&
            fsio_exists(file)) ||
           (fsio_path(file, "%s/metrics.jsonl", path) == ERR_OK &&
            fsio_exists(file));
}

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.' &&
           (entry->d_type == DT_DIR || entry->d_type == DT_LNK ||
            entry->d_type == DT_UNKNOWN);
}

/* What may not be read has no runs for whoever asks. */
static void list_folder(struct listing *listing, const char *path, int depth)
{
    struct dirent **entries = NULL;
    if (is_run(path)) {
        list_run(listing, path);
        return;
    }
    int count = depth > 0 ? scandir(path, &entries, is_shown, alphasort) : 0;
    for (int i = 0; i < count; i++) {
        char below[FSIO_PATH_MAX];
        enum err rc = strcmp(path, ".") == 0
                          ? fsio_path(below, "%s", entries[i]->d_name)
                          : fsio_path(below, "%s/%s", path, entries[i]->d_name);
        if (rc == ERR_OK)
            list_folder(listing, below, depth - 1);
        free(entries[i]);
    }
    free(entries);
}

static enum err run(const struct options *line, int *exit_code)
{
    struct listing listing = { .options = line->into };
    (void)exit_code;
    for (int i = 0; i < line->operand_count; i++) {
        if (!fsio_exists(line->operands[i]))
            return err_set(ERR_USAGE, "%s: no such folder", line->operands[i]);
        list_folder(&listing, line->operands[i], DEPTH);
    }
    if (line->operand_count == 0)
        list_folder(&listing, ".", DEPTH);
    if (listing.runs == 0 && listing.unread == 0 && !listing.options->json)
        log_info("no run here; give the folder in which they are");
    return listing.unread == 0
               ? ERR_OK
               : err_set(ERR_DATA, "%" PRId64 " runs could not be read",
                         listing.unread);
}

static const struct options_command commands[] = {
    { .operands = "[FOLDER...]", .rows = rows, .operands_max = -1 }
};

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "ls",
        .about =
            "Lists the runs in folders (.): state, step, loss, ranks, time "
            "since "
            "the last sign of\nlife, and why one has ended. running: heard of "
            "lately; silent: not for 5 minutes and 10\nsteps; waiting: ended "
            "so that it goes on when it is started again; finished;\nstopped: "
            "for good; new: nothing has started.\n",
        .end = "exit codes: 0; 64 usage, or no such folder; 93 a run could not "
               "be read\n",
        OPTIONS_COMMANDS(commands),
        .bare = true,
    };
    struct ls_options options = { 0 };
    return cmd_main(&(struct cmd_main){ &program, &options, run }, argc, argv);
}
