/* The ledger of a run: its attempts, commits and what happened to nodes.
 *
 * Two programs write it (src/job/ledger.h): the training, whose lines are signs of
 * life of the attempt that they name, and the launch script, whose lines tell what
 * it decided between attempts and may name one that never began. A line that
 * neither is known for is an event to be shown by its name, so that a newer
 * program's ledger can be read.
 *
 * The same end may be told twice, by the training when it stops and by the launch
 * script that finds it dead; the training's own word counts. Without either the
 * attempt has ended with its last sign of life. */
#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/report/run_history_impl.h"
#include "src/base/array.h"
#include "src/base/clean.h"
#include "src/train/settings/train_settings.h"

static double ledger_number(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static const char *text(const json_t *line, const char *key)
{
    return json_string_value(json_object_get(line, key));
}

/* `otherwise` where there is no such number. */
static int64_t ledger_whole(const json_t *line, const char *key, double max,
                            int64_t otherwise)
{
    double value = ledger_number(line, key);
    return value >= 0 && value <= max ? (int64_t)value : otherwise;
}

static void take_start(struct run_attempt *attempt, struct run_clock *clock,
                       struct run_pause *pause, const json_t *line,
                       int64_t time_us)
{
    const json_t *hosts = json_object_get(line, "hosts");
    size_t nodes = json_array_size(hosts);
    if (attempt->start_us > 0)
        return; /* told twice: the first counts */
    attempt->start_us = time_us;
    clock->before = *pause;
    *pause = (struct run_pause){ 0 };
    attempt->ranks = (int)ledger_whole(line, "ranks", 1e7, 1);
    attempt->nodes = nodes > 0 ? (int)nodes : 1;
    attempt->job = (long)ledger_whole(line, "job", 1e15, 0);
    run_reader_text(attempt->host, sizeof attempt->host,
                    json_string_value(json_array_get(hosts, 0)));
}

static void take_hardware(struct run_attempt *attempt, const json_t *line)
{
    const char *devices = text(line, "devices");
    attempt->device = devices != NULL && devices[0] != '\0';
    run_reader_text(attempt->devices, sizeof attempt->devices, devices);
    attempt->threads = (int)ledger_whole(line, "threads", 1e5, 1);
    attempt->memory_planned = ledger_whole(line, "memory_planned", 1e18, 0);
    if (attempt->last_step < 0)
        attempt->from_step = ledger_whole(line, "step", RUN_STEP_MAX, -1);
}

/* When the list is full every second one goes, and from then on every second one
 * comes in: what is kept is spread evenly over the run, however long it is. The
 * newest is always there, in the last place, until the next takes it. */
static enum err keep_commit(struct run_history *history,
                            const struct run_commit *commit)
{
    struct run_reader *reader = history->reader;
    if (reader->commits_seen++ % reader->commit_stride != 0 &&
        history->commit_count > 0) {
        history->commits[history->commit_count - 1] = *commit;
        return ERR_OK;
    }
    if (history->commit_count == RUN_COMMITS_MAX) {
        size_t kept = 0;
        for (size_t i = 0; i < RUN_COMMITS_MAX; i += 2)
            history->commits[kept++] = history->commits[i];
        history->commit_count = kept;
        reader->commit_stride *= 2;
    }
    assert(history->commit_count < RUN_COMMITS_MAX);
    TRY(array_room(&history->commits, &reader->rooms.commits,
                   history->commit_count + 1));
    history->commits[history->commit_count++] = *commit;
    return ERR_OK;
}

static enum err take_commit(struct run_history *history, int attempt,
                            const json_t *line, int64_t time_us, bool local)
{
    struct run_attempt *of = &history->attempts[attempt];
    struct run_clock *clock = &history->reader->clocks[attempt];
    struct run_commit commit = {
        .step = ledger_whole(line, "step", RUN_STEP_MAX, 0),
        .time_us = time_us,
        .bytes = ledger_whole(line, "bytes", 1e18, 0),
        .seconds =
            fmax(0, ledger_number(line, "seconds")), /* fmax: 0 for NaN */
        .stage_s = fmax(0, ledger_number(line, "stage_s")),
        .attempt = attempt,
        .local = local,
    };
    /* without a copy in memory training waits for all of the save */
    commit.stall_us =
        run_reader_us(commit.stage_s > 0 ? commit.stage_s : commit.seconds);
    of->checkpoint_us = run_reader_add(of->checkpoint_us, commit.stall_us);
    run_account_stall(&clock->saves, commit.step, commit.stall_us);
    if (!local) {
        history->commit_total++;
        clock->commit_step = commit.step;
        clock->commit_rest_us =
            commit.stage_s > 0 ? run_reader_us(commit.seconds) : 0;
    }
    return keep_commit(history, &commit);
}

/* Commands of hooks.on_* that did not go well. */
static void hooks_text(const json_t *line, char *out, size_t size)
{
    const char *name;
    json_t *count;
    size_t used = 0;
    out[0] = '\0';
    json_object_foreach(json_object_get(line, "hooks"), name, count)
    {
        if (used >= size)
            break;
        used += (size_t)snprintf(
            out + used, size - used,
            "%son_%s: of %lld calls %lld failed, %lld took too long, %lld were "
            "left out",
            used > 0 ? "; " : "", name,
            (long long)ledger_whole(count, "called", 1e18, 0),
            (long long)ledger_whole(count, "failed", 1e18, 0),
            (long long)ledger_whole(count, "ended", 1e18, 0),
            (long long)ledger_whole(count, "replaced", 1e18, 0));
    }
}

/* Settings that an attempt has changed: key, old and new value. */
static void changes_text(const json_t *line, char *out, size_t size)
{
    const char *key;
    json_t *values;
    char text[4 * RUN_TEXT_BYTES] = "";
    json_object_foreach(json_object_get(line, "changed"), key, values)
    {
        const char *was = json_string_value(json_array_get(values, 0));
        const char *is = json_string_value(json_array_get(values, 1));
        if (was == NULL || is == NULL)
            continue;
        if (train_settings_secret(key, was) || train_settings_secret(key, is))
            was = is = "(not shown)";
        clean_join(text, sizeof text, ", ", "%s %s -> %s", key,
                   was[0] != '\0' ? was : "empty",
                   is[0] != '\0' ? is : "empty");
    }
    if (json_object_get(line, "eval_set") != NULL)
        clean_join(text, sizeof text, ", ",
                   "data.eval is another set of the same name");
    run_reader_text(out, size, text);
}

/* The names of a list's members, of plug-ins or of the streams of data. */
static void names_text(const json_t *list, char *out, size_t size)
{
    size_t index;
    json_t *member;
    char text[4 * RUN_TEXT_BYTES] = "";
    json_array_foreach(list, index, member)
    {
        const char *name = json_string_value(json_object_get(member, "name"));
        if (name != NULL)
            clean_join(text, sizeof text, ", ", "%s",
                       name[0] != '\0' ? name : "data.train");
    }
    run_reader_text(out, size, text);
}

/* An update that was left out, and a rollback. */
static void intervention_text(const json_t *line, char *out, size_t size)
{
    char back[96] = "left out: ", plain[RUN_TEXT_BYTES - 96 - 32];
    run_reader_text(plain, sizeof plain, text(line, "reason"));
    if (json_object_get(line, "to") != NULL)
        snprintf(back, sizeof back,
                 "back from step %lld to %lld, %lld batches left out: ",
                 (long long)ledger_whole(line, "from", RUN_STEP_MAX, -1),
                 (long long)ledger_whole(line, "to", RUN_STEP_MAX, -1),
                 (long long)ledger_whole(line, "batches", RUN_STEP_MAX, -1));
    snprintf(out, size, "%sstep %lld: %s", back,
             (long long)ledger_whole(line, "step", RUN_STEP_MAX, -1), plain);
}

/* Who holds the run up, and what is done about it. */
static void slow_text(const json_t *line, char *out, size_t size)
{
    char kind[32], action[32];
    const char *done = text(line, "action");
    bool over = json_is_true(json_object_get(line, "over"));
    run_reader_text(kind, sizeof kind, text(line, "kind"));
    run_reader_text(action, sizeof action, done != NULL ? done : "warn");
    snprintf(out, size, "%s, rank %lld, %s%.2f since step %lld: %s", kind,
             (long long)ledger_whole(line, "rank", 1e9, -1),
             strcmp(kind, "straggler") == 0 ? "work / median " : "",
             ledger_number(line, "factor"),
             (long long)ledger_whole(line, "since", RUN_STEP_MAX, -1),
             over ? "over" : action);
}

static enum err keep_event(struct run_history *history,
                           enum run_event_kind kind, const char *name,
                           const json_t *line, int64_t time_us)
{
    struct run_reader *reader = history->reader;
    struct run_event event = {
        .kind = kind,
        .time_us = time_us,
        .attempt = (int)ledger_whole(line, "attempt", RUN_ATTEMPTS_MAX, 0),
    };
    const char *node = text(line, kind == RUN_EVENT_CHECK ? "nodes" : "node");
    const char *why = text(line, "reason");
    const json_t *parts = json_object_get(line, "parts");
    if (history->event_count == RUN_EVENTS_MAX) {
        history->events_left_out++;
        return ERR_OK;
    }
    run_reader_text(event.name, sizeof event.name,
                    kind == RUN_EVENT_EXCLUDE   ? "left out"
                    : kind == RUN_EVENT_WARNING ? "warning"
                                                : name);
    run_reader_text(event.node, sizeof event.node, node);
    if (why == NULL)
        why = text(line, "path"); /* of weights */
    if (strcmp(name, "hooks") == 0)
        hooks_text(line, event.text, sizeof event.text);
    else if (strcmp(name, "settings") == 0)
        changes_text(line, event.text, sizeof event.text);
    else if (strcmp(name, "plugins") == 0)
        names_text(json_object_get(line, "plugins"), event.text,
                   sizeof event.text);
    else if (strcmp(name, "data") == 0)
        names_text(
            json_object_get(json_array_get(parts, json_array_size(parts) - 1),
                            "streams"),
            event.text, sizeof event.text);
    else if (strcmp(name, "rollback") == 0 || strcmp(name, "skip") == 0)
        intervention_text(line, event.text, sizeof event.text);
    else if (strcmp(name, "slow") == 0)
        slow_text(line, event.text, sizeof event.text);
    else
        run_reader_text(event.text, sizeof event.text, why);
    TRY(array_room(&history->events, &reader->rooms.events,
                   history->event_count + 1));
    history->events[history->event_count++] = event;
    return ERR_OK;
}

static enum run_event_kind kind_of(const char *event)
{
    if (strcmp(event, "exclude") == 0)
        return RUN_EVENT_EXCLUDE;
    if (strcmp(event, "node-warning") == 0)
        return RUN_EVENT_WARNING;
    if (strcmp(event, "check") == 0)
        return RUN_EVENT_CHECK;
    if (strcmp(event, "restart") == 0 || strcmp(event, "requeue") == 0)
        return RUN_EVENT_RESTART;
    if (strcmp(event, "give-up") == 0)
        return RUN_EVENT_GIVE_UP;
    if (strcmp(event, "save-failed") == 0)
        return RUN_EVENT_SAVE_FAILED;
    return RUN_EVENT_OTHER;
}

/* By the training program: "by" names the launch script. */
static void take_stop(struct run_attempt *attempt, struct run_clock *clock,
                      const json_t *line, int64_t time_us)
{
    attempt->stop_code = (int)ledger_whole(line, "code", 255, -1);
    if (json_object_get(line, "by") != NULL && attempt->ended)
        return;
    attempt->code = (int)ledger_whole(line, "code", 255, -1);
    run_reader_text(attempt->reason, sizeof attempt->reason,
                    text(line, "reason"));
    if (json_object_get(line, "by") != NULL)
        return;
    attempt->ended = true;
    clock->stop_us = time_us;
}

/* For an attempt that had told no end. */
static void take_decision(struct run_attempt *attempt, const json_t *line)
{
    if (attempt->ended || attempt->start_us == 0)
        return;
    attempt->code = (int)ledger_whole(line, "code", 255, -1);
    run_reader_text(attempt->reason, sizeof attempt->reason,
                    text(line, "reason"));
}

/* A decision of the launch script's, by the clock. */
static void take_pause(struct run_pause *pause, enum run_event_kind kind,
                       const json_t *line, int64_t time_us)
{
    int64_t seconds_us = run_reader_us(ledger_number(line, "seconds"));
    if (kind == RUN_EVENT_RESTART)
        *pause = (struct run_pause){
            .decided_us = time_us,
            .requeued = strcmp(text(line, "event"), "requeue") == 0,
        };
    if (kind == RUN_EVENT_CHECK && pause->begin_us == 0)
        pause->begin_us = time_us - seconds_us;
    if (kind == RUN_EVENT_CHECK)
        pause->checks_us = run_reader_add(pause->checks_us, seconds_us);
}

static enum err take_event(struct run_history *history, int attempt,
                           const json_t *line, const char *event,
                           int64_t time_us)
{
    struct run_attempt *of = &history->attempts[attempt];
    struct run_clock *clock = &history->reader->clocks[attempt];
    run_reader_heard(history, attempt, time_us);
    if (strcmp(event, "start") == 0)
        take_start(of, clock, &history->reader->pause, line, time_us);
    else if (strcmp(event, "hardware") == 0)
        take_hardware(of, line);
    else if (strcmp(event, "memory") == 0)
        of->memory_peak = ledger_whole(line, "peak", 1e18, 0);
    else if (strcmp(event, "commit") == 0)
        return take_commit(history, attempt, line, time_us, false);
    else if (strcmp(event, "commit-local") == 0)
        return take_commit(history, attempt, line, time_us, true);
    else if (strcmp(event, "stop") == 0)
        take_stop(of, clock, line, time_us);
    else
        return keep_event(history, kind_of(event), event, line, time_us);
    return ERR_OK;
}

/* What the launch script tells between attempts is no sign of life of one, and
 * the attempt that it names may never come to be. */
static bool is_decision(const char *event)
{
    enum run_event_kind kind = kind_of(event);
    return kind == RUN_EVENT_EXCLUDE || kind == RUN_EVENT_WARNING ||
           kind == RUN_EVENT_CHECK || kind == RUN_EVENT_RESTART ||
           kind == RUN_EVENT_GIVE_UP;
}

enum err run_ledger_line(void *arg, const char *line, size_t bytes)
{
    enum err rc = ERR_OK;
    struct run_history *history = arg;
    int attempt = -1;
    json_t *object = json_loadb(line, bytes, 0, NULL);
    const char *event = text(object, "event");
    int64_t time_us = run_reader_us(ledger_number(object, "time"));
    int64_t known = ledger_whole(object, "attempt", RUN_ATTEMPTS_MAX, 0);
    if (event == NULL || time_us == 0) {
        history->skipped_lines++;
        goto out;
    }
    if (is_decision(event)) {
        int index = history->reader->by_number[known];
        enum run_event_kind kind = kind_of(event);
        take_pause(&history->reader->pause, kind, object, time_us);
        if (index > 0 &&
            (kind == RUN_EVENT_RESTART || kind == RUN_EVENT_GIVE_UP))
            take_decision(&history->attempts[index - 1], object);
        TRY_OUT(keep_event(history, kind, event, object, time_us));
        goto out;
    }
    if (json_object_get(object, "by") != NULL &&
        history->reader->by_number[known] == 0)
        goto out; /* the end of a job that started nothing */
    TRY_OUT(run_reader_attempt(history, ledger_number(object, "attempt"),
                               &attempt));
    if (attempt < 0)
        history->skipped_lines++;
    else
        rc = take_event(history, attempt, object, event, time_us);
out:
    json_decref(object);
    return rc;
}
