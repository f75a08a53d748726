/* Makes the model's leaf (its tokens, labels and documents) of a loader's
 * batch. Rows that are made shorter or left out move within the batch's arrays,
 * always to a lower place and in rising order, so nothing is overwritten that is
 * still wanted, and a step allocates nothing. */
#include "src/train/loop/trainer.h"

#include <assert.h>
#include <string.h>

struct leaf trainer_leaf(const struct run *run, int64_t first_sample)
{
    const struct batch *batch = run->inputs.batch;
    bool documents =
        run->settings.model.attn_uses_sequence_id && !run->inputs.whole_samples;
    return (struct leaf){
        .samples = batch->samples,
        .seq_len = batch->seq_len,
        .tokens = batch->tokens,
        .labels = batch->labels,
        .sequence_ids = documents ? batch->sequence_ids : NULL,
        .first_sample = first_sample,
    };
}

static void shorten(int32_t *rows, int64_t samples, int64_t seq_len,
                    int64_t length)
{
    for (int64_t s = 1; s < samples; s++)
        memmove(rows + s * length, rows + s * seq_len,
                (size_t)length * sizeof rows[0]);
}

static int64_t labels_of(const struct batch *batch, const struct leaf *leaf)
{
    int64_t count = 0;
    for (int64_t i = 0; i < leaf->samples * leaf->seq_len; i++)
        count += batch->labels[i] >= 0;
    return count;
}

void trainer_leaf_shorten(struct batch *batch, int64_t seq_len,
                          struct leaf *leaf, int64_t *loss_tokens)
{
    assert(seq_len > 0 && seq_len <= leaf->seq_len);
    if (seq_len == leaf->seq_len)
        return;
    shorten(batch->tokens, leaf->samples, leaf->seq_len, seq_len);
    shorten(batch->labels, leaf->samples, leaf->seq_len, seq_len);
    shorten(batch->sequence_ids, leaf->samples, leaf->seq_len, seq_len);
    leaf->seq_len = seq_len;
    *loss_tokens = labels_of(batch, leaf);
}

static void move(int32_t *rows, int64_t from, int64_t to, int64_t seq_len)
{
    memmove(rows + to * seq_len, rows + from * seq_len,
            (size_t)seq_len * sizeof rows[0]);
}

void trainer_leaf_choose(struct batch *batch, const bool *left_out,
                         struct leaf *leaf, int64_t *loss_tokens)
{
    int64_t kept = 0;
    for (int64_t s = 0; s < leaf->samples; s++) {
        if (left_out[s])
            continue;
        move(batch->tokens, s, kept, leaf->seq_len);
        move(batch->labels, s, kept, leaf->seq_len);
        move(batch->sequence_ids, s, kept, leaf->seq_len);
        kept++;
    }
    leaf->samples = kept > 0 ? kept : 1;
    for (int64_t i = 0; kept == 0 && i < leaf->seq_len; i++)
        batch->labels[i] = LOADER_IGNORE;
    *loss_tokens = labels_of(batch, leaf);
}

void trainer_leaf_empty(int64_t samples, struct batch *batch)
{
    size_t count = (size_t)(samples * batch->seq_len);
    assert(samples > 0);
    batch->samples = samples;
    batch->loss_tokens = 0;
    memset(batch->tokens, 0, count * sizeof batch->tokens[0]);
    memset(batch->sequence_ids, 0, count * sizeof batch->sequence_ids[0]);
    for (size_t i = 0; i < count; i++)
        batch->labels[i] = LOADER_IGNORE;
}
