/* The data sets of a run: opened, and found to fit the run's settings. */
#ifndef TESSERA_TRAIN_TRAIN_DATA_H
#define TESSERA_TRAIN_TRAIN_DATA_H

#include "src/base/err.h"
#include "src/train/trainer.h"

/* With data.verify = "auto" the files are read and checked where no rank has to
 * read more than this: a second or so. */
#define TRAIN_DATA_VERIFY_BYTES ((int64_t)256 << 20)

/* Open data.train and data.eval into the trainer. What the run asks for and the
 * data cannot give is an error here, not in the middle of the run: a vocabulary
 * beyond the model's, tokenizers that differ, documents that cannot be told
 * apart with model.attn_uses_sequence_id, samples longer than data.seq_len with
 * data.too_long = "refuse". Rank r checks the checksums of shards r, r + ranks,
 * ... as data.verify says. Not collective. */
enum err train_data_open(struct trainer *trainer);

#endif
