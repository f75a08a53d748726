/* The steps that train.profile names: "10ba-12ba, 50ba". */
#pragma once

#include <stdint.h>

#include "src/base/err.h"

#define PROFILE_RANGES_MAX 32

/* Steps by the numbers that metrics.jsonl has: the first of a run is 1. Both
 * ends belong to a range. */
struct profile_range {
    int64_t first, last;
};

struct profile_ranges {
    int count;
    struct profile_range list[PROFILE_RANGES_MAX];
};

/* Ranges in order that do not overlap: FIRSTba-LASTba or Nba, between commas;
 * empty: none. ERR_USAGE says what is wrong, and how to write it. */
enum err profile_ranges_parse(const char *text, struct profile_ranges *out);

/* The range that a step is in; NULL: in none. */
const struct profile_range *
profile_ranges_at(const struct profile_ranges *ranges, int64_t step);
