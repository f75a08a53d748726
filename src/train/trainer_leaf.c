/* Makes the model's leaf (its tokens, labels and documents) of a loader's
 * batch. */
#include "src/train/trainer_leaf.h"

#include <string.h>

struct leaf trainer_leaf(const struct trainer *trainer, int64_t first_sample)
{
    const struct batch *batch = trainer->batch;
    bool documents = trainer->settings.model.attn_uses_sequence_id &&
                     !trainer->whole_samples;
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

void trainer_leaf_shorten(struct batch *batch, int64_t seq_len,
                          struct leaf *leaf, int64_t *loss_tokens)
{
    if (seq_len == leaf->seq_len)
        return;
    shorten(batch->tokens, leaf->samples, leaf->seq_len, seq_len);
    shorten(batch->labels, leaf->samples, leaf->seq_len, seq_len);
    shorten(batch->sequence_ids, leaf->samples, leaf->seq_len, seq_len);
    leaf->seq_len = seq_len;
    *loss_tokens = 0;
    for (int64_t i = 0; i < leaf->samples * seq_len; i++)
        *loss_tokens += batch->labels[i] >= 0;
}

void trainer_leaf_empty(int64_t samples, struct batch *batch)
{
    size_t count = (size_t)(samples * batch->seq_len);
    batch->samples = samples;
    batch->loss_tokens = 0;
    memset(batch->tokens, 0, count * sizeof batch->tokens[0]);
    memset(batch->sequence_ids, 0, count * sizeof batch->sequence_ids[0]);
    for (size_t i = 0; i < count; i++)
        batch->labels[i] = LOADER_IGNORE;
}
