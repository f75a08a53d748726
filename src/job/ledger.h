/* The ledger: RUN/ledger.jsonl, append-only JSON lines, one per event of an
 * attempt; each append is one write(2) and an fsync(2). What finds no room is
 * kept where the process does that (lines_keep()). Which events there are, and
 * which fields they have, is one table: ledger_rows.h. */
#pragma once

#include <jansson.h>

#include "src/base/err.h"

/* Append one event; steals `fields` (a JSON object of its row's fields, or NULL:
 * there was no memory for them). */
enum err ledger_append(const char *run_dir, const char *event, int attempt,
                       json_t *fields);

/* The same for the launch script, which has words: each field is KEY=VALUE, and
 * its row says what VALUE is. They are cleaned in place. ERR_USAGE: the table
 * has it otherwise. */
enum err ledger_append_words(const char *run_dir, const char *event,
                             int attempt, char *const *fields, int count);

/* Every line of RUN/NAME that is a JSON object, or of its last `tail` bytes (0:
 * of all): torn and unknown ones are passed over. ERR_DATA: no such file. */
typedef enum err (*ledger_line_fn)(void *arg, json_t *line);
enum err ledger_each_line(const char *run_dir, const char *name, long tail,
                          ledger_line_fn take, void *arg);

/* All events of this name, oldest first and those included that the process
 * keeps, as a new array (json_decref); empty where there is no ledger. A torn
 * last line (power cut) is ignored and healed by the next append. */
enum err ledger_events(const char *run_dir, const char *name, json_t **out);

/* Number of the attempt that starts now: 1 + the "start" events so far. */
enum err ledger_next_attempt(const char *run_dir, int *attempt);
