/* Gathers what tessera-data info and head print, and formats it. Samples are
 * read through scan.c. */
#include "src/data/prepare/describe.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/clean.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/data/prepare/entropy.h"
#include "src/data/prepare/scan.h"

enum err describe_dataset(const char *path, bool show, int (*stop)(void),
                          struct describe *out)
{
    enum err rc = ERR_OK;
    struct scan_result result;
    struct dataset *dataset = NULL;
    int64_t *counts = NULL;
    TRY_OUT(dataset_open(path, &dataset));
    int64_t size = dataset_vocab_size(dataset);
    TRY_OUT(new_zeroed(&counts, (size_t)size));
    TRY_OUT(scan_samples(dataset, counts, show, stop, &result));
    *out = (struct describe){
        .samples = result.samples,
        .tokens = result.tokens,
        .longest = result.longest,
        .shards = dataset_contents(dataset)->shards,
        .vocab_size = size,
        .unigram_entropy = entropy_of_counts(counts, size),
    };
    snprintf(out->tokenizer, sizeof out->tokenizer, "%s",
             dataset_tokenizer(dataset));
    snprintf(out->tokenizer_sha256, sizeof out->tokenizer_sha256, "%s",
             dataset_tokenizer_sha256(dataset));
    snprintf(out->id, sizeof out->id, "%s", dataset_id(dataset));
out:
    free(counts);
    dataset_close(dataset);
    return rc;
}

static char *describe_json(const struct describe *info)
{
    json_t *root =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:f}", "samples",
                  (json_int_t)info->samples, "tokens", (json_int_t)info->tokens,
                  "longest_sample", (json_int_t)info->longest, "shards",
                  (json_int_t)info->shards, "vocab_size",
                  (json_int_t)info->vocab_size, "tokenizer", info->tokenizer,
                  "tokenizer_sha256", info->tokenizer_sha256, "id", info->id,
                  "unigram_entropy", info->unigram_entropy);
    char *dump = NULL, *text = NULL;
    if (jsontext_make(root, 2, &dump) != ERR_OK ||
        asprintf(&text, "%s\n", dump) < 0)
        text = NULL;
    free(dump);
    json_decref(root);
    return text;
}

enum err describe_format(const struct describe *info, bool json, char **text)
{
    *text = NULL;
    if (json)
        *text = describe_json(info);
    else if (asprintf(text,
                      "samples          %" PRId64 "\n"
                      "tokens           %" PRId64 "\n"
                      "longest sample   %" PRId64 " tokens\n"
                      "shards           %" PRId64 "\n"
                      "vocabulary       %" PRId64 "\n"
                      "tokenizer        %s\n"
                      "tokenizer sha256 %s\n"
                      "id               %s\n"
                      "unigram entropy  %.6f nats per token\n",
                      info->samples, info->tokens, info->longest, info->shards,
                      info->vocab_size, info->tokenizer, info->tokenizer_sha256,
                      info->id, info->unigram_entropy) < 0)
        *text = NULL;
    if (*text == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    clean_text(*text, true);
    return ERR_OK;
}

enum err describe_print(struct dataset *dataset, int64_t first, int64_t count,
                        FILE *out, int (*stop)(void))
{
    enum err rc = ERR_OK;
    int64_t samples = dataset_samples(dataset), length = 0, capacity = 0;
    int32_t *tokens = NULL;
    if (first < 0 || first >= samples)
        return err_set(ERR_USAGE, "%s: no sample %lld; there are %lld",
                       dataset_path(dataset), (long long)first,
                       (long long)samples);
    int64_t end = count < samples - first ? first + count : samples;
    for (int64_t i = first; i < end && (stop == NULL || stop() == 0); i++) {
        TRY_OUT(scan_read(dataset, i, &tokens, &capacity, &length));
        for (int64_t t = 0; t < length; t++)
            fprintf(out, t == 0 ? "%d" : " %d", tokens[t]);
        fputc('\n', out);
    }
out:
    free(tokens);
    return rc;
}
