/* The parts of a report (report.h), which alone includes this. */
#pragma once

#include <stdio.h>

#include "src/report/report.h"

/* All plots that have something to show. */
enum err report_plots_make(struct report *report);

/* Wide drawings: all runs on one axis of time, and where the time went. */
double report_time_height(const struct report *report);
void report_time_draw(const struct report *report, FILE *out);
double report_time_goodput_height(const struct report *report);
void report_time_goodput_draw(const struct report *report, FILE *out);
#define REPORT_WIDE 960.0

/* Sections of the page. */
void report_tables_figures(const struct report *report, FILE *out);
void report_tables_goodput(const struct report *report, FILE *out);
void report_tables_attempts(const struct report *report, FILE *out);
void report_tables_events(const struct report *report, FILE *out);
void report_tables_settings(const struct report *report, FILE *out);
void report_texts_tasks(const struct report *report, FILE *out);
void report_texts_samples(const struct report *report, FILE *out);
void report_texts_notes(const struct report *report, FILE *out);

/* " of NAME" in a heading, where there are several runs. */
void report_put_of(const struct report *report, int run, FILE *out);
/* "GPU" or "core": of what hours are counted. */
const char *report_device(const struct run_history *run);
