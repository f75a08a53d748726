/* Time units of training, and sizes for people.
 *
 * A duration is a number and a unit: "60ba" batches (steps), "1e9tok" tokens,
 * "5000sp" samples, "2ep" epochs, "0.1dur" fraction of max_duration, "90sec" or
 * "1h30m5s" wall clock. Case-insensitive; the number is non-negative; ba, tok
 * and sp are whole. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* AUTO has no number: the program chooses. Only settings that say so accept it
 * (settings.h), written "auto". */
enum unit {
    UNIT_BA,
    UNIT_TOK,
    UNIT_SP,
    UNIT_EP,
    UNIT_DUR,
    UNIT_SEC,
    UNIT_AUTO
};

struct duration {
    double value;
    enum unit unit;
};

/* ERR_USAGE with the text and the accepted forms. */
enum err units_parse(const char *text, struct duration *out);
/* "60ba"; parse(format(x)) == x, except for "auto". `text` holds at least 32
 * bytes. */
void units_format(struct duration duration, char *text, size_t bytes);

/* What one step advances; sizes the conversion to steps. */
struct unit_rates {
    int64_t samples_per_step;
    int64_t tokens_per_step; /* positions, samples * seq_len */
    int64_t samples_per_epoch;
    int64_t max_steps; /* of max_duration, for dur; 0 if not known yet */
};

/* Steps until the duration has passed, rounded up; ERR_USAGE for `sec` and
 * `auto`, which have no step count, and for `dur` while max_steps is 0. */
enum err units_steps(struct duration duration, const struct unit_rates *rates,
                     int64_t *steps);

/* Bytes from text: a number, which may have a fraction, and B, KiB, MiB, GiB,
 * TiB or PiB, in any case and after blanks if you like; nothing: B. "none" is
 * 0. ERR_USAGE with the accepted forms; part of a byte is dropped. */
enum err units_bytes_parse(const char *text, int64_t *bytes);
/* "8GiB", "1536MiB", "123B": the largest unit of which it is a whole number;
 * parse(format(x)) == x. `text` holds at least 32 bytes. */
void units_bytes_format(int64_t bytes, char *text, size_t size);

/* "1.5 GiB", "312 KiB"; "1h02m", "4.2s"; "125.3M". All return `text`. */
char *units_bytes(double bytes, char *text, size_t size);
char *units_seconds(double seconds, char *text, size_t size);
char *units_count(double count, char *text, size_t size);

/* The same, in a text that lasts to the end of the block. */
#define UNITS_BYTES(bytes) units_bytes((double)(bytes), (char[32]){ 0 }, 32)
#define UNITS_SECONDS(s) units_seconds(s, (char[32]){ 0 }, 32)
#define UNITS_COUNT(count) units_count((double)(count), (char[32]){ 0 }, 32)
