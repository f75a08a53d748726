/* Gathers what tessera-data info and head print, and formats it. Samples are
 * read through scan.c. */
#include "src/data/prepare/describe.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/clean.h"
#include "src/data/prepare/scan.h"

enum err describe_format(const struct describe *info, char **text)
{
    assert(info != NULL && text != NULL);
    *text = NULL;
    if (asprintf(text,
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
        struct dataset_marks marks;
        TRY_OUT(scan_read(dataset, i, &tokens, &capacity, &length, &marks));
        for (int64_t t = 0; t < length; t++)
            fprintf(out, t == 0 ? "%d" : " %d", tokens[t]);
        fputc('\n', out);
    }
out:
    free(tokens);
    return rc;
}
