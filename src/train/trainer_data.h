/* The data sets of a run: opened, and found to fit the run's settings. */
#ifndef TESSERA_TRAIN_TRAINER_DATA_H
#define TESSERA_TRAIN_TRAINER_DATA_H

#include "src/base/err.h"
#include "src/train/trainer.h"

/* Open data.train and data.eval into the trainer, with the orders in which
 * their samples are read. What the run asks for and the
 * data cannot give is an error here, not in the middle of the run: a vocabulary
 * beyond the model's, tokenizers that differ, documents that cannot be told
 * apart with model.attn_uses_sequence_id, samples longer than data.seq_len with
 * data.too_long = "refuse". No shard is looked at (start_files.h). Not
 * collective. */
enum err trainer_data_open(struct trainer *trainer);
void trainer_data_close(struct trainer *trainer);

/* Of all training sets. */
int64_t trainer_data_samples(const struct trainer *trainer);

#endif
