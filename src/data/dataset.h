/* A data set: a folder of MDS shards (index.json + shard.NNNNN.mds, the format
 * of the Streaming library) with the column `tokens` (ndarray:int32, or
 * ndarray with dynamic dtype int32), plus the sidecar tessera.json:
 * {"format": "tessera-data/1", "vocab_size": N, "tokenizer": NAME,
 *  "tokenizer_sha256": HEX, "samples": N, "tokens": N}, and optionally
 * "eos_token": N (src/data/sidecar.h).
 *
 * Opening reads the index and maps nothing; shards are mapped when first used
 * and checked then (size, offset table, column). Shards without samples are
 * fine; truncated or inconsistent ones are ERR_DATA naming the file. At most
 * DATASET_MAPS_MAX shards are mapped at a time. A dataset may be used by one
 * thread at a time. */
#ifndef TESSERA_DATA_DATASET_H
#define TESSERA_DATA_DATASET_H

#include <stdint.h>

#include "src/base/err.h"
#include "src/data/sidecar.h"

#define DATASET_MAPS_MAX 1024

struct dataset;

enum err dataset_open(const char *path, struct dataset **out);
/* The same with `sidecar` in place of the file, for a set that has none; its
 * `samples` and `tokens` are not looked at. */
enum err dataset_open_with(const char *path, const struct sidecar *sidecar,
                           struct dataset **out);
void dataset_close(struct dataset *dataset);

int64_t dataset_samples(const struct dataset *dataset);
int64_t dataset_tokens(const struct dataset *dataset);
int64_t dataset_shards(const struct dataset *dataset);
int64_t dataset_vocab_size(const struct dataset *dataset);
/* The token that ends a document; -1: not known. */
int64_t dataset_eos_token(const struct dataset *dataset);
/* Hex digest that identifies content order: SHA-256 over index.json's bytes
 * and the tokenizer hash. Stored in checkpoints. Lent. */
const char *dataset_id(const struct dataset *dataset);
const char *dataset_tokenizer_sha256(const struct dataset *dataset);
/* Lent. */
const char *dataset_tokenizer(const struct dataset *dataset);
const char *dataset_path(const struct dataset *dataset);

/* Copy sample `index` (0 <= index < samples) into tokens[capacity]; *length is
 * its full length, which may be larger than capacity (then only the first
 * capacity tokens are copied). A token outside [0, vocab_size) is ERR_DATA with
 * shard, sample and value. */
enum err dataset_read(struct dataset *dataset, int64_t index, int32_t *tokens,
                      int64_t capacity, int64_t *length);

/* Map shard `index` if need be, check its file's SHA-256 where the index
 * records one. Shards without samples are checked too. */
enum err dataset_verify_shard(struct dataset *dataset, int64_t index);

#endif
