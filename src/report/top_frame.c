/* Draws one picture of a run in letters.
 *
 * Lines come in the order of what one looks for: does it run, how far is it, is
 * the loss all right, is it fast, is it saved, where did the time go, what has
 * happened to nodes. A terminal that is too low loses them from the end
 * (rows_left); one that is too narrow has texts folded at blanks and curves cut at
 * their old end, since the newest value is what is watched.
 *
 * A curve is one row of eight heights, by means of as many buckets as there are
 * columns. It ranges from its least to its largest mean: what it shows is a
 * direction, and the figure before it the height. */
#include "src/report/top_frame.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/units.h"

#define LINE_BYTES 512
#define LABEL 14 /* columns of what a line is about: "tracking-lost" */
#define CURVE_MAX 240
#define EVENTS_MAX 5
#define LINES_MAX 3 /* of one text */
#define RECENT 20   /* steps that the rates are means of */

struct frame {
    const struct run_history *run;
    const struct top_frame_style *style;
    FILE *out;
    int rows_left;
    struct run_bucket *buckets; /* of a curve */
    size_t bucket_count;
};

void top_frame_plain(const char *text, char *out, size_t size)
{
    assert(size > 0);
    size_t used = 0;
    for (const unsigned char *c = (const unsigned char *)text;
         *c != '\0' && used + 1 < size; c++) {
        if (*c == '\n' || *c == '\t')
            out[used++] = ' ';
        else if (*c >= 0x20 && *c < 0x7f)
            out[used++] = (char)*c;
        else if ((*c & 0xc0) != 0x80) /* once for a character */
            out[used++] = '?';
    }
    assert(used < size);
    out[used] = '\0';
}

/* How much of the text goes into `width` columns: to its last blank. */
static int frame_fitting(const char *text, int width)
{
    int length = (int)strlen(text);
    if (length <= width)
        return length;
    for (int at = width; at > width / 2; at--)
        if (text[at] == ' ')
            return at;
    return width;
}

/* Its label, and text of up to LINES_MAX lines. */
static void frame_line(struct frame *frame, const char *label,
                       const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void frame_line(struct frame *frame, const char *label,
                       const char *format, ...)
{
    char text[LINE_BYTES], safe[LINE_BYTES], about[LABEL];
    int width = frame->style->columns - LABEL - 1;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    top_frame_plain(text, safe, sizeof safe);
    top_frame_plain(label, about, sizeof about);
    const char *rest = safe;
    for (int i = 0; i < LINES_MAX && (i == 0 || *rest != '\0'); i++) {
        int count = width > 0 ? frame_fitting(rest, width) : 0;
        if (frame->rows_left-- <= 0)
            return;
        fprintf(frame->out, "%s%-*s%s%.*s\n",
                frame->style->ansi ? "\x1b[36m" : "", LABEL,
                i == 0 ? about : "", frame->style->ansi ? "\x1b[0m" : "", count,
                rest);
        rest += count;
        rest += strspn(rest, " ");
    }
}

/* The mean of the newest steps; NaN: not told. */
static double recent_mean(const struct run_history *run, enum run_value value)
{
    double sum = 0;
    int count = 0;
    for (size_t i = run->recent_count; i-- > 0 && count < RECENT;)
        if (!isnan(run->recent[i].of[value])) {
            sum += run->recent[i].of[value];
            count++;
        }
    return count > 0 ? sum / count : NAN;
}

/* --- curves ------------------------------------------------------------------ */

static void put_level(struct frame *frame, double share)
{
    static const char *const blocks[] = { "\u2581", "\u2582", "\u2583",
                                          "\u2584", "\u2585", "\u2586",
                                          "\u2587", "\u2588" };
    static const char ascii[] = "_.-:=+*#";
    int level = (int)(share * 7.999);
    level = level < 0 ? 0 : level > 7 ? 7 : level;
    if (frame->style->blocks)
        fputs(blocks[level], frame->out);
    else
        fputc(ascii[level], frame->out);
}

/* From the least to the largest mean; its newest end is at the right. */
static void frame_curve(struct frame *frame, const char *label, const char *now,
                        enum run_value value)
{
    double low = INFINITY, high = -INFINITY;
    const int figure = 12;
    int width = frame->style->columns - LABEL - figure - 1;
    if (frame->rows_left-- <= 0)
        return;
    for (size_t i = 0; i < frame->bucket_count; i++) {
        double mean = run_stat_mean(&frame->buckets[i].of[value]);
        low = fmin(low, mean);
        high = fmax(high, mean);
    }
    fprintf(frame->out, "%s%-*s%s%-*.*s", frame->style->ansi ? "\x1b[36m" : "",
            LABEL, label, frame->style->ansi ? "\x1b[0m" : "", figure,
            figure - 1, now);
    size_t first = frame->bucket_count > (size_t)(width > 0 ? width : 0)
                       ? frame->bucket_count - (size_t)(width > 0 ? width : 0)
                       : 0;
    for (size_t i = first; i < frame->bucket_count; i++) {
        double mean = run_stat_mean(&frame->buckets[i].of[value]);
        if (isnan(mean))
            fputc(' ', frame->out);
        else
            put_level(frame, high > low ? (mean - low) / (high - low) : 0.5);
    }
    fputc('\n', frame->out);
}

static void draw_curves(struct frame *frame)
{
    char now[64];
    const struct run_history *run = frame->run;
    const struct run_point *last = &run->recent[run->recent_count - 1];
    snprintf(now, sizeof now, "%.4f", last->of[RUN_LOSS]);
    frame_curve(frame, "loss", now, RUN_LOSS);
    frame_curve(frame, "tokens/s",
                UNITS_COUNT(recent_mean(run, RUN_TOKENS_PER_S)),
                RUN_TOKENS_PER_S);
    double mfu = recent_mean(run, RUN_MFU);
    if (!isnan(mfu)) {
        snprintf(now, sizeof now, "%.1f %%", 100 * mfu);
        frame_curve(frame, "MFU", now, RUN_MFU);
    }
    snprintf(now, sizeof now, "%.4g", last->of[RUN_GRAD_NORM]);
    frame_curve(frame, "grad norm", now, RUN_GRAD_NORM);
}

/* --- lines ------------------------------------------------------------------- */

static void draw_title(struct frame *frame)
{
    const struct run_history *run = frame->run;
    char name[96], heard[64] = "", state[192];
    double silent_s = frame->style->now_s - (double)run->end_us / 1e6;
    top_frame_plain(run->name, name, sizeof name);
    if (run->attempt_count == 0) {
        snprintf(state, sizeof state, "nothing has started");
    } else {
        const struct run_attempt *last = &run->attempts[run->attempt_count - 1];
        if (run->end_us > 0)
            snprintf(heard, sizeof heard, ", %s %s ago",
                     last->ended ? "ended" : "heard of",
                     UNITS_SECONDS(fmax(0, silent_s)));
        snprintf(state, sizeof state, "attempt %d, %d rank%s on %d node%s%s",
                 last->number, last->ranks, last->ranks == 1 ? "" : "s",
                 last->nodes, last->nodes == 1 ? "" : "s", heard);
    }
    int width = frame->style->columns - 1 - (int)strlen(name) - 2;
    frame->rows_left--;
    fprintf(frame->out, "%s%.*s%s  %.*s\n", frame->style->ansi ? "\x1b[1m" : "",
            frame->style->columns - 1, name,
            frame->style->ansi ? "\x1b[0m" : "", width > 0 ? width : 0, state);
}

/* The last attempt, if it has ended. */
static const struct run_attempt *ended(const struct run_history *run)
{
    const struct run_attempt *last =
        run->attempt_count > 0 ? &run->attempts[run->attempt_count - 1] : NULL;
    return last != NULL && (last->ended || last->code >= 0) ? last : NULL;
}

static void draw_end(struct frame *frame)
{
    const struct run_attempt *last = ended(frame->run);
    if (last != NULL)
        frame_line(frame, "ended", "code %d: %s", last->code,
                   last->reason[0] != '\0' ? last->reason : "told no reason");
}

/* What is left of the steps, at the pace of the newest ones. A
 * limit in another unit than steps or tokens cannot be told from the files, and
 * there is no bar then. */
static void draw_progress(struct frame *frame)
{
    const struct run_history *run = frame->run;
    char eta[48] = "ETA ?, ";
    int64_t most = run_history_steps_max(run), done = run->last_step;
    double step_ms = recent_mean(run, RUN_STEP_MS);
    const char *tokens = UNITS_COUNT(run->tokens);
    if (most < done) {
        frame_line(frame, "step", "%lld, %s tokens", (long long)done, tokens);
        return;
    }
    double share = most > 0 ? (double)done / (double)most : 1;
    if (ended(run) != NULL) {
        eta[0] = '\0';
    } else if (!isnan(step_ms)) {
        snprintf(eta, sizeof eta, "ETA %s, ",
                 UNITS_SECONDS((double)(most - done) * step_ms / 1e3));
    }
    char bar[21] = "....................";
    memset(bar, '#', (size_t)(share * 20));
    frame_line(frame, "step", "%lld/%lld [%s] %.1f %%, %s%s tokens",
               (long long)done, (long long)most, bar, 100 * share, eta, tokens);
}

static void draw_ranks(struct frame *frame)
{
    const struct run_history *run = frame->run;
    double low = recent_mean(run, RUN_STEP_MS_MIN);
    double high = recent_mean(run, RUN_STEP_MS_MAX);
    double loader = recent_mean(run, RUN_LOADER_MS);
    double work = recent_mean(run, RUN_WORK_MS_MAX);
    char waits[64] = "";
    if (!isnan(loader))
        snprintf(waits, sizeof waits, ", %.1f ms of it for samples", loader);
    if (isnan(low) || isnan(high))
        frame_line(frame, "step time", "%.1f ms%s",
                   recent_mean(run, RUN_STEP_MS), waits);
    else
        frame_line(frame, "step time",
                   "%.1f to %.1f ms by the ranks' clocks, waiting for others "
                   "included%s",
                   low, high, waits);
    if (!isnan(work))
        frame_line(frame, "ranks",
                   "own work %.1f ms (median), %.1f ms (rank %d); longest wait "
                   "for others %.1f ms (rank %d), for samples %.1f ms (rank "
                   "%d)",
                   recent_mean(run, RUN_WORK_MS), work,
                   run_history_who(run, RUN_WHO_WORKS),
                   recent_mean(run, RUN_WAIT_MS_MAX),
                   run_history_who(run, RUN_WHO_WAITS), loader,
                   run_history_who(run, RUN_WHO_LOADS));
}

static void draw_saved(struct frame *frame)
{
    const struct run_history *run = frame->run;
    const char *name;
    json_t *set;
    if (run->eval_count > 0) {
        const struct run_eval *eval = &run->evals[run->eval_count - 1];
        frame_line(frame, "eval", "%.4f at step %lld", eval->loss,
                   (long long)eval->step);
    }
    json_object_foreach(run->sets, name, set)
        frame_line(frame, "eval", "%.4f of %.64s",
                   json_number_value(json_object_get(set, "loss")), name);
    if (run->commit_count == 0) {
        frame_line(frame, "commit", "none yet");
        return;
    }
    const struct run_commit *commit = &run->commits[run->commit_count - 1];
    double ago_s = frame->style->now_s - (double)commit->time_us / 1e6;
    frame_line(frame, "commit", "step %lld%s, %s ago, %s, training waited %s",
               (long long)commit->step, commit->local ? " (on the nodes)" : "",
               UNITS_SECONDS(fmax(0, ago_s)), UNITS_BYTES(commit->bytes),
               UNITS_SECONDS((double)commit->stall_us / 1e6));
}

/* Goodput, and what else took a thousandth of the time or more. */
static void draw_time(struct frame *frame)
{
    const struct run_history *run = frame->run;
    char text[LINE_BYTES];
    double wall_us = (double)(run->end_us - run->begin_us);
    size_t used = 0;
    if (wall_us <= 0)
        return;
    used += (size_t)snprintf(text, sizeof text, "%.1f %%",
                             100 * run_history_goodput(run));
    for (int k = 1; k < RUN_TIMES && used < sizeof text; k++)
        if ((double)run->time_us[k] >= 0.001 * wall_us)
            used += (size_t)snprintf(
                text + used, sizeof text - used, "%s%s %.1f %%",
                strchr(text, ';') == NULL ? "; " : ", ", run_time_names[k],
                100 * (double)run->time_us[k] / wall_us);
    frame_line(frame, "goodput", "%s", text);
    if (run->replayed_steps > 0)
        frame_line(frame, "replayed", "%lld steps in %zu attempts",
                   (long long)run->replayed_steps, run->attempt_count);
}

/* The newest events of nodes and attempts. */
static void draw_events(struct frame *frame)
{
    const struct run_history *run = frame->run;
    int out = 0, shown = 0;
    for (size_t i = 0; i < run->event_count; i++)
        out += run->events[i].kind == RUN_EVENT_EXCLUDE;
    frame_line(frame, "nodes", "%d left out", out);
    for (size_t i = run->event_count; i-- > 0 && shown < EVENTS_MAX;) {
        const struct run_event *event = &run->events[i];
        if (event->kind == RUN_EVENT_CHECK)
            continue;
        frame_line(frame, event->name, "%s%s%s", event->node,
                   event->node[0] != '\0' ? ": " : "", event->text);
        shown++;
    }
}

enum err top_frame_draw(const struct run_history *run,
                        const struct top_frame_style *style, FILE *out)
{
    assert(style->columns > 0 && style->rows > 0);
    struct frame frame = {
        .run = run, .style = style, .out = out, .rows_left = style->rows - 1
    };
    int width = style->columns - LABEL - 12 - 1;
    TRY(run_history_buckets(run,
                            (size_t)(width < 8           ? 8
                                     : width > CURVE_MAX ? CURVE_MAX
                                                         : width),
                            &frame.buckets, &frame.bucket_count));
    draw_title(&frame);
    if (run->recent_count > 0) {
        draw_progress(&frame);
        draw_curves(&frame);
        draw_ranks(&frame);
    } else {
        frame_line(&frame, "step", "none yet");
    }
    draw_end(&frame);
    draw_saved(&frame);
    draw_time(&frame);
    draw_events(&frame);
    free(frame.buckets);
    return ERR_OK;
}
