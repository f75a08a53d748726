/* A mixture of data sets, written as text:
 *
 *     web 0.7, code 0.3
 *     web 0.7 to 0.3 at 1000ba, code 0.3 to 0.7 at 1000ba
 *     plain 1 then 0 at 2e9tok, long=/scratch/long 0 then 1 at 2e9tok
 *     web, wiki repeat 2, books choose 50000
 *
 * Each data set has a name, and its folder unless it is called like that. A
 * number is its weight relative to the others'; "to W at TIME" leads to another
 * in a line, "then W at TIME" jumps to it. "repeat R" and "choose K" weigh by
 * samples: R times as many as it has, or K; nothing: as many as it has. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/base/units.h"
#include "src/data/set/order_mixture.h"
#include "src/data/set/streaming_sample.h"

#define MIXTURE_NAME_BYTES 64
#define MIXTURE_FOLDER_BYTES 1024

struct mixture_time {
    double weight;
    struct duration at; /* not of the first */
    bool jump;
};

struct mixture_entry {
    char name[MIXTURE_NAME_BYTES];
    char folder[MIXTURE_FOLDER_BYTES]; /* as given; absolute or not */
    enum stream_weight weight;
    double amount; /* the first weight, or of repeat and choose */
    int count;     /* times; 1 without a schedule */
    struct mixture_time times[MIXTURE_POINTS_MAX];
};

struct mixture_text {
    int count;
    bool scheduled; /* some weight changes */
    struct mixture_entry entries[STREAMS_MAX];
};

/* ERR_USAGE says which data set of the text is wrong, and what. Times are in
 * ba, tok, sp or ep and are in order as far as they have one unit. */
enum err mixture_text_parse(const char *text, struct mixture_text *out);
