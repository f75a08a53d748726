/* What a format of data sets provides: how files in a folder hold samples. All
 * else about a data set is the same for every format: its description
 * (src/data/set/sidecar.h), the vocabulary that tokens are checked against, the
 * identity (src/data/set/dataset.c), the order of samples.
 *
 * A further format is a file with its row, declared and listed below. Making
 * data sets (src/data/prepare/tokenize.h) is not part of this: those are MDS.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/array.h"
#include "src/base/digest.h"
#include "src/base/err.h"
#include "src/data/remote/cache.h"
#include "src/data/set/sidecar.h"
#include "src/data/set/values.h"

struct dataset_contents {
    int64_t samples;    /* > 0 */
    int64_t shards;     /* files that are checked one by one, > 0 */
    int64_t bytes;      /* of all shards */
    int64_t largest;    /* shard's bytes */
    int64_t longest;    /* sample's tokens; 0: the index does not tell */
    int64_t unchecked;  /* shards without a checksum that is known here */
    size_t index_bytes; /* in memory, of all shards */
    size_t index_text;  /* and while it was read */
    bool lengths;       /* every sample tells the lengths of its documents */
};

/* Asked before every MiB of a long reading. Once it says false, the reading
 * ends with ERR_OK and has found nothing. */
struct dataset_watch {
    bool (*go_on)(void *self);
    void *self;
};

/* Where the files of a set are that are not in its folder. */
struct dataset_access {
    /* of a set at an address, whose index the folder has; NULL: the format
     * makes one if it needs one, and gives it to the caller in any case */
    struct cache *cache;
    const struct cache_options *options;
    const void *image; /* of the index, by the format's image(); NULL: none */
};

struct dataset_sample {
    struct values values;    /* lent until the next read, as the others */
    struct values loss_mask; /* a uint8 for each token; count 0: none */
    struct values lengths;   /* int32, of each document; count 0: none */
    const char *file;        /* where it is, for messages; lent likewise */
    int64_t number;          /* which of that file's samples it is */
};

/* Errors of all of these name the file. What does not agree with the index or
 * with itself is ERR_DATA; whatever the files hold, nothing outside of them is
 * read. Samples and shards are in their ranges. */
struct dataset_format {
    /* The file that every data set of this format has and no other: a folder
     * with it is one, and its path, inode and times tell copies apart. */
    const char *index;
    /* Read the index in the folder, which is there, without a look at the
     * shards. The sidecar may add to it (token_type, shards_sha256); it is lent
     * for this call. A set without samples is ERR_DATA. The cache outlives the
     * state. */
    enum err (*open)(const char *folder, const struct sidecar *sidecar,
                     struct dataset_access *access,
                     struct dataset_contents *contents, void **state);
    void (*close)(void *state);
    /* Add what the index says behind what `images` has, a multiple of 8 bytes.
     * Who opens with that as access->image reads no file, and has the contents
     * and the sidecar already; it stays where it is until the state is closed. */
    enum err (*image)(const void *state, struct buffer *images);
    /* Add what identifies the contents, and nothing that the sidecar says.
     * Once, right after it is opened. */
    enum err (*identify)(void *state, struct digest *digest);
    /* Samples of one shard. */
    int64_t (*samples)(const void *state, int64_t shard);
    /* As dataset_look(), dataset_verify_shard(), dataset_shard_sha256() and
     * dataset_checksums(). */
    enum err (*look)(const void *state, int64_t shard);
    enum err (*verify)(void *state, int64_t shard,
                       const struct dataset_watch *watch);
    enum err (*sha256)(void *state, int64_t shard, char hex[65]);
    void (*checksums)(const void *state, bool known, char *names, size_t bytes);
    /* As dataset_shard_is_cached(). */
    bool (*is_cached)(const void *state, int64_t shard);
    /* The sample will be read soon; by any thread. NULL: nothing to do. */
    void (*want)(const void *state, int64_t sample);
    enum err (*read)(void *state, int64_t sample, struct dataset_sample *out);
};

/* The first whose index is there has the folder. */
extern const struct dataset_format mds_set_format;
#define DATASET_FORMATS &mds_set_format
