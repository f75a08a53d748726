/* The table of a profile: parts of a step, then kinds of work, then shapes.
 *
 * The first two say the same time twice, once by where in a step it went and once
 * by what was done: parts are frames that lie side by side, and what is between
 * them has a line; kinds are spans' own times, wherever they were. Each adds up to
 * the step. Times are of a step and the mean of ranks, while rates are amounts by
 * the time that they took, so they need no mean. */
#include "src/train/profile/profile.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"

#define LINE_BYTES 160
/* Kinds below this share of a step are one line together. */
#define SHARE_MIN 0.001

struct table {
    const struct profile_sums *sums;
    struct buffer *out;
    double steps; /* times ranks */
    double step_ns;
};

/* A line, cut to LINE_BYTES, without blanks at its end. */
__attribute__((format(printf, 2, 3))) static enum err
add(const struct table *table, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list list;
    va_start(list, format);
    int bytes = vsnprintf(line, sizeof line - 1, format, list);
    va_end(list);
    if (bytes >= (int)sizeof line - 1)
        bytes = (int)sizeof line - 2;
    while (bytes > 0 && line[bytes - 1] == ' ')
        bytes--;
    line[bytes++] = '\n';
    return buffer_add(table->out, line, (size_t)bytes);
}

static double ms(double ns)
{
    return ns * 1e-6;
}

/* 12.3, but 1234: of an amount per time, empty where there is none. */
static void rate(char text[16], double per_ns)
{
    text[0] = '\0';
    if (per_ns > 0.0)
        snprintf(text, 16, per_ns < 99.95 ? "%.1f" : "%.0f", per_ns);
}

static enum err add_row(const struct table *table, const char *name,
                        const struct profile_row *row)
{
    char gflops[16] = "", gbytes[16] = "", spread[48] = "";
    double steps = (double)(table->sums->last - table->sums->first + 1);
    double ns = (double)(row->ns > 0 ? row->ns : 1);
    rate(gflops, (double)row->mflop * 1e6 / ns);
    rate(gbytes, (double)row->kib * 1024.0 / ns);
    if (table->sums->ranks > 1)
        snprintf(spread, sizeof spread, "%.2f to %.2f",
                 ms((double)row->ns_min / steps),
                 ms((double)row->ns_max / steps));
    return add(
        table, "  %-24s %8.1f %10.2f %6.1f %%  %8s %8s  %s", name,
        (double)row->count / table->steps, ms((double)row->ns / table->steps),
        100.0 * (double)row->ns / table->step_ns, gflops, gbytes, spread);
}

static enum err add_head(const struct table *table, const char *what)
{
    return add(table, "  %-24s %8s %10s %8s  %8s %8s  %s", what, "calls", "ms",
               "share", "GFLOP/s", "GB/s",
               table->sums->ranks > 1 ? "ms of the ranks" : "");
}

static enum err add_rest(const struct table *table, const char *name,
                         int64_t ns)
{
    return add(table, "  %-24s %8s %10.2f %6.1f %%", name, "",
               ms((double)ns / table->steps),
               100.0 * (double)ns / table->step_ns);
}

/* Frames that hold work side by side; a step's blocks are in its microbatches.
 */
static bool is_part(const struct table *table, int kind)
{
    enum timeline_place place = table->sums->kinds[kind].place;
    return table->sums->host[kind].count > 0 && kind != TIMELINE_STEP &&
           kind != TIMELINE_BLOCK &&
           (place == TIMELINE_FRAME || place == TIMELINE_ABSORBS);
}

struct entry {
    const char *name;
    const struct profile_row *row;
};

static int longest_first(const void *a, const void *b)
{
    int64_t x = ((const struct entry *)a)->row->ns;
    int64_t y = ((const struct entry *)b)->row->ns;
    return (x < y) - (x > y);
}

/* In falling order, those that are nothing together. */
static enum err add_entries(const struct table *table, struct entry *list,
                            int count)
{
    struct profile_row others = { 0 };
    int left_out = 0;
    char name[32];
    qsort(list, (size_t)count, sizeof list[0], longest_first);
    for (int i = 0; i < count; i++) {
        const struct profile_row *row = list[i].row;
        if ((double)row->ns >= SHARE_MIN * table->step_ns) {
            TRY(add_row(table, list[i].name, row));
            continue;
        }
        left_out++;
        others.count += row->count;
        others.ns += row->ns;
        others.ns_min += row->ns_min;
        others.ns_max += row->ns_max;
    }
    if (left_out == 0)
        return ERR_OK;
    snprintf(name, sizeof name, "%d others", left_out);
    return add_row(table, name, &others);
}

static enum err add_parts(const struct table *table)
{
    struct entry list[TIMELINE_KINDS_MAX];
    int count = 0;
    int64_t rest = profile_sums_steps(table->sums);
    for (int k = 0; k < table->sums->kind_count; k++)
        if (is_part(table, k))
            list[count++] = (struct entry){ table->sums->kinds[k].name,
                                            &table->sums->host[k] };
    TRY(add_head(table, "part of a step"));
    TRY(add_entries(table, list, count));
    for (int i = 0; i < count; i++)
        rest -= list[i].row->ns;
    return add_rest(table, "between these", rest);
}

static enum err add_kinds(const struct table *table, const char *what,
                          const struct profile_row *rows)
{
    struct entry list[TIMELINE_KINDS_MAX];
    int count = 0;
    for (int k = 0; k < table->sums->kind_count; k++)
        if (table->sums->kinds[k].place != TIMELINE_FRAME && rows[k].count > 0)
            list[count++] =
                (struct entry){ table->sums->kinds[k].name, &rows[k] };
    TRY(add_head(table, what));
    return add_entries(table, list, count);
}

/* "gemm NT m 512 n 128 k 128" */
static void name_shape(const struct profile_shape *shape, char text[80])
{
    snprintf(text, 80, "%s", shape->name);
    const char *names = shape->detail.dims;
    for (int i = 0; names != NULL && *names != '\0' && i < TIMELINE_DIMS; i++) {
        size_t bytes = strcspn(names, " ");
        clean_join(text, 80, " ", "%.*s %" PRId64, (int)bytes, names,
                   shape->detail.dim[i]);
        names += bytes + strspn(names + bytes, " ");
    }
}

static enum err add_shapes(const struct table *table,
                           const struct profile_shape *shapes, int count)
{
    double steps = (double)(table->sums->last - table->sums->first + 1);
    double step_ns = table->step_ns / table->sums->ranks;
    if (count == 0)
        return ERR_OK;
    TRY(add(table, "  %-56s %8s %10s %8s  %8s", "ops by shape, of rank 0",
            "calls", "ms", "share", "GFLOP/s"));
    for (int i = 0; i < count; i++) {
        char name[80], gflops[16];
        double ns = (double)(shapes[i].ns > 0 ? shapes[i].ns : 1);
        name_shape(&shapes[i], name);
        rate(gflops, shapes[i].detail.flop / ns);
        TRY(add(table, "  %-56s %8.1f %10.2f %6.1f %%  %8s", name,
                (double)shapes[i].count / steps, ms(ns / steps),
                100.0 * ns / step_ns, gflops));
    }
    return ERR_OK;
}

enum err profile_table(const struct profile_sums *sums,
                       const struct profile_shape *shapes, int count,
                       struct buffer *out)
{
    int64_t steps = sums->last - sums->first + 1;
    assert(steps > 0 && sums->ranks > 0);
    assert(count >= 0 && count <= PROFILE_SHAPES);
    char peak[64] = "";
    struct table table = { .sums = sums,
                           .out = out,
                           .steps = (double)steps * sums->ranks,
                           .step_ns = (double)profile_sums_steps(sums) };
    if (sums->peak_flops > 0.0)
        snprintf(peak, sizeof peak, "; a rank's peak is %.0f GFLOP/s",
                 sums->peak_flops * 1e-9);
    TRY(add(&table,
            "profile of steps %" PRId64 " to %" PRId64
            " on %d rank%s: %.2f ms a step, %.1f %% not accounted for%s",
            sums->first, sums->last, sums->ranks, sums->ranks > 1 ? "s" : "",
            ms(table.step_ns / table.steps),
            100.0 * (double)profile_sums_rest(sums) / table.step_ns, peak));
    TRY(add_parts(&table));
    if (sums->device) {
        TRY(add_kinds(&table, "on the device", sums->device_of));
        TRY(add_rest(&table, "idle", profile_sums_idle(sums)));
    }
    TRY(add_kinds(&table, sums->device ? "on the host" : "kind of work",
                  sums->host));
    TRY(add_rest(&table, "not accounted for", profile_sums_rest(sums)));
    TRY(add_shapes(&table, shapes, count));
    return sums->lost == 0
               ? ERR_OK
               : add(&table,
                     "  %" PRId64 " spans found no room: they are in the sums, "
                     "but not in the traces; profile fewer steps at once",
                     sums->lost);
}
