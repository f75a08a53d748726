/* Batches for training and evaluation.
 *
 * A batch is tokens, labels, sequence ids and sample ids; all arrays are
 * [samples, seq_len] except sample_ids [samples]. labels[t] = tokens[t+1];
 * LOADER_IGNORE where there is none: at the last position of a sample, in
 * padding, where the data set's loss_mask is 0 for tokens[t+1], and where that
 * begins another of the documents whose lengths the data set gives.
 * A sample shorter than seq_len is padded with token 0; of one longer than
 * seq_len the rest is left out if batch->truncate says so, else it is ERR_DATA
 * (it says which setting to change). sequence_ids number documents within a
 * row: by their lengths, where the data set gives them; else the token after
 * sidecar's eos_token, or the set's bos token itself, begins the next one.
 * Padding belongs to the last; with one document per sample, or where the data
 * set names no such token, they are 0, padding included.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/set/dataset.h"
#include "src/data/set/order.h"

#define LOADER_IGNORE (-100)

struct batch {
    int64_t samples;
    int64_t seq_len;
    bool truncate; /* longer samples are cut, not refused; the caller's */
    bool joined;   /* rows are one text, whatever their sequence_ids say, so a
                    * sample with several lengths is ERR_DATA; the caller's */
    int32_t *tokens;
    int32_t *labels;
    int32_t *sequence_ids;
    int64_t *sample_ids;
    int64_t loss_tokens; /* labels that bear loss */
};

/* Allocate a batch that holds up to `samples` rows. */
enum err batch_create(int64_t samples, int64_t seq_len, struct batch **out);
/* Bytes of one. */
size_t batch_bytes(int64_t samples, int64_t seq_len);
void batch_destroy(struct batch *batch);
/* Both are of the same shape. */
void batch_copy(const struct batch *from, struct batch *to);

/* Whether samples of `seq_len` tokens can be made of the data set, as far as
 * its description tells: ERR_DATA if its longest is longer, which *longest then
 * says, unless `truncate`; 0: it is not known or no longer. */
enum err loader_check(const struct dataset *dataset, int64_t seq_len,
                      bool truncate, int64_t *longest);

/* Fill `batch` with stream positions first .. first+count-1 of the order;
 * count <= the samples it was created for; sets batch->samples and loss_tokens.
 * `datasets` has one for each of the order's streams, with as many samples as
 * the order counts at least. */
enum err loader_read(struct dataset *const *datasets, struct order *order,
                     int64_t first, int64_t count, struct batch *batch);
