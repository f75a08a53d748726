/* Fills a batch from a data set: tokens, labels, padding and documents. Which
 * samples a rank reads is the trainer's business.
 *
 * A model predicts at each position the token behind it, so labels are the
 * tokens moved by one, and LOADER_IGNORE wherever there is nothing to be
 * learned: behind the last token, where the next one begins another example,
 * where a mask says so, and in padding. Losses are divided by how many labels
 * are left, which is why the batch counts them. sequence_ids number the
 * documents of a row; attention that uses them goes over no border. */
#include "src/data/set/loader.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"

/* What batch_create() hands out; the batch comes first. */
struct loader_batch {
    struct batch batch;
    int64_t capacity; /* rows */
};

enum err batch_create(int64_t samples, int64_t seq_len, struct batch **out)
{
    assert(samples > 0 && seq_len > 0 && out != NULL);
    enum err rc = ERR_OK;
    struct loader_batch *own = NULL;
    TRY(new_zeroed(&own, 1));
    struct batch *batch = &own->batch;
    size_t cells = 0;
    if (__builtin_mul_overflow((size_t)samples, (size_t)seq_len, &cells))
        cells = SIZE_MAX; /* which no memory has */
    own->capacity = batch->samples = samples;
    batch->seq_len = seq_len;
    TRY_OUT(new_zeroed(&batch->tokens, cells));
    TRY_OUT(new_zeroed(&batch->labels, cells));
    TRY_OUT(new_zeroed(&batch->sequence_ids, cells));
    TRY_OUT(new_zeroed(&batch->sample_ids, (size_t)samples));
out:
    return new_or_none(rc, batch, out, batch_destroy);
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

void batch_copy(const struct batch *from, struct batch *to)
{
    assert(from->seq_len == to->seq_len);
    assert(from->samples <= ((struct loader_batch *)(void *)to)->capacity);
    size_t rows = (size_t)from->samples;
    size_t cells = rows * (size_t)from->seq_len;
    memcpy(to->tokens, from->tokens, cells * sizeof *to->tokens);
    memcpy(to->labels, from->labels, cells * sizeof *to->labels);
    memcpy(to->sequence_ids, from->sequence_ids,
           cells * sizeof *to->sequence_ids);
    memcpy(to->sample_ids, from->sample_ids, rows * sizeof *to->sample_ids);
    to->samples = from->samples;
    to->loss_tokens = from->loss_tokens;
}

/* Where documents of a row begin, by the tokens that end or begin one. */
static void loader_number_by_tokens(const int32_t *tokens, int64_t length,
                                    const struct dataset *dataset, int32_t *ids)
{
    int64_t eos = dataset_sidecar(dataset)->eos_token;
    int64_t bos = dataset_sidecar(dataset)->bos_token;
    int32_t id = 0;
    for (int64_t t = 0; t < length; t++) {
        if (t > 0 && (tokens[t - 1] == eos || tokens[t] == bos))
            id++;
        ids[t] = id;
    }
}

/* The same, by the lengths that the data set gives. */
static void loader_number_by_lengths(const struct values *lengths,
                                     int64_t length, int32_t *ids)
{
    int64_t t = 0;
    for (int64_t d = 0; d < lengths->count && t < length; d++) {
        int32_t tokens;
        memcpy(&tokens, lengths->data + 4 * d, sizeof tokens);
        for (int64_t end = t + tokens; t < end && t < length; t++)
            ids[t] = (int32_t)d;
    }
    assert(t == length);
}

/* Labels, documents and padding of a row that has `length` tokens; returns how
 * many labels bear loss. */
static int64_t loader_finish_row(struct batch *batch, int64_t row,
                                 int64_t length, const struct dataset *dataset,
                                 const struct dataset_marks *marks)
{
    assert(row >= 0 && row < batch->samples);
    assert(length >= 0 && length <= batch->seq_len);
    int32_t *tokens = batch->tokens + row * batch->seq_len;
    int32_t *labels = batch->labels + row * batch->seq_len;
    int32_t *ids = batch->sequence_ids + row * batch->seq_len;
    bool packed = marks->lengths.count > 0, masked = marks->loss_mask.count > 0;
    int64_t loss_tokens = 0;
    if (packed)
        loader_number_by_lengths(&marks->lengths, length, ids);
    else
        loader_number_by_tokens(tokens, length, dataset, ids);
    for (int64_t t = 0; t < length; t++) {
        bool bears_loss = t + 1 < length && !(packed && ids[t + 1] != ids[t]) &&
                          !(masked && marks->loss_mask.data[t + 1] == 0);
        labels[t] = bears_loss ? tokens[t + 1] : LOADER_IGNORE;
        loss_tokens += bears_loss;
    }
    for (int64_t t = length; t < batch->seq_len; t++) {
        /* Padding belongs to the last document, so that a row that holds one
         * document holds the id 0 only. */
        tokens[t] = 0;
        labels[t] = LOADER_IGNORE;
        ids[t] = length > 0 ? ids[length - 1] : 0;
    }
    return loss_tokens;
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

/* Documents that lie in one row by the data set's own word have nothing to do
 * with one another. */
static enum err loader_joined(const struct dataset *dataset, int64_t sample,
                              int64_t documents)
{
    return err_set(ERR_DATA,
                   "%s: sample %lld has %lld examples packed in it, over which "
                   "attention must not go: set model.attn_uses_sequence_id = "
                   "true, or tokenize with --packing off",
                   dataset_path(dataset), (long long)sample,
                   (long long)documents);
}

static enum err loader_read_row(struct dataset *dataset, int64_t sample,
                                int64_t row, struct batch *batch)
{
    int64_t length = 0;
    struct dataset_marks marks;
    int32_t *tokens = batch->tokens + row * batch->seq_len;
    TRY(dataset_read_marked(dataset, sample, tokens, batch->seq_len, &length,
                            &marks));
    if (length > batch->seq_len && !batch->truncate) {
        char which[48];
        snprintf(which, sizeof which, "sample %lld", (long long)sample);
        return loader_too_long(dataset, which, length, batch->seq_len);
    }
    if (marks.lengths.count > 1 && batch->joined)
        return loader_joined(dataset, sample, marks.lengths.count);
    if (length > batch->seq_len)
        length = batch->seq_len;
    batch->sample_ids[row] = sample;
    batch->loss_tokens +=
        loader_finish_row(batch, row, length, dataset, &marks);
    return ERR_OK;
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
        int64_t sample = 0;
        TRY(order_sample(order, first + row, &stream, &sample));
        assert(order_samples(order, stream) <=
               dataset_contents(datasets[stream])->samples);
        TRY(loader_read_row(datasets[stream], sample, row, batch));
    }
    return ERR_OK;
}
