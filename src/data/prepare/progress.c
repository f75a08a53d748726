/* Prints how far long work has come. Those that do the work call it; it keeps
 * no thread. The rate is that of this process: what an earlier one has done
 * (`from`) would make the time that is left look short. */
#include "src/data/prepare/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/units.h"

#define PROGRESS_INTERVAL_S 1.0
#define PROGRESS_TEXT_BYTES 64

void progress_begin(struct progress *progress, const char *what,
                    const char *unit, int64_t total)
{
    double now = clock_now();
    *progress = (struct progress){
        .what = what,
        .unit = unit,
        .total = total,
        .start = now,
        .shown = now,
        .terminal = isatty(STDERR_FILENO) == 1,
    };
}

static void progress_amount(const struct progress *progress, double amount,
                            char text[PROGRESS_TEXT_BYTES])
{
    if (progress->unit == NULL)
        units_bytes(amount, text, PROGRESS_TEXT_BYTES);
    else
        units_count(amount, text, PROGRESS_TEXT_BYTES);
}

void progress_format(const struct progress *progress, double seconds,
                     char *text, size_t bytes)
{
    char done[PROGRESS_TEXT_BYTES], rate[PROGRESS_TEXT_BYTES];
    char total[PROGRESS_TEXT_BYTES], left[PROGRESS_TEXT_BYTES];
    const char *unit = progress->unit != NULL ? progress->unit : "";
    const char *space = unit[0] != '\0' ? " " : "";
    double fresh = (double)(progress->done - progress->from);
    double per_s = seconds > 0 ? fresh / seconds : 0;
    progress_amount(progress, (double)progress->done, done);
    progress_amount(progress, per_s, rate);
    if (progress->total < progress->done || progress->total <= 0) {
        snprintf(text, bytes, "%s: %s%s%s, %s/s", progress->what, done, space,
                 unit, rate);
        return;
    }
    int64_t rest = progress->total - progress->done;
    progress_amount(progress, (double)progress->total, total);
    units_seconds(per_s > 0 ? (double)rest / per_s : 0, left, sizeof left);
    snprintf(text, bytes, "%s: %s of %s%s%s (%.0f%%), %s/s, ETA %s",
             progress->what, done, total, space, unit,
             100.0 * (double)progress->done / (double)progress->total, rate,
             per_s > 0 ? left : "unknown");
}

static void progress_show(struct progress *progress, double now)
{
    char text[256];
    progress_format(progress, now - progress->start, text, sizeof text);
    if (progress->terminal)
        fprintf(stderr, "\r%s\033[K", text);
    else
        fprintf(stderr, "%s\n", text);
    fflush(stderr);
    progress->shown = now;
    progress->any = true;
}

void progress_update(struct progress *progress, int64_t done)
{
    if (progress == NULL)
        return;
    progress->done = done;
    double now = clock_now();
    if (now - progress->shown >= PROGRESS_INTERVAL_S)
        progress_show(progress, now);
}

void progress_end(struct progress *progress)
{
    if (progress == NULL || !progress->any)
        return;
    progress_show(progress, clock_now());
    if (progress->terminal)
        fputc('\n', stderr);
}
