/* A data set: a folder of shards, or the address of one
 * (src/data/remote/store.h), files of samples, in a format of
 * src/data/set/dataset_format.h, whose index says what is in them, plus the
 * sidecar tessera.json (src/data/set/sidecar.h). A sample is whole numbers of
 * any width.
 *
 * Opening reads the index and looks at every shard (there, regular, as long as
 * the index says), so that no run meets a missing one after hours. Shards
 * without samples are fine, a set without samples is not; what is truncated or
 * inconsistent is ERR_DATA naming the file. A dataset may be used by one thread
 * at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/set/dataset_format.h"

struct dataset;

enum err dataset_open(const char *path, struct dataset **out);
/* The same with `given` in place of the sidecar's file, for a set that has
 * none, whose `samples` and `tokens` are not looked at, unless it is NULL;
 * ERR_USAGE for a `token_type` where the index gives one. look false: without a
 * look at the shards, for ranks that share that. A cache that it needs has
 * these options, otherwise cache_defaults. */
enum err dataset_open_as(const char *path, const struct sidecar *given,
                         bool look, const struct cache_options *options,
                         struct dataset **out);
/* One process of a node reads for all: what it has opened goes behind what
 * `images` has, and the others, which have that as `images` in memory that ends
 * with 8 zeros, open the same path without a look at its files. *out NULL: it
 * is none of these, or to this process another file. */
enum err dataset_image(const struct dataset *dataset, struct buffer *images);
enum err dataset_open_image(const void *images, const char *path,
                            const struct cache_options *options,
                            struct dataset **out);
/* What tells one copy of a data set from another, of its index. The change time
 * is no copy's to choose, unlike the modification time. */
struct dataset_copy {
    int64_t path, inode, bytes, modified_ns, changed_ns;
};
enum err dataset_copy(const struct dataset *dataset, struct dataset_copy *out);
/* Shard `index` is there, regular and as long as the index says. */
enum err dataset_look(const struct dataset *dataset, int64_t index);
void dataset_close(struct dataset *dataset);

/* Lent, both; of the sidecar without the shards' digests. */
const struct dataset_contents *dataset_contents(const struct dataset *dataset);
const struct sidecar *dataset_sidecar(const struct dataset *dataset);
/* Samples of shard `index`. */
int64_t dataset_shard_samples(const struct dataset *dataset, int64_t index);
/* Whether documents can be told apart: by tokens that end or begin them, or their
 * lengths. */
bool dataset_has_documents(const struct dataset *dataset);
/* Tokens of the longest sample; 0: neither index nor sidecar tells. */
int64_t dataset_longest(const struct dataset *dataset);
/* Hex digest that identifies content order: SHA-256 over what the format says
 * of it (the bytes of index.json), the tokenizer hash, and what the sidecar
 * says beside it that changes what is trained: tokens that end or begin
 * documents, the type of bytes, the shards' digests. Stored in checkpoints.
 * Lent. */
const char *dataset_id(const struct dataset *dataset);
/* The path of the tokenizer's file in the folder, whose digest was compared
 * with the sidecar's when the set was opened; "": the set has none. */
const char *dataset_tokenizer_file(const struct dataset *dataset);
const char *dataset_path(const struct dataset *dataset);
/* Where its index lies: the path, or of an address the cache's folder. */
const char *dataset_folder(const struct dataset *dataset);
/* Whether shards come through a cache: those of an address, and packed ones.
 * They are verified when they are fetched. Others of the same set need not. */
bool dataset_is_cached(const struct dataset *dataset);
bool dataset_shard_is_cached(const struct dataset *dataset, int64_t index);
/* Sample `index` will be read soon: its shard may be fetched. By any thread. */
void dataset_want(const struct dataset *dataset, int64_t index);
/* Let a reading that waits for a cache end soon, with ERR_IO, now and until
 * `stop` is false. By any thread. */
void dataset_stop(struct dataset *dataset, bool stop);
/* The name of its index, a file in the folder. */
const char *dataset_index(const struct dataset *dataset);

/* Copy sample `index` (0 <= index < samples) into tokens[capacity]; *length is
 * its full length, which may be larger than capacity (then only the first
 * capacity tokens are copied). A token outside [0, vocab_size) is ERR_DATA with
 * shard, sample and value. */
enum err dataset_read(struct dataset *dataset, int64_t index, int32_t *tokens,
                      int64_t capacity, int64_t *length);

/* What a sample has beside its tokens, lent until the next read. Count 0: the
 * set has none. */
struct dataset_marks {
    struct values loss_mask; /* uint8 for each token: 1 has to be predicted, 0
                              * bears no loss */
    struct values lengths;   /* int32, > 0: tokens of each document in it, in
                              * order; their sum is the sample's length */
};

/* dataset_read(), and the marks of all of the sample's tokens. Marks that do
 * not fit the tokens are ERR_DATA here as there. */
enum err dataset_read_marked(struct dataset *dataset, int64_t index,
                             int32_t *tokens, int64_t capacity, int64_t *length,
                             struct dataset_marks *marks);

/* Check all checksums of the file of shard `index` that index and sidecar
 * record and that are known here. Shards without samples are checked too.
 * NULL: unwatched. */
enum err dataset_verify_shard(struct dataset *dataset, int64_t index,
                              const struct dataset_watch *watch);

/* Its SHA-256. */
enum err dataset_shard_sha256(struct dataset *dataset, int64_t index,
                              char hex[65]);

/* The names of the shards' checksums, "sha1, xxh64", of those known here or of
 * the others; cut at `bytes`. */
void dataset_checksums(const struct dataset *dataset, bool known, char *names,
                       size_t bytes);
