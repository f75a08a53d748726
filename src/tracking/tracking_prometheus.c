/* Sink: a file for the textfile collector of Prometheus' node_exporter, with
 * the newest value of each name, written whole and renamed, once a second at
 * most.
 *
 * train/loss is the gauge tessera_train_loss with the labels run and job.
 * Besides tessera_step, tessera_time_seconds (of the newest record, since 1970)
 * and tessera_running, which is 0 when the run has ended by itself: of one that
 * was killed only the time tells. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/fsio.h"
#include "src/tracking/tracking_sink.h"

#define METRIC_BYTES (TRACKING_NAME_BYTES + 16)

struct prometheus {
    const struct tracking_options *options;
    struct tracking_map *metrics; /* by the names that they have there */
    struct gauge {
        double value;
        char help[TRACKING_NAME_BYTES];
    } * gauges; /* [room] of metrics */
    int room;
    int64_t step;
    double time_s;
    char labels[4 * FSIO_PATH_MAX];
    struct buffer out;
};

static bool prometheus_wanted(const struct tracking_settings *settings)
{
    return settings->prometheus[0] != '\0';
}

static enum err prometheus_check(const struct tracking_settings *settings)
{
    assert(settings->prometheus[0] != '\0');
    size_t name = strlen(settings->prometheus);
    if (name < 6 || strcmp(settings->prometheus + name - 5, ".prom") != 0)
        return err_set(ERR_USAGE,
                       "tracking.prometheus = \"%s\": node_exporter reads "
                       "files whose names end in .prom alone",
                       settings->prometheus);
    return ERR_OK;
}

/* A label's value: what would end it is escaped. */
static size_t put_label(char *out, const char *text)
{
    size_t used = 0;
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '"')
            out[used++] = '\\';
        out[used++] = *text;
        if (*text == '\n') {
            out[used - 1] = '\\';
            out[used++] = 'n';
        }
    }
    out[used] = '\0';
    return used;
}

static enum err prometheus_open(void *self,
                                const struct tracking_options *options)
{
    struct prometheus *p = self;
    p->options = options;
    size_t used = (size_t)sprintf(p->labels, "{run=\"");
    used += put_label(p->labels + used, options->run_name);
    used += (size_t)sprintf(p->labels + used, "\",job=\"");
    used += put_label(p->labels + used, options->job);
    sprintf(p->labels + used, "\"}");
    return tracking_map_create(&p->metrics);
}

static void prometheus_close(void *self)
{
    struct prometheus *p = self;
    tracking_map_destroy(p->metrics);
    free(p->gauges);
    buffer_free(&p->out);
}

/* Nothing is kept of earlier steps. */
static enum err prometheus_begin(void *self, int64_t step)
{
    (void)self;
    (void)step;
    return ERR_OK;
}

static enum err prometheus_keep(struct prometheus *p, const char *name,
                                double value)
{
    char metric[METRIC_BYTES];
    int number;
    snprintf(metric, sizeof metric, "tessera_%s", name);
    for (char *c = metric; *c != '\0'; c++)
        if (*c == '/' || *c == '-' || *c == '.')
            *c = '_';
    /* first: a name that is in the map has a place here */
    TRY(array_room(&p->gauges, &p->room, tracking_map_count(p->metrics) + 1));
    TRY(tracking_map_add(p->metrics, metric, &number));
    /* names that are one here share their last value */
    assert(number < p->room);
    p->gauges[number].value = value;
    snprintf(p->gauges[number].help, sizeof p->gauges[number].help, "%s", name);
    return ERR_OK;
}

static enum err put_gauge(struct prometheus *p, const char *metric,
                          const char *help, double value)
{
    char number[40];
    if (isnan(value))
        strcpy(number, "NaN");
    else if (isinf(value))
        strcpy(number, value > 0 ? "+Inf" : "-Inf");
    else
        snprintf(number, sizeof number, "%.17g", value);
    const char *const parts[] = {
        "# HELP ",  metric, " ",       help, "\n# TYPE ", metric,
        " gauge\n", metric, p->labels, " ",  number,      "\n",
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        TRY(buffer_add(&p->out, parts[i], strlen(parts[i])));
    return ERR_OK;
}

static enum err put_file(struct prometheus *p, bool running)
{
    p->out.bytes = 0;
    for (int i = 0; i < tracking_map_count(p->metrics); i++)
        TRY(put_gauge(p, tracking_map_name(p->metrics, i), p->gauges[i].help,
                      p->gauges[i].value));
    TRY(put_gauge(p, "tessera_step", "completed steps", (double)p->step));
    TRY(put_gauge(p, "tessera_time_seconds", "time of the newest values",
                  p->time_s));
    TRY(put_gauge(p, "tessera_running", "0 when the run has ended", running));
    return fsio_write_hint(p->options->settings.prometheus, p->out.data,
                           p->out.bytes);
}

static enum err prometheus_write(void *self,
                                 const struct tracking_record *const *records,
                                 int count)
{
    assert(count > 0);
    struct prometheus *p = self;
    for (int r = 0; r < count; r++)
        for (int i = 0; i < records[r]->count; i++)
            TRY(prometheus_keep(p, records[r]->scalars[i].name,
                                records[r]->scalars[i].value));
    p->step = records[count - 1]->step;
    p->time_s = records[count - 1]->time_s;
    return put_file(p, true);
}

static enum err prometheus_finish(void *self, enum tracking_end end)
{
    (void)end;
    return put_file(self, false);
}

const struct tracking_sink_ops tracking_prometheus_ops = {
    TRACKING_SINK("prometheus", struct prometheus),
    .pause_s = 1.0,
    .wanted = prometheus_wanted,
    .check = prometheus_check,
    .open = prometheus_open,
    .begin = prometheus_begin,
    .write = prometheus_write,
    .finish = prometheus_finish,
    .close = prometheus_close
};
