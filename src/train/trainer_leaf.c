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
