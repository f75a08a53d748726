/* Writes a rank's trace as JSON, event by event: a trace has up to a quarter of a
 * million of them, which no tree of JSON in memory has to hold. Names are words of
 * our own tables, so nothing has to be escaped; a host's name and the run's uuid
 * are letters, digits, dots and dashes.
 *
 * Who reads the file counts in microseconds and has one clock, so every event is
 * moved by this rank's offset to rank 0's. How far that may be off stands beside
 * it: two events of two ranks that are nearer than that have no order. */
#include "src/train/profile/profile.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/fsio.h"

static const char *const categories[] = { [TIMELINE_FRAME] = "step",
                                          [TIMELINE_WORK] = "work",
                                          [TIMELINE_OP] = "op",
                                          [TIMELINE_ABSORBS] = "listener" };

/* Microseconds to the nanosecond. */
static double us(int64_t ns)
{
    return (double)ns * 1e-3;
}

/* --- one event --- */

/* What a number per ns is: GFLOP/s, GB/s. */
static void put_rate(FILE *file, const char *what, const char *rate,
                     double amount, int64_t ns, const char **comma)
{
    if (amount <= 0.0)
        return;
    fprintf(file, "%s\"%s\":%.17g", *comma, what, amount);
    if (ns > 0)
        fprintf(file, ",\"%s\":%.4g", rate, amount / (double)ns);
    *comma = ",";
}

/* Names in `dims` are words of letters, digits and underscores. */
static void put_dims(FILE *file, const struct timeline_detail *detail,
                     const char **comma)
{
    const char *names = detail->dims;
    for (int i = 0; names != NULL && *names != '\0' && i < TIMELINE_DIMS; i++) {
        size_t bytes = strcspn(names, " ");
        fprintf(file, "%s\"%.*s\":%" PRId64, *comma, (int)bytes, names,
                detail->dim[i]);
        names += bytes + strspn(names + bytes, " ");
        *comma = ",";
    }
}

static void put_event(FILE *file, const struct timeline *timeline,
                      const struct timeline_event *event,
                      const struct profile_about *about)
{
    const struct timeline_kind *kind = &timeline->kinds[event->kind];
    const struct timeline_detail *detail = &event->detail;
    const char *comma = "";
    assert(event->kind >= 0 && event->kind < timeline->kind_count);
    int64_t ns = event->end_ns - event->begin_ns;
    fprintf(file,
            ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,"
            "\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{",
            detail->label != NULL ? detail->label : kind->name,
            categories[kind->place], about->rank, event->lane,
            us(event->begin_ns + about->offset_ns), us(ns));
    put_dims(file, detail, &comma);
    put_rate(file, "flop", "GFLOP/s", detail->flop, ns, &comma);
    put_rate(file, "bytes", "GB/s", detail->bytes, ns, &comma);
    fprintf(file, "}}");
}

/* --- the rest --- */

static void put_lanes(FILE *file, const struct timeline *timeline,
                      const struct profile_about *about)
{
    fprintf(file,
            "\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,"
            "\"args\":{\"name\":\"rank %d (%s)\"}},\n"
            "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,"
            "\"tid\":0,\"args\":{\"sort_index\":%d}}",
            about->rank, about->rank, about->host, about->rank, about->rank);
    for (int i = 0; i < timeline->lane_count; i++)
        fprintf(file,
                ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,"
                "\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n"
                "{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":%d,"
                "\"tid\":%d,\"args\":{\"sort_index\":%d}}",
                about->rank, i, timeline->lanes[i].name, about->rank, i, i);
}

/* The kinds that occur, on the host or on the device. */
static void put_sums(FILE *file, const struct timeline *timeline,
                     const struct timeline_sum *sums)
{
    const char *comma = "";
    for (int k = 0; k < timeline->kind_count; k++) {
        if (sums[k].count == 0)
            continue;
        fprintf(file,
                "%s\n\"%s\":{\"cat\":\"%s\",\"count\":%" PRId64
                ",\"seconds\":%.9f,\"whole_s\":%.9f,\"flop\":%.17g,"
                "\"bytes\":%.17g}",
                comma, timeline->kinds[k].name,
                categories[timeline->kinds[k].place], sums[k].count,
                1e-9 * (double)sums[k].ns, 1e-9 * (double)sums[k].whole_ns,
                sums[k].flop, sums[k].bytes);
        comma = ",";
    }
}

static void put_about(FILE *file, const struct timeline *timeline,
                      const struct profile_about *about)
{
    fprintf(file,
            "\"profile\":{\"run\":\"%s\",\"attempt\":%d,\"rank\":%d,"
            "\"ranks\":%d,\"host\":\"%s\",\"first_step\":%" PRId64
            ",\"last_step\":%" PRId64 ",\"spans\":%zu,\"lost\":%zu,"
            "\"clock_error_us\":%.3f,",
            about->run, about->attempt, about->rank, about->ranks, about->host,
            about->first, about->last, timeline->count, timeline->lost,
            us(about->error_ns));
    if (about->device_error_ns >= 0)
        fprintf(file, "\"device_clock_error_us\":%.3f,",
                us(about->device_error_ns));
    fprintf(file, "\"host_kinds\":{");
    put_sums(file, timeline, timeline->host);
    fprintf(file, "},\"device_kinds\":{");
    put_sums(file, timeline, timeline->device);
    fprintf(file, "}}");
}

static void put_all(FILE *file, const struct timeline *timeline,
                    const struct profile_about *about)
{
    fprintf(file, "{\"displayTimeUnit\":\"ms\",\n");
    put_about(file, timeline, about);
    fprintf(file, ",\n\"traceEvents\":[");
    put_lanes(file, timeline, about);
    for (size_t i = 0; i < timeline->count; i++)
        put_event(file, timeline, &timeline->events[i], about);
    fprintf(file, "\n]}\n");
}

enum err profile_file_write(const char *path, const struct timeline *timeline,
                            const struct profile_about *about)
{
    enum err rc = ERR_OK;
    char temporary[FSIO_PATH_MAX];
    int fd = -1;
    assert(about->rank >= 0 && about->rank < about->ranks);
    assert(about->first <= about->last);
    TRY(fsio_create_temporary(path, temporary, &fd));
    FILE *file = fdopen(fd, "w");
    if (file == NULL) {
        rc = err_errno("%s", temporary);
        close(fd);
        goto out;
    }
    put_all(file, timeline, about);
    bool failed = ferror(file) != 0;
    failed = fclose(file) != 0 || failed;
    if (failed)
        rc = err_errno("%s", temporary);
    else if (rename(temporary, path) != 0)
        rc = err_errno("%s", path);
out:
    if (rc != ERR_OK)
        (void)unlink(temporary);
    return rc;
}
