/* A data set of any format: opened, described, identified and read. What its
 * files look like is the format's (src/data/set/dataset_format.h).
 *
 * Two files make a set: the index, which the format reads, and tessera.json,
 * which says what formats do not (vocabulary, tokenizer). Opening joins them
 * and asks whether they agree; a shard's bytes are only looked at when a sample
 * is read. The identity is a digest over both, of what changes the tokens that
 * a run sees and their order, and of nothing else: not of the path, for data
 * may move, and not of names in the description. */
#include "src/data/set/dataset.h"

#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/clean.h"
#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/data/remote/store_url.h"
#include "src/text/tokenizer/tokenizer.h"

/* Names of data sets in a message. */
#define DATASET_NAMES_MAX 6

struct dataset {
    char path[FSIO_PATH_MAX];   /* or address */
    char folder[FSIO_PATH_MAX]; /* with the index */
    struct cache *cache;        /* NULL: all files are in the folder */
    struct sidecar sidecar;     /* without shards_sha256 */
    bool described;             /* the sidecar is the file */
    char id[65];
    char tokenizer_file[FSIO_PATH_MAX]; /* "": none */
    const struct dataset_format *format;
    void *state; /* the format's */
    struct dataset_contents contents;
};

static const struct dataset_format *const dataset_formats[] = {
    DATASET_FORMATS
};
#define DATASET_FORMAT_COUNT                                                   \
    (sizeof dataset_formats / sizeof dataset_formats[0])

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
    assert((sidecar->shards_sha256 != NULL) == (sidecar->shards_hashed > 0));
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
    TRY_OUT(dataset->format->identify(dataset->state, digest));
    TRY_OUT(digest_update(digest, tokenizer, strlen(tokenizer)));
    TRY_OUT(dataset_identify_more(dataset, digest));
    TRY_OUT(digest_finish(digest, dataset->id));
out:
    digest_destroy(digest);
    return rc;
}

/* The format whose index is in the folder; *out NULL: none. */
static enum err dataset_find_format(const char *folder,
                                    const struct dataset_format **out)
{
    char index[FSIO_PATH_MAX];
    *out = NULL;
    for (size_t f = 0; f < DATASET_FORMAT_COUNT && *out == NULL; f++) {
        TRY(fsio_path(index, "%s/%s", folder, dataset_formats[f]->index));
        if (fsio_exists(index))
            *out = dataset_formats[f];
    }
    return ERR_OK;
}

static int dataset_is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Say what is there in place of an index; tokenizing makes the first format. */
static enum err dataset_no_index(const char *path)
{
    char folder[FSIO_PATH_MAX];
    const struct dataset_format *format = NULL;
    char names[512] = "";
    struct dirent **entries = NULL;
    int found = 0;
    int count = scandir(path, &entries, dataset_is_shown, alphasort);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        if (fsio_path(folder, "%s/%s", path, name) == ERR_OK &&
            dataset_find_format(folder, &format) == ERR_OK && format != NULL &&
            found++ < DATASET_NAMES_MAX)
            clean_join(names, sizeof names, ", ", "%s/%s", path, name);
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
                   path, dataset_formats[0]->index, path);
}

/* A path, or an address, whose index is fetched: the folder that has it then.
 */
static enum err dataset_locate(struct dataset *dataset, const char *path,
                               const struct cache_options *options,
                               bool described)
{
    const char *names[] = { dataset_formats[0]->index, SIDECAR_NAME,
                            TOKENIZER_COPY_NAME };
    TRY(fsio_path(dataset->path, "%s", path));
    if (store_url_is(path)) {
        TRY(cache_open(path, options, names, described ? 2 : 1,
                       described ? 3 : 1, &dataset->cache));
        path = cache_folder(dataset->cache);
    }
    return fsio_path(dataset->folder, "%s", path);
}

/* `given`: in place of the file. */
enum err dataset_open_as(const char *path, const struct sidecar *given,
                         bool look, const struct cache_options *options,
                         struct dataset **out)
{
    assert(path != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct sidecar sidecar = { 0 };
    struct dataset *dataset = NULL;
    TRY(new_zeroed(&dataset, 1));
    TRY_OUT(dataset_locate(dataset, path, options, given == NULL));
    TRY_OUT(dataset_find_format(dataset->folder, &dataset->format));
    if (dataset->format == NULL)
        TRY_OUT(dataset_no_index(path));
    dataset->described = given == NULL;
    if (given == NULL)
        TRY_OUT(sidecar_read(dataset->folder, &sidecar));
    dataset->sidecar = given == NULL ? sidecar : *given;
    TRY_OUT(tokenizer_copy_find(dataset->folder, dataset->sidecar.tokenizer,
                                dataset->sidecar.tokenizer_sha256,
                                dataset->tokenizer_file));
    /* of an address the cache is there already, for the index came through it;
     * of packed shards the format may make one, which is ours to close */
    struct dataset_access access = { dataset->cache, options, NULL };
    rc = dataset->format->open(dataset->folder, &dataset->sidecar, &access,
                               &dataset->contents, &dataset->state);
    dataset->cache = access.cache;
    TRY_OUT(rc);
    assert(dataset->contents.samples > 0 && dataset->contents.shards > 0);
    for (int64_t s = 0; look && s < dataset->contents.shards; s++)
        TRY_OUT(dataset_look(dataset, s));
    TRY_OUT(dataset_identify(dataset));
    if (given == NULL && sidecar.samples != dataset->contents.samples)
        TRY_OUT(
            err_set(ERR_DATA,
                    "%s/%s: says %lld samples, but the index has %lld; copy "
                    "the data set again",
                    path, SIDECAR_NAME, (long long)sidecar.samples,
                    (long long)dataset->contents.samples));
    dataset->sidecar.shards_sha256 = NULL; /* not ours to keep */
out:
    sidecar_release(&sidecar);
    return new_or_none(rc, dataset, out, dataset_close);
}

/* In front of what the format has to say. */
struct dataset_image {
    size_t bytes; /* with that; a multiple of 8 */
    struct dataset_copy copy;
    struct dataset dataset;
};

static int64_t dataset_ns(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

enum err dataset_copy(const struct dataset *dataset, struct dataset_copy *out)
{
    struct stat status;
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/%s", dataset->folder, dataset->format->index));
    if (stat(path, &status) != 0)
        return err_errno("%s: stat", path);
    *out = (struct dataset_copy){ .path = crc32c(0, path, strlen(path)),
                                  .inode = (int64_t)status.st_ino,
                                  .bytes = (int64_t)status.st_size,
                                  .modified_ns = dataset_ns(status.st_mtim),
                                  .changed_ns = dataset_ns(status.st_ctim) };
    return ERR_OK;
}

enum err dataset_image(const struct dataset *dataset, struct buffer *images)
{
    struct dataset_image head = { .dataset = *dataset };
    size_t begin = images->bytes;
    assert(begin % 8 == 0);
    TRY(dataset_copy(dataset, &head.copy));
    TRY(buffer_add(images, &head, sizeof head));
    TRY(dataset->format->image(dataset->state, images));
    TRY(buffer_add(images, "\0\0\0\0\0\0\0", -images->bytes % 8));
    size_t bytes = images->bytes - begin;
    memcpy(images->data + begin, &bytes, sizeof bytes);
    return ERR_OK;
}

enum err dataset_open_image(const void *images, const char *path,
                            const struct cache_options *options,
                            struct dataset **out)
{
    enum err rc = ERR_OK;
    struct dataset_copy copy;
    struct dataset *dataset = NULL;
    struct cache_options own = *options;
    const struct dataset_image *image = images;
    while (image->bytes > 0 && strcmp(image->dataset.path, path) != 0)
        image = (const void *)((const char *)image + image->bytes);
    *out = NULL;
    if (image->bytes == 0)
        return ERR_OK;
    TRY(new_zeroed(&dataset, 1));
    *dataset = image->dataset;
    dataset->cache = NULL;
    dataset->state = NULL;
    own.asked = true; /* by who has made the image */
    TRY_OUT(dataset_locate(dataset, path, &own, dataset->described));
    TRY_OUT(dataset_find_format(dataset->folder, &dataset->format));
    struct dataset_access access = { dataset->cache, &own, image + 1 };
    if (dataset->format != NULL && dataset_copy(dataset, &copy) == ERR_OK &&
        memcmp(&copy, &image->copy, sizeof copy) == 0)
        rc = dataset->format->open(dataset->folder, &dataset->sidecar, &access,
                                   &dataset->contents, &dataset->state);
    dataset->cache = access.cache;
    if (rc == ERR_OK && dataset->state == NULL) {
        dataset_close(dataset);
        dataset = NULL;
    }
out:
    return new_or_none(rc, dataset, out, dataset_close);
}

enum err dataset_open(const char *path, struct dataset **out)
{
    return dataset_open_as(path, NULL, true, &cache_defaults, out);
}

void dataset_close(struct dataset *dataset)
{
    if (dataset == NULL)
        return;
    /* its threads read tables that the format lends, so they end first; files
     * of it are open until the format has closed them */
    if (dataset->cache != NULL)
        cache_end(dataset->cache);
    if (dataset->state != NULL)
        dataset->format->close(dataset->state);
    cache_close(dataset->cache);
    free(dataset);
}

const struct dataset_contents *dataset_contents(const struct dataset *dataset)
{
    return &dataset->contents;
}

const struct sidecar *dataset_sidecar(const struct dataset *dataset)
{
    return &dataset->sidecar;
}

int64_t dataset_shard_samples(const struct dataset *dataset, int64_t index)
{
    assert(index >= 0 && index < dataset->contents.shards);
    return dataset->format->samples(dataset->state, index);
}

bool dataset_has_documents(const struct dataset *dataset)
{
    return dataset->contents.lengths || dataset->sidecar.eos_token >= 0 ||
           dataset->sidecar.bos_token >= 0;
}

int64_t dataset_longest(const struct dataset *dataset)
{
    return dataset->sidecar.longest > 0 ? dataset->sidecar.longest
                                        : dataset->contents.longest;
}

const char *dataset_id(const struct dataset *dataset)
{
    return dataset->id;
}

const char *dataset_tokenizer_file(const struct dataset *dataset)
{
    return dataset->tokenizer_file;
}

const char *dataset_path(const struct dataset *dataset)
{
    return dataset->path;
}

const char *dataset_folder(const struct dataset *dataset)
{
    return dataset->folder;
}

bool dataset_is_cached(const struct dataset *dataset)
{
    return dataset->cache != NULL;
}

bool dataset_shard_is_cached(const struct dataset *dataset, int64_t index)
{
    assert(index >= 0 && index < dataset->contents.shards);
    return dataset->cache != NULL &&
           dataset->format->is_cached(dataset->state, index);
}

void dataset_want(const struct dataset *dataset, int64_t index)
{
    assert(index >= 0 && index < dataset->contents.samples);
    if (dataset->format->want != NULL)
        dataset->format->want(dataset->state, index);
}

void dataset_stop(struct dataset *dataset, bool stop)
{
    if (dataset->cache != NULL)
        cache_stop(dataset->cache, stop);
}

const char *dataset_index(const struct dataset *dataset)
{
    return dataset->format->index;
}

/* Marks that do not fit the tokens would train something else. */
static enum err dataset_check_marks(const struct dataset_sample *sample)
{
    int64_t tokens = sample->values.count, sum = 0;
    const struct values *mask = &sample->loss_mask;
    const struct values *lengths = &sample->lengths;
    bool flags = true, positive = true;
    for (int64_t t = 0; t < mask->count; t++)
        flags = flags && mask->data[t] <= 1;
    for (int64_t d = 0; d < lengths->count && positive; d++) {
        int32_t length;
        memcpy(&length, lengths->data + 4 * d, sizeof length);
        positive = length > 0;
        sum += length;
    }
    if (mask->count > 0 && (mask->count != tokens || !flags))
        return err_set(ERR_DATA,
                       "loss_mask has to be one 0 or 1 for each of the %lld "
                       "tokens",
                       (long long)tokens);
    if (lengths->count > 0 && (!positive || sum != tokens))
        return err_set(ERR_DATA,
                       "lengths have to be the tokens of each document in the "
                       "sample, %lld together",
                       (long long)tokens);
    return ERR_OK;
}

enum err dataset_read_marked(struct dataset *dataset, int64_t index,
                             int32_t *tokens, int64_t capacity, int64_t *length,
                             struct dataset_marks *marks)
{
    struct dataset_sample sample;
    assert(index >= 0 && index < dataset->contents.samples);
    assert(capacity >= 0 && (tokens != NULL || capacity == 0));
    TRY(dataset->format->read(dataset->state, index, &sample));
    enum err rc = dataset_check_marks(&sample);
    TRY(err_prefix(rc, "%s: sample %lld", sample.file,
                   (long long)sample.number));
    *marks = (struct dataset_marks){ sample.loss_mask, sample.lengths };
    *length = sample.values.count;
    int64_t count = *length < capacity ? *length : capacity;
    if (count == 0)
        return ERR_OK;
    rc = values_tokens(&sample.values, count, dataset->sidecar.vocab_size,
                       tokens);
    if (rc == ERR_OK)
        return ERR_OK;
    return err_set(rc, "%s: sample %lld: %s%s", sample.file,
                   (long long)sample.number, err_text(),
                   dataset->described
                       ? " of " SIDECAR_NAME
                       : "; give the vocabulary of the set's tokenizer: "
                         "--vocab-size N --tokenizer NAME");
}

enum err dataset_read(struct dataset *dataset, int64_t index, int32_t *tokens,
                      int64_t capacity, int64_t *length)
{
    struct dataset_marks marks;
    return dataset_read_marked(dataset, index, tokens, capacity, length,
                               &marks);
}

enum err dataset_look(const struct dataset *dataset, int64_t index)
{
    assert(index >= 0 && index < dataset->contents.shards);
    return dataset->format->look(dataset->state, index);
}

enum err dataset_verify_shard(struct dataset *dataset, int64_t index,
                              const struct dataset_watch *watch)
{
    assert(index >= 0 && index < dataset->contents.shards);
    return dataset->format->verify(dataset->state, index, watch);
}

enum err dataset_shard_sha256(struct dataset *dataset, int64_t index,
                              char hex[65])
{
    assert(index >= 0 && index < dataset->contents.shards);
    return dataset->format->sha256(dataset->state, index, hex);
}

void dataset_checksums(const struct dataset *dataset, bool known, char *names,
                       size_t bytes)
{
    dataset->format->checksums(dataset->state, known, names, bytes);
}
