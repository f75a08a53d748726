/* A data set: a folder of MDS shards (index.json + shard.NNNNN.mds, the format
 * of the Streaming library) with the column `tokens` (ndarray:int32, or
 * ndarray with dynamic dtype int32), plus the sidecar tessera.json:
 * {"format": "tessera-data/1", "vocab_size": N, "tokenizer": NAME,
 *  "tokenizer_sha256": HEX, "samples": N, "tokens": N}.
 *
 * Opening reads the index and maps nothing; shards are mapped when first used
 * and checked then (size, offset table, column). Shards without samples are
 * fine; truncated or inconsistent ones are ERR_DATA naming the file. */
#ifndef TESSERA_DATA_DATASET_H
#define TESSERA_DATA_DATASET_H

#include <stdint.h>

#include "src/base/err.h"

struct dataset;

enum err dataset_open(const char *path, struct dataset **out);
void dataset_close(struct dataset *dataset);

int64_t dataset_samples(const struct dataset *dataset);
int64_t dataset_vocab_size(const struct dataset *dataset);
/* Hex digest that identifies content order: SHA-256 over index.json's bytes
 * and the tokenizer hash. Stored in checkpoints. Lent. */
const char *dataset_id(const struct dataset *dataset);
const char *dataset_tokenizer_sha256(const struct dataset *dataset);

/* Copy sample `index` (0 <= index < samples) into tokens[capacity]; *length is
 * its full length, which may be larger than capacity (then only the first
 * capacity tokens are copied). A token outside [0, vocab_size) is ERR_DATA with
 * shard, sample and value. */
enum err dataset_read(struct dataset *dataset, int64_t index, int32_t *tokens,
                      int64_t capacity, int64_t *length);

#endif
