/* All events in an array, in two orders: by code and job, to count, and by node and
 * time, where what a node did next is the event behind a decision. */
#include "healthcheck/health_history.h"

#include <glob.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "healthcheck/health.h"
#include "src/base/array.h"
#include "src/base/clean.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/regular.h"

#define SCHEMA "tessera-event/1"
#define TIME_MAX_S 1e11 /* a calendar has the day */

struct event {
    double time; /* seconds since 1970 */
    char host[64], code[32];
    char word[24]; /* a decision's outcome, or what a look found */
    long job;
    bool decision;
};

/* A row of the table: what was found of one code. */
struct fault {
    char code[32];
    int counts[4]; /* as in columns */
    int nodes, jobs;
    const struct event *last;
};

struct health_history {
    struct event *events;
    size_t count, capacity;
    struct fault *faults;
    size_t fault_count, fault_capacity;
    double since_s;
    size_t strange; /* lines that are no events */
};

/* Which events are counted together. */
static const struct {
    const char *name, *words;
} columns[] = {
    { "warned", "warn,unknown" },
    { "bad", "bad" },
    { "would-drain", "would-drain" },
    { "drained", "drained" },
};
#define COLUMNS (int)(sizeof columns / sizeof *columns)

/* --- reading --- */

static void take_text(const json_t *line, const char *key, char *out,
                      size_t size)
{
    const char *text = json_string_value(json_object_get(line, key));
    snprintf(out, size, "%s", text != NULL ? text : "");
    clean_text(out, false);
}

static enum err take_line(struct health_history *history, const json_t *line)
{
    const char *schema = json_string_value(json_object_get(line, "schema"));
    struct event event = {
        .time = json_number_value(json_object_get(line, "time")),
        .job = (long)json_integer_value(json_object_get(line, "job")),
    };
    take_text(line, "host", event.host, sizeof event.host);
    take_text(line, "code", event.code, sizeof event.code);
    take_text(line, "outcome", event.word, sizeof event.word);
    event.decision = event.word[0] != '\0';
    if (!event.decision)
        take_text(line, "state", event.word, sizeof event.word);
    if (schema == NULL || strcmp(schema, SCHEMA) != 0 ||
        event.host[0] == '\0' || event.word[0] == '\0' ||
        !(event.time >= 0 && event.time < TIME_MAX_S)) {
        history->strange++;
        return ERR_OK;
    }
    if (event.time < history->since_s)
        return ERR_OK;
    TRY(array_room(&history->events, &history->capacity, history->count + 1));
    history->events[history->count++] = event;
    return ERR_OK;
}

static enum err read_file(struct health_history *history, const char *path)
{
    enum err rc = ERR_OK;
    FILE *file = NULL;
    char *text = NULL;
    size_t room = 0;
    TRY(regular_stream(path, &file));
    if (file == NULL)
        return err_set(ERR_DATA, "%s: there is no such file", path);
    for (ssize_t bytes;
         rc == ERR_OK && (bytes = getline(&text, &room, file)) > 0;) {
        json_t *line = json_loadb(text, (size_t)bytes, 0, NULL);
        rc = take_line(history, line);
        json_decref(line);
    }
    free(text);
    fclose(file);
    return rc;
}

static enum err read_all(struct health_history *history, const char *path)
{
    enum err rc = ERR_OK;
    struct stat status;
    char pattern[FSIO_PATH_MAX];
    glob_t found = { 0 };
    if (stat(path, &status) == 0 && !S_ISDIR(status.st_mode))
        return read_file(history, path);
    TRY(fsio_path(pattern, "%s/*.jsonl", path));
    (void)glob(pattern, 0, NULL, &found);
    TRY_OUT(fsio_path(pattern, "%s/*.jsonl.old", path));
    (void)glob(pattern, GLOB_APPEND, NULL, &found);
    size_t files = found.gl_pathc;
    TRY_OUT(fsio_path(pattern, "%s/*", path));
    if (files == 0 && (stat(path, &status) != 0 ||
                       glob(pattern, GLOB_APPEND, NULL, &found) == 0))
        TRY_OUT(err_set(ERR_DATA,
                        "%s: no *.jsonl there; give the folder that is "
                        "TESSERA_EVENTS on the nodes, or one with their files",
                        path));
    if (files == 0)
        log_warn("%s is empty: sound nodes write nothing; `node-health --act "
                 "selftest` on one says whether it could",
                 path);
    for (size_t i = 0; i < files; i++)
        TRY_OUT(read_file(history, found.gl_pathv[i]));
out:
    globfree(&found);
    return rc;
}

/* --- counting --- */

static int by_code_and_job(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    int order = strcmp(x->code, y->code);
    return order != 0 ? order : (x->job > y->job) - (x->job < y->job);
}

static int by_node_and_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    int order = strcmp(x->host, y->host);
    return order != 0 ? order : (x->time > y->time) - (x->time < y->time);
}

static struct fault *fault_of(const struct health_history *history,
                              const char *code)
{
    for (size_t i = 0; i < history->fault_count; i++)
        if (strcmp(history->faults[i].code, code) == 0)
            return &history->faults[i];
    return NULL;
}

/* In the order by code: a row for each. */
static enum err make_faults(struct health_history *history)
{
    struct fault *fault = NULL;
    for (size_t i = 0; i < history->count; i++) {
        const struct event *event = &history->events[i];
        bool is_new = fault == NULL || strcmp(fault->code, event->code) != 0;
        if (event->code[0] == '\0')
            continue;
        if (is_new) {
            TRY(array_room(&history->faults, &history->fault_capacity,
                           history->fault_count + 1));
            fault = &history->faults[history->fault_count++];
            *fault = (struct fault){ .jobs = 0 };
            snprintf(fault->code, sizeof fault->code, "%s", event->code);
        }
        if (event->job > 0 && (is_new || event->job != event[-1].job))
            fault->jobs++;
        for (int c = 0; c < COLUMNS; c++)
            fault->counts[c] += health_listed(columns[c].words, event->word);
    }
    return ERR_OK;
}

/* In the order by node. */
static void count_nodes(struct health_history *history)
{
    const char *host = "";
    for (size_t i = 0; i < history->count; i++) {
        const struct event *event = &history->events[i];
        struct fault *fault = fault_of(history, event->code);
        if (fault == NULL)
            continue;
        if (strcmp(host, event->host) != 0)
            for (size_t f = 0; f < history->fault_count; f++)
                history->faults[f].last = NULL;
        host = event->host;
        fault->nodes += fault->last == NULL;
        fault->last = event;
    }
}

enum err health_history_create(const char *path, double since_s,
                               struct health_history **out)
{
    enum err rc = ERR_OK;
    struct health_history *history = NULL;
    TRY(new_zeroed(&history, 1));
    history->since_s = since_s;
    TRY_OUT(read_all(history, path));
    if (history->count > 1)
        qsort(history->events, history->count, sizeof *history->events,
              by_code_and_job);
    TRY_OUT(make_faults(history));
    if (history->count > 1)
        qsort(history->events, history->count, sizeof *history->events,
              by_node_and_time);
    count_nodes(history);
out:
    return new_or_none(rc, history, out, health_history_destroy);
}

void health_history_destroy(struct health_history *history)
{
    if (history == NULL)
        return;
    free(history->events);
    free(history->faults);
    free(history);
}

/* --- telling --- */

/* What the node did after the decision at `i`: of the next event that says more
 * than that it goes on, and how often the same was found again. */
static const struct event *next_of(const struct health_history *history,
                                   size_t i, int *again)
{
    const struct event *event = &history->events[i], *next = NULL;
    *again = 0;
    for (size_t k = i + 1; k < history->count &&
                           strcmp(history->events[k].host, event->host) == 0;
         k++) {
        const struct event *later = &history->events[k];
        if (next == NULL)
            next = later;
        *again += !later->decision && strcmp(later->word, "bad") == 0 &&
                  strcmp(later->code, event->code) == 0;
    }
    return next;
}

static void age_text(double seconds, char *text, size_t size)
{
    static const struct {
        double s;
        const char *name;
    } units[] = { { 86400, "d" }, { 3600, "h" }, { 60, "min" }, { 1, "s" } };
    int i = 0;
    while (i < 3 && seconds < 2 * units[i].s)
        i++;
    snprintf(text, size, "%.0f %s", seconds / units[i].s, units[i].name);
}

static void print_decision(const struct health_history *history, size_t i,
                           FILE *file)
{
    const struct event *event = &history->events[i];
    char when[32], age[32], what[128] = "nothing since";
    struct tm local;
    time_t time = (time_t)event->time;
    int again;
    const struct event *next = next_of(history, i, &again);
    strftime(when, sizeof when, "%F %T", localtime_r(&time, &local));
    if (next != NULL) {
        age_text(next->time - event->time, age, sizeof age);
        snprintf(what, sizeof what, "%s%s%s after %s",
                 strcmp(next->word, "ok") == 0 ? "sound again" : next->word,
                 next->code[0] != '\0' ? " " : "", next->code, age);
    }
    fprintf(file, "%s  %-12s %8ld  %-20s %-13s  %s", when, event->host,
            event->job, event->code, event->word, what);
    fprintf(file, again > 0 ? ", bad for the same %d times\n" : "\n", again);
}

static void print_people(const struct health_history *history, FILE *file)
{
    fprintf(file, "%zu events", history->count);
    fprintf(file,
            history->strange > 0 ? "; %zu lines are none, passed over\n" : "\n",
            history->strange);
    if (history->fault_count > 0) {
        fprintf(file, "\n%-20s", "code");
        for (int c = 0; c < COLUMNS; c++)
            fprintf(file, " %12s", columns[c].name);
        fprintf(file, " %8s %8s\n", "nodes", "jobs");
    }
    for (size_t i = 0; i < history->fault_count; i++) {
        const struct fault *fault = &history->faults[i];
        fprintf(file, "%-20s", fault->code);
        for (int c = 0; c < COLUMNS; c++)
            fprintf(file, " %12d", fault->counts[c]);
        fprintf(file, " %8d %8d\n", fault->nodes, fault->jobs);
    }
    bool first = true;
    for (size_t i = 0; i < history->count; i++) {
        if (!history->events[i].decision)
            continue;
        if (first)
            fprintf(file, "\n%-19s  %-12s %8s  %-20s %-13s  %s\n", "decided",
                    "node", "job", "code", "outcome", "and then");
        first = false;
        print_decision(history, i, file);
    }
}

static enum err print_json(const struct health_history *history, FILE *file)
{
    json_t *codes = json_array(), *decisions = json_array();
    for (size_t i = 0; i < history->fault_count; i++) {
        const struct fault *fault = &history->faults[i];
        json_t *row = json_pack("{s:s, s:i, s:i}", "code", fault->code, "nodes",
                                fault->nodes, "jobs", fault->jobs);
        for (int c = 0; c < COLUMNS; c++)
            json_object_set_new(row, columns[c].name,
                                json_integer(fault->counts[c]));
        json_array_append_new(codes, row);
    }
    for (size_t i = 0; i < history->count; i++) {
        const struct event *event = &history->events[i], *next;
        int again;
        if (!event->decision)
            continue;
        next = next_of(history, i, &again);
        json_t *row = json_pack("{s:f, s:s, s:I, s:s, s:s, s:i}", "time",
                                event->time, "host", event->host, "job",
                                (json_int_t)event->job, "code", event->code,
                                "outcome", event->word, "again", again);
        if (next != NULL)
            json_object_update_new(row, json_pack("{s:s, s:f}", "next",
                                                  next->word, "next_s",
                                                  next->time - event->time));
        json_array_append_new(decisions, row);
    }
    json_t *report = json_pack(
        "{s:s, s:f, s:I, s:I, s:o, s:o}", "schema", "tessera-report/1", "since",
        history->since_s, "events", (json_int_t)history->count, "strange",
        (json_int_t)history->strange, "codes", codes, "decisions", decisions);
    bool good = report != NULL && json_dumpf(report, file, JSON_COMPACT) == 0 &&
                fputc('\n', file) != EOF;
    json_decref(report);
    return good ? ERR_OK : err_set(ERR_IO, "the report is not written");
}

enum err health_history_print(const struct health_history *history, bool json,
                              FILE *file)
{
    if (json)
        return print_json(history, file);
    print_people(history, file);
    return ERR_OK;
}

enum err health_history_age(const char *text, double *seconds)
{
    static const struct {
        char unit;
        double s;
    } units[] = { { 'd', 86400 }, { 'h', 3600 }, { 'm', 60 } };
    char *end;
    double number = strtod(text, &end);
    for (int i = 0; i < 3; i++)
        if (end > text && number > 0 && number < 1e6 &&
            end[0] == units[i].unit && end[1] == '\0') {
            *seconds = number * units[i].s;
            return ERR_OK;
        }
    return err_set(ERR_USAGE,
                   "--since %s: give a number and d, h or m, as in 30d", text);
}
