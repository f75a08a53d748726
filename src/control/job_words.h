/* The facts of job.h as words KEY=VALUE: what the launch script hands over, what
 * is kept of each decision in RUN/health/decisions, and what replays it. A key is
 * the field's name; of `written` an empty value is none. */
#pragma once

#include <stdio.h>

#include "src/base/err.h"
#include "src/control/job.h"

/* Adds them to *facts, whose texts are the words' own. ERR_USAGE: no such fact, or
 * not such a value. */
enum err job_words_read(char *const *words, int count, struct job_facts *facts);
/* All that differ from nothing, with a tab behind each. */
void job_words_write(const struct job_facts *facts, FILE *out);
