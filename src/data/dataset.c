#include "src/data/dataset.h"

#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/data/checksum.h"
#include "src/data/mds.h"
#include "src/data/mds_index.h"
#include "src/data/regular.h"
#include "src/data/tokenizer.h"

/* Names of data sets in a message. */
#define DATASET_NAMES_MAX 6

struct dataset_file {
    struct mds_shard *shard; /* NULL: not open */
    bool known;              /* its head is right */
    uint64_t used;           /* when last */
};

struct dataset {
    char path[FSIO_PATH_MAX];
    struct sidecar sidecar; /* without shards_sha256 */
    bool described;         /* the sidecar is the file */
    char id[65];
    struct mds_index *index;
    int64_t *first;             /* first sample of each shard, and the total */
    struct dataset_file *files; /* one per shard */
    int64_t open;               /* how many are */
    int64_t open_max;
    uint64_t clock;
    struct mds_buffer buffer;
};

/* What the tokenizer's hash says already is left out, so that the identity of a
 * set is what it was before the sidecar could say more. */
static enum err dataset_identify_more(struct dataset *dataset,
                                      struct digest *digest)
{
    char text[160];
    const struct sidecar *sidecar = &dataset->sidecar;
    int64_t eos = tokenizer_eos_of(sidecar->tokenizer_sha256);
    if (sidecar->eos_token != eos || sidecar->bos_token >= 0 ||
        sidecar->token_type != 0) {
        snprintf(text, sizeof text, "\neos %lld, bos %lld, type %d\n",
                 (long long)sidecar->eos_token, (long long)sidecar->bos_token,
                 sidecar->token_type);
        TRY(digest_update(digest, text, strlen(text)));
    }
    if (sidecar->shards_sha256 != NULL)
        TRY(digest_update(digest, sidecar->shards_sha256,
                          64 * (size_t)sidecar->shards_hashed));
    return ERR_OK;
}

static enum err dataset_identify(struct dataset *dataset)
{
    enum err rc = ERR_OK;
    struct digest *digest = NULL;
    const char *tokenizer = dataset->sidecar.tokenizer_sha256;
    TRY_OUT(digest_create(&digest));
    TRY_OUT(digest_update(digest, dataset->index->text,
                          dataset->index->text_bytes));
    TRY_OUT(digest_update(digest, tokenizer, strlen(tokenizer)));
    TRY_OUT(dataset_identify_more(dataset, digest));
    TRY_OUT(digest_finish(digest, dataset->id));
out:
    digest_destroy(digest);
    return rc;
}

static enum err dataset_number_samples(struct dataset *dataset)
{
    const struct mds_index *index = dataset->index;
    size_t count = (size_t)index->shards + 1;
    if (index->samples == 0)
        return err_set(ERR_DATA,
                       "%s: there are no samples in it; make another data set "
                       "with tessera-data tokenize",
                       dataset->path);
    dataset->first = calloc(count, sizeof *dataset->first);
    dataset->files = calloc(count, sizeof *dataset->files);
    if (dataset->first == NULL || dataset->files == NULL)
        return err_set(ERR_MEMORY, "%s: no memory for %zu shards",
                       dataset->path, count);
    for (int64_t s = 0; s < index->shards; s++)
        dataset->first[s + 1] = dataset->first[s] + index->shard[s].samples;
    return ERR_OK;
}

static int dataset_is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Say what is there in place of an index. */
static enum err dataset_no_index(const char *path)
{
    char index[FSIO_PATH_MAX];
    char names[512] = "";
    struct dirent **entries = NULL;
    int found = 0;
    int count = scandir(path, &entries, dataset_is_shown, alphasort);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        size_t length = strlen(names);
        if (fsio_path(index, "%s/%s/%s", path, name, MDS_INDEX_NAME) ==
                ERR_OK &&
            fsio_exists(index) && found++ < DATASET_NAMES_MAX)
            snprintf(names + length, sizeof names - length, "%s%s/%s",
                     length > 0 ? ", " : "", path, name);
        free(entries[i]);
    }
    free(entries);
    if (found > 0)
        return err_set(ERR_DATA,
                       "%s is not a data set but has %d in it; name one of "
                       "them: %s%s",
                       path, found, names,
                       found > DATASET_NAMES_MAX ? ", ..." : "");
    return err_set(ERR_DATA,
                   "%s/%s: no such file; make a data set with: tessera-data "
                   "tokenize --out %s FILE...",
                   path, MDS_INDEX_NAME, path);
}

static enum err dataset_check_path(const char *path)
{
    char index[FSIO_PATH_MAX];
    TRY(regular_local(path));
    TRY(fsio_path(index, "%s/%s", path, MDS_INDEX_NAME));
    if (!fsio_exists(index))
        return dataset_no_index(path);
    return ERR_OK;
}

static enum err dataset_shard_path(const struct dataset *dataset, int64_t index,
                                   char path[FSIO_PATH_MAX])
{
    return fsio_path(path, "%s/%s", dataset->path,
                     dataset->index->shard[index].basename);
}

enum err dataset_look(const struct dataset *dataset, int64_t index)
{
    char path[FSIO_PATH_MAX];
    TRY(dataset_shard_path(dataset, index, path));
    return mds_shard_check(path, &dataset->index->shard[index]);
}

static enum err dataset_look_at_all(const struct dataset *dataset)
{
    for (int64_t s = 0; s < dataset->index->shards; s++)
        TRY(dataset_look(dataset, s));
    return ERR_OK;
}

/* What only the sidecar knows of the shards. */
static enum err dataset_describe_shards(struct dataset *dataset)
{
    enum err rc = ERR_OK;
    char hex[65] = "";
    struct mds_index *index = dataset->index;
    const struct sidecar *sidecar = &dataset->sidecar;
    int64_t hashed = sidecar->shards_hashed;
    if (hashed != 0 && hashed != index->shards)
        return err_set(ERR_DATA,
                       "%s/%s: has digests of %lld shards, but the index has "
                       "%lld; copy the data set again",
                       dataset->path, SIDECAR_NAME, (long long)hashed,
                       (long long)index->shards);
    for (int64_t s = 0; s < index->shards; s++) {
        struct mds_shard_info *info = &index->shard[s];
        if (sidecar->token_type != 0 && !info->tokens.bytes)
            return err_set(ERR_USAGE,
                           "%s: a token type (--token-type) is for columns of "
                           "'bytes'; this one names its own, %s",
                           dataset->path,
                           info->tokens.type != 0
                               ? values_type(info->tokens.type)->name
                               : "in every sample");
        if (sidecar->token_type != 0)
            info->tokens.type = sidecar->token_type;
        if (hashed == 0)
            continue;
        memcpy(hex, sidecar->shards_sha256 + 64 * s, 64);
        rc = mds_index_add_hash(info, "sha256", hex);
        if (rc != ERR_OK) {
            err_prefix(rc, "%s/%s", dataset->path, SIDECAR_NAME);
            goto out;
        }
    }
out:
    return rc;
}

static enum err dataset_create(const char *path, const struct sidecar *sidecar,
                               bool look, struct dataset **out)
{
    enum err rc = ERR_OK;
    struct dataset *dataset = calloc(1, sizeof *dataset);
    if (dataset == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", path);
    dataset->sidecar = *sidecar;
    TRY_OUT(fsio_path(dataset->path, "%s", path));
    TRY_OUT(dataset_check_path(path));
    TRY_OUT(mds_index_read(path, &dataset->index));
    TRY_OUT(dataset_number_samples(dataset));
    TRY_OUT(dataset_describe_shards(dataset));
    TRY_OUT(regular_limit(&dataset->open_max));
    if (look)
        TRY_OUT(dataset_look_at_all(dataset));
    TRY_OUT(dataset_identify(dataset));
    dataset->sidecar.shards_sha256 = NULL; /* the caller's */
    *out = dataset;
    dataset = NULL;
out:
    dataset_close(dataset);
    return rc;
}

enum err dataset_open_with(const char *path, const struct sidecar *sidecar,
                           struct dataset **out)
{
    assert(path != NULL && sidecar != NULL && out != NULL);
    return dataset_create(path, sidecar, true, out);
}

static enum err dataset_open_described(const char *path, bool look,
                                       struct dataset **out)
{
    assert(path != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct sidecar sidecar = { 0 };
    struct dataset *dataset = NULL;
    TRY_OUT(dataset_check_path(path));
    TRY_OUT(sidecar_read(path, &sidecar));
    TRY_OUT(dataset_create(path, &sidecar, look, &dataset));
    dataset->described = true;
    if (sidecar.samples != dataset->index->samples) {
        rc = err_set(ERR_DATA,
                     "%s/%s: says %lld samples, but the index has %lld; copy "
                     "the data set again",
                     path, SIDECAR_NAME, (long long)sidecar.samples,
                     (long long)dataset->index->samples);
        goto out;
    }
    *out = dataset;
    dataset = NULL;
out:
    sidecar_release(&sidecar);
    dataset_close(dataset);
    return rc;
}

enum err dataset_open(const char *path, struct dataset **out)
{
    return dataset_open_described(path, true, out);
}

enum err dataset_open_unseen(const char *path, struct dataset **out)
{
    return dataset_open_described(path, false, out);
}

void dataset_close(struct dataset *dataset)
{
    if (dataset == NULL)
        return;
    for (int64_t s = 0; dataset->files != NULL && s < dataset->index->shards;
         s++)
        mds_shard_close(dataset->files[s].shard);
    free(dataset->buffer.data);
    free(dataset->files);
    mds_index_destroy(dataset->index);
    free(dataset->first);
    free(dataset);
}

int64_t dataset_samples(const struct dataset *dataset)
{
    return dataset->index->samples;
}

int64_t dataset_tokens(const struct dataset *dataset)
{
    return dataset->sidecar.tokens;
}

int64_t dataset_shards(const struct dataset *dataset)
{
    return dataset->index->shards;
}

int64_t dataset_vocab_size(const struct dataset *dataset)
{
    return dataset->sidecar.vocab_size;
}

int64_t dataset_eos_token(const struct dataset *dataset)
{
    return dataset->sidecar.eos_token;
}

int64_t dataset_bos_token(const struct dataset *dataset)
{
    return dataset->sidecar.bos_token;
}

int64_t dataset_longest(const struct dataset *dataset)
{
    int64_t longest = dataset->sidecar.longest;
    for (int64_t s = 0; longest == 0 && s < dataset->index->shards; s++)
        if (dataset->index->shard[s].tokens.count == 0)
            return 0;
    for (int64_t s = 0; s < dataset->index->shards; s++)
        if (dataset->index->shard[s].tokens.count > longest)
            longest = dataset->index->shard[s].tokens.count;
    return longest;
}

int64_t dataset_bytes(const struct dataset *dataset)
{
    int64_t bytes = 0;
    for (int64_t s = 0; s < dataset->index->shards; s++)
        bytes += dataset->index->shard[s].bytes;
    return bytes;
}

int64_t dataset_largest(const struct dataset *dataset)
{
    int64_t largest = 0;
    for (int64_t s = 0; s < dataset->index->shards; s++)
        if (dataset->index->shard[s].bytes > largest)
            largest = dataset->index->shard[s].bytes;
    return largest;
}

const char *dataset_id(const struct dataset *dataset)
{
    return dataset->id;
}

const char *dataset_tokenizer_sha256(const struct dataset *dataset)
{
    return dataset->sidecar.tokenizer_sha256;
}

const char *dataset_tokenizer(const struct dataset *dataset)
{
    return dataset->sidecar.tokenizer;
}

const char *dataset_path(const struct dataset *dataset)
{
    return dataset->path;
}

/* The last shard whose first sample is at or before `sample`; of several with
 * the same first sample that is the only one with samples. */
static int64_t dataset_find_shard(const struct dataset *dataset, int64_t sample)
{
    int64_t low = 0, high = dataset->index->shards - 1;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (dataset->first[middle] <= sample)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Close the shard that was not used for longest. */
static void dataset_evict(struct dataset *dataset)
{
    struct dataset_file *oldest = NULL;
    for (int64_t s = 0; s < dataset->index->shards; s++) {
        struct dataset_file *file = &dataset->files[s];
        if (file->shard != NULL &&
            (oldest == NULL || file->used < oldest->used))
            oldest = file;
    }
    assert(oldest != NULL);
    mds_shard_close(oldest->shard);
    oldest->shard = NULL;
    dataset->open--;
}

static enum err dataset_open_shard(struct dataset *dataset, int64_t index,
                                   struct mds_shard **out)
{
    char path[FSIO_PATH_MAX];
    struct dataset_file *file = &dataset->files[index];
    if (file->shard == NULL) {
        if (dataset->open == dataset->open_max)
            dataset_evict(dataset);
        TRY(dataset_shard_path(dataset, index, path));
        TRY(mds_shard_open(path, &dataset->index->shard[index], file->known,
                           &file->shard));
        file->known = true;
        dataset->open++;
    }
    file->used = ++dataset->clock;
    *out = file->shard;
    return ERR_OK;
}

enum err dataset_read(struct dataset *dataset, int64_t index, int32_t *tokens,
                      int64_t capacity, int64_t *length)
{
    enum err rc = ERR_OK;
    struct mds_shard *shard = NULL;
    struct values values;
    assert(index >= 0 && index < dataset->index->samples);
    assert(capacity >= 0 && (tokens != NULL || capacity == 0));
    int64_t s = dataset_find_shard(dataset, index);
    int64_t sample = index - dataset->first[s];
    TRY_OUT(dataset_open_shard(dataset, s, &shard));
    TRY_OUT(mds_shard_read(shard, sample, &dataset->buffer, &values));
    *length = values.count;
    int64_t count = *length < capacity ? *length : capacity;
    if (count == 0)
        return ERR_OK;
    rc = values_tokens(&values, count, dataset->sidecar.vocab_size, tokens);
    if (rc != ERR_OK)
        rc = err_set(rc, "%s: sample %lld: %s%s", mds_shard_path(shard),
                     (long long)sample, err_text(),
                     dataset->described
                         ? " of " SIDECAR_NAME
                         : "; give the vocabulary of the set's tokenizer: "
                           "--vocab-size N --tokenizer NAME");
out:
    return rc;
}

enum err dataset_verify_shard(struct dataset *dataset, int64_t index,
                              const struct mds_watch *watch)
{
    struct mds_shard *shard = NULL;
    assert(index >= 0 && index < dataset->index->shards);
    TRY(dataset_open_shard(dataset, index, &shard));
    return mds_shard_verify(shard, watch);
}

enum err dataset_shard_sha256(struct dataset *dataset, int64_t index,
                              char hex[65])
{
    struct mds_shard *shard = NULL;
    assert(index >= 0 && index < dataset->index->shards);
    TRY(dataset_open_shard(dataset, index, &shard));
    return mds_shard_sha256(shard, hex);
}

/* Is `name` one of "a, b, c"? */
static bool dataset_is_listed(const char *names, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)) != NULL; at++)
        if ((at == names || at[-1] == ' ') &&
            (at[length] == '\0' || at[length] == ','))
            return true;
    return false;
}

void dataset_checksums(const struct dataset *dataset, bool known, char *names,
                       size_t bytes)
{
    names[0] = '\0';
    for (int64_t s = 0; s < dataset->index->shards; s++) {
        const struct mds_shard_info *info = &dataset->index->shard[s];
        for (int h = 0; h < info->hashes; h++) {
            const char *name = info->hash[h].name;
            size_t length = strlen(names);
            if ((checksum_digits(name) > 0) == known &&
                !dataset_is_listed(names, name))
                snprintf(names + length, bytes - length, "%s%s",
                         length > 0 ? ", " : "", name);
        }
    }
}

int64_t dataset_unchecked(const struct dataset *dataset)
{
    int64_t unchecked = dataset->index->shards;
    for (int64_t s = 0; s < dataset->index->shards; s++) {
        const struct mds_shard_info *info = &dataset->index->shard[s];
        bool known = false;
        for (int h = 0; h < info->hashes; h++)
            known = known || checksum_digits(info->hash[h].name) > 0;
        unchecked -= known ? 1 : 0;
    }
    return unchecked;
}
