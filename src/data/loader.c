/* Fills a batch from a data set: tokens, labels, padding and documents. Which
 * samples a rank reads is the trainer's business. */
#include "src/data/loader.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* What batch_create() hands out; the batch comes first. */
struct loader_batch {
    struct batch batch;
    int64_t capacity; /* rows */
};

enum err batch_create(int64_t samples, int64_t seq_len, struct batch **out)
{
    assert(samples > 0 && seq_len > 0 && out != NULL);
    struct loader_batch *own = calloc(1, sizeof *own);
    if (own == NULL)
        return err_set(ERR_MEMORY, "no memory for a batch");
    struct batch *batch = &own->batch;
    size_t cells = 0;
    bool fits =
        !__builtin_mul_overflow((size_t)samples, (size_t)seq_len, &cells);
    if (fits) {
        batch->tokens = calloc(cells, sizeof *batch->tokens);
        batch->labels = calloc(cells, sizeof *batch->labels);
        batch->sequence_ids = calloc(cells, sizeof *batch->sequence_ids);
        batch->sample_ids = calloc((size_t)samples, sizeof *batch->sample_ids);
    }
    own->capacity = samples;
    batch->samples = samples;
    batch->seq_len = seq_len;
    if (batch->tokens == NULL || batch->labels == NULL ||
        batch->sequence_ids == NULL || batch->sample_ids == NULL) {
        batch_destroy(batch);
        return err_set(ERR_MEMORY,
                       "no memory for a batch of %lld samples of %lld tokens",
                       (long long)samples, (long long)seq_len);
    }
    *out = batch;
    return ERR_OK;
}

size_t batch_bytes(int64_t samples, int64_t seq_len)
{
    return (size_t)samples *
           (3 * (size_t)seq_len * sizeof(int32_t) + sizeof(int64_t));
}

void batch_destroy(struct batch *batch)
{
    if (batch == NULL)
        return;
    free(batch->tokens);
    free(batch->labels);
    free(batch->sequence_ids);
    free(batch->sample_ids);
    free((struct loader_batch *)(void *)batch);
}

/* Labels, documents and padding of a row that has `length` tokens. */
static int64_t loader_finish_row(struct batch *batch, int64_t row,
                                 int64_t length, const struct dataset *dataset)
{
    assert(row >= 0 && row < batch->samples);
    assert(length >= 0 && length <= batch->seq_len);
    int64_t eos = dataset_eos_token(dataset);
    int64_t bos = dataset_bos_token(dataset);
    int32_t *tokens = batch->tokens + row * batch->seq_len;
    int32_t *labels = batch->labels + row * batch->seq_len;
    int32_t *ids = batch->sequence_ids + row * batch->seq_len;
    int32_t id = 0;
    for (int64_t t = 0; t < length; t++) {
        /* Padding belongs to the last document, so that a row that holds one
         * document holds the id 0 only. */
        if (t > 0 && (tokens[t - 1] == eos || tokens[t] == bos))
            id++;
        ids[t] = id;
        labels[t] = t + 1 < length ? tokens[t + 1] : LOADER_IGNORE;
    }
    for (int64_t t = length; t < batch->seq_len; t++) {
        tokens[t] = 0;
        labels[t] = LOADER_IGNORE;
        ids[t] = id;
    }
    return length > 0 ? length - 1 : 0;
}

static enum err loader_too_long(const struct dataset *dataset,
                                const char *which, int64_t length,
                                int64_t seq_len)
{
    return err_set(ERR_DATA,
                   "%s: %s has %lld tokens, more than data.seq_len = %lld; set "
                   "it to %lld, tokenize with --seq-len %lld, or cut longer "
                   "samples: data.too_long = truncate",
                   dataset_path(dataset), which, (long long)length,
                   (long long)seq_len, (long long)length, (long long)seq_len);
}

enum err loader_check(const struct dataset *dataset, int64_t seq_len,
                      bool truncate, int64_t *longest)
{
    int64_t length = dataset_longest(dataset);
    *longest = length > seq_len ? length : 0;
    return *longest == 0 || truncate
               ? ERR_OK
               : loader_too_long(dataset, "the longest sample", length,
                                 seq_len);
}

enum err loader_read(struct dataset *const *datasets, struct order *order,
                     int64_t first, int64_t count, struct batch *batch)
{
    assert(first >= 0 && count >= 0);
    assert(count <= ((struct loader_batch *)(void *)batch)->capacity);
    batch->samples = count;
    batch->loss_tokens = 0;
    for (int64_t row = 0; row < count; row++) {
        int stream = 0;
        int64_t sample = 0, length = 0;
        TRY(order_sample(order, first + row, &stream, &sample));
        struct dataset *dataset = datasets[stream];
        assert(order_samples(order, stream) <= dataset_samples(dataset));
        int32_t *tokens = batch->tokens + row * batch->seq_len;
        TRY(dataset_read(dataset, sample, tokens, batch->seq_len, &length));
        if (length > batch->seq_len && !batch->truncate) {
            char which[48];
            snprintf(which, sizeof which, "sample %lld", (long long)sample);
            return loader_too_long(dataset, which, length, batch->seq_len);
        }
        if (length > batch->seq_len)
            length = batch->seq_len;
        batch->sample_ids[row] = sample;
        batch->loss_tokens += loader_finish_row(batch, row, length, dataset);
    }
    return ERR_OK;
}
