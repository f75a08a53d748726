/* What is in a data set: documents, their lengths, what of the tokens bears
 * loss, what padding would cost, how many bytes of text a token is. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/set/sidecar.h"

#define CENSUS_QUANTILES 7 /* 0, 10, 25, 50, 75, 90 and 100 per cent */

struct census {
    int64_t samples;
    int64_t tokens;  /* counted */
    int64_t longest; /* tokens of the longest sample */
    int64_t shards;
    int64_t vocab_size;
    char tokenizer[SIDECAR_TOKENIZER_BYTES];
    char tokenizer_sha256[65];
    char id[65];
    double unigram_entropy; /* nats per token */
    int64_t bytes;          /* of the shards, unpacked */
    int64_t documents;      /* -1: nothing tells them apart */
    /* tokens of a document, with those that begin and end it; above 2^20 that
     * of the longest one. Zeros without documents. */
    int64_t quantile[CENSUS_QUANTILES];
    double mean;
    /* a token bears loss when it is predicted from one before it in its sample,
     * and no mask says otherwise */
    int64_t loss_tokens;
    bool masked;          /* the set has masks */
    double padding_share; /* of all, were every sample as long as the longest */
    int64_t text_bytes; /* of all tokens but special ones; -1: the tokenizer is
                             not here */
};

/* Reads every sample; show and stop as in src/data/prepare/scan.h. A document
 * that a sample's end has cut off is counted with what follows. */
enum err census_dataset(const char *path, bool show, int (*stop)(void),
                        struct census *out);

/* A line per value, or one JSON object; *text is malloc'ed. */
enum err census_format(const struct census *census, bool json, char **text);

/* Unigram entropy: what a model reaches that knows only how frequent each token
 * is. A training loss below it shows that the model uses context.
 *
 * -sum p ln p in nats per token, p = count / sum of counts; 0 if all are 0. */
double census_entropy(const int64_t *counts, int64_t size);
