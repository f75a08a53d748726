/* MDS as a format of data sets (src/data/set/dataset_format.h). How its index,
 * its shards and their samples are found and read is known to mds_index.c,
 * mds_shards.c and mds.c; here is what a data set is asked, in their words. */
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/new.h"
#include "src/data/codec/checksum.h"
#include "src/data/set/dataset_format.h"
#include "src/data/mds/mds_shards.h"

struct mds_set {
    struct mds_shards *shards;
    int token_type; /* of tokens in bytes; 0: int64 */
    struct buffer buffer;
};

/* The sidecar may name the type of tokens that are bytes. */
static enum err mds_set_token_type(struct mds_set *set, int type)
{
    const struct mds_index *index = mds_shards_index(set->shards);
    for (int64_t l = 0; type != 0 && l < index->layouts; l++) {
        const struct mds_layout *layout = index->layout[l];
        const struct mds_encoding *tokens =
            &layout->column[layout->role[MDS_TOKENS]].encoding;
        if (tokens->kind != MDS_BYTES)
            return err_set(ERR_USAGE,
                           "%s: a token type (--token-type) is for columns of "
                           "'bytes'; this one names its own, %s",
                           mds_shards_folder(set->shards),
                           tokens->type != 0 ? values_type(tokens->type)->name
                                             : "in every sample");
    }
    set->token_type = type;
    return ERR_OK;
}

/* What only the sidecar knows of the shards. */
static enum err mds_set_describe_shards(struct mds_set *set,
                                        const struct sidecar *sidecar)
{
    struct mds_index *index = mds_shards_index(set->shards);
    int64_t hashed = sidecar->shards_hashed;
    if (hashed != 0 && hashed != index->shards)
        return err_set(ERR_DATA,
                       "%s/%s: has digests of %lld shards, but the index has "
                       "%lld; copy the data set again",
                       mds_shards_folder(set->shards), SIDECAR_NAME,
                       (long long)hashed, (long long)index->shards);
    /* from here on they are checksums of the index like others */
    if (hashed == 0)
        return ERR_OK;
    return err_prefix(mds_pack_add_sha256(&index->pack, sidecar->shards_sha256),
                      "%s/%s", mds_shards_folder(set->shards), SIDECAR_NAME);
}

static void mds_set_count(const struct mds_index *index,
                          struct dataset_contents *out)
{
    bool fixed = true; /* the index has the length of every sample */
    *out =
        (struct dataset_contents){ .samples = index->samples,
                                   .shards = index->shards,
                                   .index_bytes =
                                       mds_pack_bytes(&index->pack) +
                                       sizeof(uint16_t) * (size_t)index->shards,
                                   .index_text = index->text_bytes,
                                   .lengths = true };
    for (int64_t s = 0; s < index->shards; s++) {
        const struct mds_shard_info info = mds_pack_shard(&index->pack, s);
        struct cache_shard files;
        mds_pack_files(&index->pack, s, &files);
        out->bytes += info.bytes;
        if (info.bytes > out->largest)
            out->largest = info.bytes;
        /* 0 where samples have lengths of their own */
        int64_t count =
            info.layout->column[info.layout->role[MDS_TOKENS]].encoding.count;
        fixed = fixed && count > 0;
        out->lengths &= info.layout->role[MDS_LENGTHS] >= 0;
        if (count > out->longest)
            out->longest = count;
        bool known = false;
        for (int h = 0; h < files.raw.hashes; h++)
            known = known || checksum_digits(files.raw.hash[h].name) > 0;
        out->unchecked += !known;
    }
    if (!fixed)
        out->longest = 0;
}

static void mds_set_close(void *state)
{
    struct mds_set *set = state;
    if (set == NULL)
        return;
    mds_shards_close(set->shards);
    free(set->buffer.data);
    free(set);
}

static enum err mds_set_open(const char *folder, const struct sidecar *sidecar,
                             struct dataset_access *access,
                             struct dataset_contents *contents, void **state)
{
    enum err rc = ERR_OK;
    struct mds_set *set = NULL;
    TRY(new_zeroed(&set, 1));
    bool read = access->image == NULL;
    TRY_OUT(mds_shards_open(folder, access->image, &set->shards));
    if (read)
        TRY_OUT(mds_index_check(mds_shards_index(set->shards), folder));
    TRY_OUT(mds_set_token_type(set, sidecar->token_type));
    if (read)
        TRY_OUT(mds_set_describe_shards(set, sidecar));
    TRY_OUT(mds_shards_use_cache(set->shards, access));
    if (read)
        mds_set_count(mds_shards_index(set->shards), contents);
out:
    return new_or_none(rc, set, state, mds_set_close);
}

/* That was the last use of the text, which is ten times all else. */
static enum err mds_set_identify(void *state, struct digest *digest)
{
    struct mds_set *set = state;
    struct mds_index *index = mds_shards_index(set->shards);
    enum err rc = digest_update(digest, index->text, index->text_bytes);
    free(index->text);
    index->text = NULL;
    index->text_bytes = 0;
    return rc;
}

static enum err mds_set_image(const void *state, struct buffer *images)
{
    const struct mds_set *set = state;
    return mds_index_image(mds_shards_index(set->shards), images);
}

static int64_t mds_set_samples(const void *state, int64_t index)
{
    const struct mds_set *set = state;
    return mds_pack_shard(&mds_shards_index(set->shards)->pack, index).samples;
}

static enum err mds_set_look(const void *state, int64_t index)
{
    return mds_shards_look(((const struct mds_set *)state)->shards, index);
}

static enum err mds_set_read(void *state, int64_t index,
                             struct dataset_sample *out)
{
    struct mds_set *set = state;
    struct mds_shard *shard = NULL;
    struct mds_sample sample;
    int64_t s = mds_pack_find(&mds_shards_index(set->shards)->pack, index,
                              &out->number);
    TRY(mds_shards_get(set->shards, s, &shard));
    out->file = mds_shard_path(shard);
    TRY(mds_shard_read(shard, out->number, set->token_type, &set->buffer,
                       &sample));
    out->values = sample.value[MDS_TOKENS];
    out->loss_mask = sample.value[MDS_LOSS_MASK];
    out->lengths = sample.value[MDS_LENGTHS];
    return ERR_OK;
}

static bool mds_set_is_cached(const void *state, int64_t index)
{
    return mds_shards_is_cached(((const struct mds_set *)state)->shards, index);
}

static void mds_set_want(const void *state, int64_t sample)
{
    mds_shards_want(((const struct mds_set *)state)->shards, sample);
}

static enum err mds_set_verify(void *state, int64_t index,
                               const struct dataset_watch *watch)
{
    struct mds_set *set = state;
    struct mds_shard *shard = NULL;
    struct cache_shard files;
    TRY(mds_shards_get(set->shards, index, &shard));
    mds_pack_files(&mds_shards_index(set->shards)->pack, index, &files);
    return mds_shard_verify(shard, &files.raw, watch);
}

static enum err mds_set_sha256(void *state, int64_t index, char hex[65])
{
    struct mds_set *set = state;
    struct mds_shard *shard = NULL;
    TRY(mds_shards_get(set->shards, index, &shard));
    return mds_shard_sha256(shard, hex);
}

/* Is `name` one of "a, b, c"? */
static bool mds_set_is_listed(const char *names, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)) != NULL; at++)
        if ((at == names || at[-1] == ' ') &&
            (at[length] == '\0' || at[length] == ','))
            return true;
    return false;
}

static void mds_set_checksums(const void *state, bool known, char *names,
                              size_t bytes)
{
    const struct mds_set *set = state;
    const struct mds_index *index = mds_shards_index(set->shards);
    names[0] = '\0';
    for (int64_t s = 0; s < index->shards; s++) {
        struct cache_shard files;
        mds_pack_files(&index->pack, s, &files);
        for (int h = 0; h < files.raw.hashes; h++) {
            const char *name = files.raw.hash[h].name;
            if ((checksum_digits(name) > 0) == known &&
                !mds_set_is_listed(names, name))
                clean_join(names, bytes, ", ", "%s", name);
        }
    }
}

const struct dataset_format mds_set_format = {
    .index = MDS_INDEX_NAME,
    .open = mds_set_open,
    .close = mds_set_close,
    .identify = mds_set_identify,
    .image = mds_set_image,
    .samples = mds_set_samples,
    .look = mds_set_look,
    .verify = mds_set_verify,
    .sha256 = mds_set_sha256,
    .checksums = mds_set_checksums,
    .is_cached = mds_set_is_cached,
    .read = mds_set_read,
    .want = mds_set_want,
};
