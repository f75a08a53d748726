/* Counts in one pass over the samples.
 *
 * Documents' lengths are counted in a table with an entry for each length, so
 * that quantiles need neither memory by document nor sorting. A document may go
 * on from one sample to the next; `open` is what has come of it. How many bytes
 * of text all tokens are follows from how often each occurs: every token of the
 * vocabulary is decoded once, not every token of the set. */
#include "src/data/prepare/census.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/data/prepare/scan.h"
#include "src/text/tokenizer/tokenizer.h"

/* Lengths that are counted one by one; longer ones as the last. */
#define CENSUS_LENGTHS ((int64_t)1 << 20)

static const int census_percents[CENSUS_QUANTILES] = { 0,  10, 25, 50,
                                                       75, 90, 100 };

struct counter {
    struct dataset *dataset;
    int64_t eos, bos;
    int64_t *tokens;  /* [vocab_size], how often each occurs */
    int64_t *lengths; /* [CENSUS_LENGTHS + 1] documents of each */
    int64_t open;     /* tokens of the document that has not ended */
    int64_t longest;  /* document's tokens */
    int64_t document_tokens;
    struct census *out;
};

static void counter_end(struct counter *counter)
{
    int64_t length = counter->open;
    if (length == 0)
        return;
    counter->lengths[length < CENSUS_LENGTHS ? length : CENSUS_LENGTHS]++;
    counter->longest = length > counter->longest ? length : counter->longest;
    counter->document_tokens += length;
    counter->out->documents++;
    counter->open = 0;
}

static void counter_documents(struct counter *counter, const int32_t *tokens,
                              int64_t count, const struct values *lengths)
{
    for (int64_t d = 0; d < lengths->count; d++) {
        int32_t length;
        memcpy(&length, lengths->data + 4 * d, sizeof length);
        counter->open = length;
        counter_end(counter);
    }
    if (lengths->count > 0)
        return;
    for (int64_t t = 0; t < count; t++) {
        if (tokens[t] == counter->bos)
            counter_end(counter);
        counter->open++;
        if (tokens[t] == counter->eos)
            counter_end(counter);
    }
}

static void counter_sample(void *self, const int32_t *tokens, int64_t count,
                           const struct dataset_marks *marks)
{
    struct counter *counter = self;
    struct census *out = counter->out;
    out->masked = out->masked || marks->loss_mask.count > 0;
    for (int64_t t = 0; t < count; t++) {
        counter->tokens[tokens[t]]++;
        /* nothing predicts a sample's first token */
        out->loss_tokens +=
            t > 0 && (marks->loss_mask.count == 0 || marks->loss_mask.data[t]);
    }
    counter_documents(counter, tokens, count, &marks->lengths);
}

static void counter_quantiles(const struct counter *counter)
{
    struct census *out = counter->out;
    int64_t before = 0, length = 0;
    if (out->documents <= 0)
        return;
    out->mean = (double)counter->document_tokens / (double)out->documents;
    for (int q = 0; q < CENSUS_QUANTILES; q++) {
        /* the document that is so far in their order by length; ranks only
         * grow, so the table is walked through once */
        int64_t rank = (out->documents - 1) * census_percents[q] / 100;
        assert(rank >= 0 && rank < out->documents);
        while (before + counter->lengths[length] <= rank)
            before += counter->lengths[length++];
        out->quantile[q] = length < CENSUS_LENGTHS ? length : counter->longest;
    }
}

/* The bytes of all tokens, if the tokenizer is here. */
static enum err counter_text(const struct counter *counter)
{
    enum err rc = ERR_OK;
    struct tokenizer *tokenizer = NULL;
    struct census *out = counter->out;
    TRY(scan_tokenizer(counter->dataset, &tokenizer));
    out->text_bytes = tokenizer != NULL ? 0 : -1;
    for (int64_t t = 0; tokenizer != NULL && t < out->vocab_size; t++) {
        const uint8_t *text = NULL;
        size_t bytes = 0;
        /* a model may have more rows than the tokenizer has tokens */
        if (counter->tokens[t] == 0 || t >= tokenizer_vocab_size(tokenizer) ||
            tokenizer_is_special(tokenizer, (int32_t)t))
            continue;
        TRY_OUT(tokenizer_decode(tokenizer, (int32_t)t, &text, &bytes));
        out->text_bytes += counter->tokens[t] * (int64_t)bytes;
    }
out:
    tokenizer_destroy(tokenizer);
    return rc;
}

static void counter_describe(const struct counter *counter)
{
    struct census *out = counter->out;
    const struct dataset *dataset = counter->dataset;
    out->shards = dataset_contents(dataset)->shards;
    out->bytes = dataset_contents(dataset)->bytes;
    out->unigram_entropy = census_entropy(counter->tokens, out->vocab_size);
    snprintf(out->tokenizer, sizeof out->tokenizer, "%s",
             dataset_sidecar(dataset)->tokenizer);
    snprintf(out->tokenizer_sha256, sizeof out->tokenizer_sha256, "%s",
             dataset_sidecar(dataset)->tokenizer_sha256);
    snprintf(out->id, sizeof out->id, "%s", dataset_id(dataset));
    out->padding_share =
        1 - (double)out->tokens / (double)out->samples / (double)out->longest;
    counter_quantiles(counter);
}

enum err census_dataset(const char *path, bool show, int (*stop)(void),
                        struct census *out)
{
    enum err rc = ERR_OK;
    struct counter counter = { .out = out };
    const struct scan_visit visit = { counter_sample, &counter };
    struct scan_result result;
    *out = (struct census){ .documents = 0 };
    TRY_OUT(dataset_open(path, &counter.dataset));
    int64_t size = dataset_sidecar(counter.dataset)->vocab_size;
    out->vocab_size = size;
    counter.eos = dataset_sidecar(counter.dataset)->eos_token;
    counter.bos = dataset_sidecar(counter.dataset)->bos_token;
    TRY_OUT(new_zeroed(&counter.tokens, (size_t)size));
    TRY_OUT(new_zeroed(&counter.lengths, (size_t)CENSUS_LENGTHS + 1));
    TRY_OUT(scan_samples(counter.dataset, &visit, show, stop, &result));
    counter_end(&counter);
    out->samples = result.samples;
    out->tokens = result.tokens;
    out->longest = result.longest;
    counter_describe(&counter);
    TRY_OUT(counter_text(&counter));
    /* all of it as one document: nothing has divided it */
    if (counter.eos < 0 && counter.bos < 0 && out->documents <= 1)
        out->documents = -1;
out:
    free(counter.lengths);
    free(counter.tokens);
    dataset_close(counter.dataset);
    return rc;
}

static char *census_json(const struct census *census)
{
    json_t *root = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:f, s:f, s:I, s:b}",
        "samples", (json_int_t)census->samples, "tokens",
        (json_int_t)census->tokens, "longest_sample",
        (json_int_t)census->longest, "shards", (json_int_t)census->shards,
        "bytes", (json_int_t)census->bytes, "vocab_size",
        (json_int_t)census->vocab_size, "tokenizer", census->tokenizer,
        "tokenizer_sha256", census->tokenizer_sha256, "id", census->id,
        "unigram_entropy", census->unigram_entropy, "padding_share",
        census->padding_share, "loss_tokens", (json_int_t)census->loss_tokens,
        "loss_mask", census->masked);
    if (census->documents >= 0) {
        json_t *list = json_object();
        for (int q = 0; q < CENSUS_QUANTILES; q++) {
            char name[16];
            snprintf(name, sizeof name, "p%d", census_percents[q]);
            jsontext_set(&list, name, json_integer(census->quantile[q]));
        }
        jsontext_set(&root, "documents", json_integer(census->documents));
        jsontext_set(&root, "document_tokens_mean", json_real(census->mean));
        jsontext_set(&root, "document_tokens", list);
    }
    if (census->text_bytes >= 0)
        jsontext_set(&root, "text_bytes", json_integer(census->text_bytes));
    char *dump = NULL, *text = NULL;
    if (jsontext_make(root, 2, &dump) != ERR_OK ||
        asprintf(&text, "%s\n", dump) < 0)
        text = NULL;
    free(dump);
    json_decref(root);
    return text;
}

static void census_lines(const struct census *census, FILE *out)
{
    fprintf(out,
            "samples          %" PRId64 "\n"
            "tokens           %" PRId64 "\n"
            "longest sample   %" PRId64 " tokens\n"
            "shards           %" PRId64 "\n"
            "vocabulary       %" PRId64 "\n"
            "tokenizer        %s\n"
            "tokenizer sha256 %s\n"
            "id               %s\n"
            "unigram entropy  %.6f nats per token\n",
            census->samples, census->tokens, census->longest, census->shards,
            census->vocab_size, census->tokenizer, census->tokenizer_sha256,
            census->id, census->unigram_entropy);
    if (census->documents < 0)
        fputs("documents        not told apart: tessera.json names no token "
              "that ends or begins one\n",
              out);
    else
        fprintf(out,
                "documents        %" PRId64 "\n"
                "tokens in one    mean %.1f",
                census->documents, census->mean);
    for (int q = 0; census->documents >= 0 && q < CENSUS_QUANTILES; q++)
        fprintf(out, ", %d%% %" PRId64, census_percents[q],
                census->quantile[q]);
    if (census->documents >= 0)
        fputc('\n', out);
    fprintf(out,
            "bear loss        %" PRId64 " tokens, %.2f%%%s\n"
            "padding          %.2f%% if all were as long as the longest\n"
            "bytes            %" PRId64 "\n",
            census->loss_tokens,
            100 * (double)census->loss_tokens / (double)census->tokens,
            census->masked ? " (by loss_mask)" : "",
            100 * census->padding_share, census->bytes);
    if (census->text_bytes >= 0)
        fprintf(out, "text             %" PRId64 " bytes, %.3f a token\n",
                census->text_bytes,
                (double)census->text_bytes / (double)census->tokens);
    else
        fputs("text             unknown: the set has no tokenizer.json\n", out);
}

enum err census_format(const struct census *census, bool json, char **text)
{
    size_t bytes = 0;
    *text = NULL;
    if (json) {
        *text = census_json(census);
        return *text != NULL ? ERR_OK : err_set(ERR_MEMORY, "out of memory");
    }
    FILE *out = open_memstream(text, &bytes);
    if (out == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    census_lines(census, out);
    if (fclose(out) != 0 || *text == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    clean_text(*text, true);
    return ERR_OK;
}

double census_entropy(const int64_t *counts, int64_t size)
{
    assert(counts != NULL && size >= 0);
    double total = 0, sum = 0;
    for (int64_t i = 0; i < size; i++)
        total += (double)counts[i];
    for (int64_t i = 0; i < size; i++) {
        double p = counts[i] > 0 ? (double)counts[i] / total : 1;
        sum -= p * log(p);
    }
    return fabs(sum);
}
