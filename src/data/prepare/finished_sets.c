/* Links shards under new names and writes their entries into one index.
 *
 * No shard is read: an entry of an index says all of a shard that another index
 * needs. Entries are taken over as JSON with whatever is in them, known here or
 * not; only the files' names change, for two sets have a shard.00000 each. A
 * hard link takes no space and no time, and the bytes are the same file's. What
 * stands beside an index (digests of shards that it has none of) has to be
 * there for all shards or for none, so the others' are computed where one set
 * has some. */
#include "src/data/prepare/finished_sets.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/base/regular.h"
#include "src/data/mds/mds_index.h"
#include "src/data/mds/mds_table.h"
#include "src/data/mds/mds_writer.h"
#include "src/data/prepare/progress.h"
#include "src/data/prepare/publish.h"
#include "src/data/prepare/scan.h"
#include "src/data/set/sidecar.h"

#define MERGE_COPY_BYTES ((size_t)1 << 20)

struct merge {
    struct publish publish;
    int (*stop)(void);
    json_t *shards; /* entries of the new index */
    struct sidecar sidecar;
    bool tokenizer; /* its file is there */
    char *digests; /* 64 of each shard, where a set has them beside its index */
    int64_t digest_bytes; /* that there is room for */
    bool digested;
    struct merge_result *result;
};

static enum err merge_copy(const char *from, const char *to)
{
    enum err rc = ERR_OK;
    int in = -1, out = -1;
    int64_t size = 0;
    char *buffer = NULL;
    TRY(new_room(&buffer, MERGE_COPY_BYTES));
    TRY_OUT(regular_open(from, &in, &size));
    out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (out < 0)
        TRY_OUT(err_errno("%s: create", to));
    for (int64_t at = 0; at < size; at += (int64_t)MERGE_COPY_BYTES) {
        int64_t rest = size - at;
        size_t part =
            rest < (int64_t)MERGE_COPY_BYTES ? (size_t)rest : MERGE_COPY_BYTES;
        TRY_OUT(fsio_pread(in, buffer, part, at, from));
        TRY_OUT(fsio_pwrite(out, buffer, part, at, to));
    }
    if (fsync(out) != 0)
        rc = err_errno("%s: fsync", to);
out:
    fsio_close(in);
    if (out >= 0 && close(out) != 0 && rc == ERR_OK)
        rc = err_errno("%s: close", to);
    free(buffer);
    return rc;
}

/* A link to what may be a link itself would break with it: to the file. */
static enum err merge_file(struct merge *merge, const char *from,
                           const char *name)
{
    char to[FSIO_PATH_MAX];
    TRY(fsio_path(to, "%s/%s", merge->publish.building, name));
    if (linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) == 0)
        return ERR_OK;
    /* another file system, or one without links: any reason is one to copy */
    if (errno == EEXIST)
        return err_errno("%s: link to %s", to, from);
    merge->result->copied++;
    return merge_copy(from, to);
}

/* The file that an entry names in raw_data or zip_data, under its new name;
 * *there false: the set does not have it. */
static enum err merge_entry_file(struct merge *merge, const char *set,
                                 const char *basename, const char *ending,
                                 json_t *data, bool *there)
{
    char from[FSIO_PATH_MAX], name[128];
    *there = false;
    if (basename[0] == '\0' || !json_is_object(data))
        return ERR_OK;
    snprintf(name, sizeof name, "shard.%05lld.mds%s",
             (long long)merge->result->shards, ending);
    TRY(fsio_path(from, "%s/%s", set, basename));
    *there = fsio_exists(from);
    if (*there)
        TRY(merge_file(merge, from, name));
    if (json_object_set_new(data, "basename", json_string(name)) != 0)
        return err_set(ERR_MEMORY, "%s: out of memory", from);
    return ERR_OK;
}

static enum err merge_shard(struct merge *merge, const char *set,
                            const struct cache_shard *files, json_t *entry)
{
    bool raw = false, zip = false;
    char ending[64] = "";
    if (files->compression != NULL) /* "zstd:3": .zstd */
        snprintf(ending, sizeof ending, ".%.*s",
                 (int)strcspn(files->compression, ":"), files->compression);
    TRY(merge_entry_file(merge, set, files->raw.name, "",
                         json_object_get(entry, "raw_data"), &raw));
    TRY(merge_entry_file(merge, set, files->zip.name, ending,
                         json_object_get(entry, "zip_data"), &zip));
    if (!raw && !zip)
        return err_set(ERR_DATA, "%s/%s: no such file", set, files->raw.name);
    if (json_array_append(merge->shards, entry) != 0)
        return err_set(ERR_MEMORY, "%s: out of memory", set);
    merge->result->shards++;
    return merge->stop != NULL && merge->stop() != 0
               ? err_set(ERR_IO, "interrupted; nothing was made")
               : ERR_OK;
}

/* Digests beside the index, which only some sets have, but then of all. */
static enum err merge_digests(struct merge *merge, struct dataset *dataset,
                              const struct sidecar *sidecar, int64_t shards)
{
    char hex[65];
    int64_t before = merge->result->shards;
    TRY(array_room(&merge->digests, &merge->digest_bytes,
                   (before + shards) * 64));
    for (int64_t s = 0; s < shards; s++) {
        if (sidecar->shards_sha256 != NULL)
            memcpy(hex, sidecar->shards_sha256 + 64 * s, 64);
        else
            TRY(dataset_shard_sha256(dataset, s, hex));
        memcpy(merge->digests + 64 * (before + s), hex, 64);
    }
    return ERR_OK;
}

static enum err merge_index(struct merge *merge, const char *set,
                            const struct mds_index *index)
{
    enum err rc = ERR_OK;
    json_t *root = json_loadb(index->text, index->text_bytes, 0, NULL);
    const json_t *shards = json_object_get(root, "shards");
    if (root == NULL) /* it was read before */
        return err_set(ERR_MEMORY, "%s: no memory for its index", set);
    assert(json_array_size(shards) == (size_t)index->shards);
    for (int64_t s = 0; s < index->shards; s++) {
        struct cache_shard files;
        mds_pack_files(&index->pack, s, &files);
        TRY_OUT(
            merge_shard(merge, set, &files, json_array_get(shards, (size_t)s)));
    }
out:
    json_decref(root);
    return rc;
}

/* What has to be the same for one set. */
static enum err merge_compare(const struct merge *merge, const char *first,
                              const char *set, const struct sidecar *sidecar)
{
    const struct sidecar *all = &merge->sidecar;
    const char *what =
        strcmp(sidecar->tokenizer_sha256, all->tokenizer_sha256) != 0
            ? "tokenizers"
        : sidecar->vocab_size != all->vocab_size ? "vocabularies"
        : sidecar->eos_token != all->eos_token ||
                sidecar->bos_token != all->bos_token
            ? "tokens that end or begin documents"
        : sidecar->token_type != all->token_type ? "types of tokens"
                                                 : NULL;
    if (what == NULL)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "%s and %s have different %s (%s, %s): a data set has one; "
                   "a run may read both as streams",
                   first, set, what, all->tokenizer, sidecar->tokenizer);
}

static void merge_add_sidecar(struct merge *merge,
                              const struct sidecar *sidecar)
{
    struct sidecar *all = &merge->sidecar;
    bool first = all->vocab_size == 0;
    bool known = sidecar->longest > 0 && (first || all->longest > 0);
    int64_t longest =
        sidecar->longest > all->longest ? sidecar->longest : all->longest;
    bool adopted = all->adopted || sidecar->adopted;
    int64_t samples = all->samples, tokens = all->tokens;
    if (first)
        *all = *sidecar;
    if (strcmp(all->unicode, sidecar->unicode) != 0)
        all->unicode[0] = '\0';
    all->shards_sha256 = NULL;
    all->shards_hashed = 0;
    all->samples = samples + sidecar->samples;
    all->tokens = tokens + sidecar->tokens;
    all->longest = known ? longest : 0;
    all->adopted = adopted;
}

static enum err merge_add(struct merge *merge, const char *first,
                          const char *set)
{
    enum err rc = ERR_OK;
    char copy[FSIO_PATH_MAX];
    struct sidecar sidecar = { 0 };
    struct mds_index *index = NULL;
    struct dataset *dataset = NULL;
    TRY_OUT(dataset_open(set, &dataset)); /* looks at every shard */
    if (strcmp(dataset_index(dataset), MDS_INDEX_NAME) != 0)
        TRY_OUT(err_set(ERR_UNSUPPORTED, "%s is no MDS data set", set));
    TRY_OUT(sidecar_read(set, &sidecar));
    if (merge->sidecar.vocab_size > 0)
        TRY_OUT(merge_compare(merge, first, set, &sidecar));
    TRY_OUT(mds_index_read(set, &index));
    if (merge->digested)
        TRY_OUT(merge_digests(merge, dataset, &sidecar, index->shards));
    TRY_OUT(merge_index(merge, set, index));
    const char *file = dataset_tokenizer_file(dataset);
    if (file[0] != '\0' && !merge->tokenizer) {
        TRY_OUT(fsio_path(copy, "%s/" TOKENIZER_COPY_NAME,
                          merge->publish.building));
        TRY_OUT(merge_copy(file, copy));
        merge->tokenizer = true;
    }
    merge_add_sidecar(merge, &sidecar);
out:
    mds_index_destroy(index);
    sidecar_release(&sidecar);
    dataset_close(dataset);
    return rc;
}

/* Whether one of the sets has digests that its index does not have. */
static enum err merge_look(struct merge *merge, char *const *sets, int count)
{
    for (int i = 0; i < count; i++) {
        struct sidecar sidecar;
        TRY(regular_local(sets[i]));
        TRY(sidecar_read(sets[i], &sidecar));
        merge->digested = merge->digested || sidecar.shards_sha256 != NULL;
        sidecar_release(&sidecar);
    }
    return ERR_OK;
}

static enum err merge_finish(struct merge *merge)
{
    assert(json_array_size(merge->shards) == (size_t)merge->result->shards);
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    const char *folder = merge->publish.building;
    json_t *index =
        json_pack("{s:i, s:O}", "version", 2, "shards", merge->shards);
    char *text = index != NULL
                     ? json_dumps(index, JSON_SORT_KEYS | JSON_ENSURE_ASCII)
                     : NULL;
    if (text == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "%s: no memory for the index", folder));
    merge->sidecar.shards_sha256 = merge->digests;
    merge->sidecar.shards_hashed =
        merge->digests != NULL ? merge->result->shards : 0;
    TRY_OUT(sidecar_write(folder, &merge->sidecar));
    TRY_OUT(fsio_path(path, "%s/" MDS_INDEX_NAME, folder));
    TRY_OUT(fsio_write_atomic(path, text, strlen(text)));
    merge->result->samples = merge->sidecar.samples;
    merge->result->tokens = merge->sidecar.tokens;
    rc = publish_commit(&merge->publish);
out:
    free(text);
    json_decref(index);
    return rc;
}

enum err merge_sets(const char *out, char *const *sets, int count,
                    int (*stop)(void), struct merge_result *result)
{
    assert(out != NULL && count > 0);
    enum err rc = ERR_OK;
    struct merge merge = { .stop = stop, .result = result };
    *result = (struct merge_result){ .samples = 0 };
    TRY_OUT(regular_local(out));
    TRY_OUT(merge_look(&merge, sets, count));
    merge.shards = json_array();
    if (merge.shards == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "out of memory"));
    TRY_OUT(publish_begin(&merge.publish, out, false));
    for (int i = 0; i < count; i++)
        TRY_OUT(merge_add(&merge, sets[0], sets[i]));
    TRY_OUT(merge_finish(&merge));
out:
    publish_end(&merge.publish);
    json_decref(merge.shards);
    free(merge.digests);
    return rc;
}

/* --- several sets of one ---
 *
 * The columns of samples are copied byte by byte, whatever they are: nothing is
 * decoded, so no encoding has to be known. Parts are cut where equal shares of the
 * samples end, so their sizes differ by one at most. An evaluation part is the last
 * samples, not drawn ones: neighbours are of one document, and would be on both
 * sides. */

#define SPLIT_POLL_SAMPLES 256

struct split {
    const struct split_options *options;
    const char *set;
    struct dataset *dataset;
    struct sidecar sidecar;
    struct mds_table *table;
    struct tokenizer *tokenizer; /* NULL: not here */
    struct publish publish;
    struct progress progress;
    int columns;
    struct mds_field *field; /* [columns] */
    struct mds_column *column;
};

static enum err split_poll(struct split *split)
{
    if (split->options->show)
        progress_update(&split->progress, split->progress.done);
    if (split->options->stop != NULL && split->options->stop() != 0)
        return err_set(ERR_IO, "interrupted; nothing was made");
    return ERR_OK;
}

static enum err split_sample(struct split *split, int64_t sample,
                             struct mds_writer *writer)
{
    const struct mds_span *columns = NULL;
    TRY(mds_table_spans(split->table, sample, &columns));
    for (int c = 0; c < split->columns; c++)
        split->field[c] =
            (struct mds_field){ columns[c].data, columns[c].bytes };
    return mds_writer_add_fields(writer, split->field);
}

/* Tokens are counted by reading: only the sidecar of the whole has a sum. */
static enum err split_count(struct split *split, int64_t sample,
                            struct sidecar *sidecar)
{
    int64_t length = 0;
    TRY(dataset_read(split->dataset, sample, NULL, 0, &length));
    sidecar->samples++;
    sidecar->tokens += length;
    if (length > sidecar->longest)
        sidecar->longest = length;
    return ERR_OK;
}

/* The samples first .. first+count-1 as OUT/name. */
static enum err split_part(struct split *split, const char *name, int64_t first,
                           int64_t count)
{
    assert(count > 0 &&
           first + count <= dataset_contents(split->dataset)->samples);
    enum err rc = ERR_OK;
    char folder[FSIO_PATH_MAX];
    struct mds_writer *writer = NULL;
    struct sidecar sidecar = split->sidecar;
    const struct mds_writer_options options = {
        .columns = split->column,
        .count = split->columns,
        .size_limit = split->options->shard_bytes,
        .hashes = mds_writer_sha256,
    };
    /* what the whole's says holds for a part but for its numbers */
    sidecar.samples = sidecar.tokens = sidecar.longest = 0;
    sidecar.shards_sha256 = NULL;
    sidecar.shards_hashed = 0;
    TRY_OUT(fsio_path(folder, "%s/%s", split->publish.building, name));
    TRY_OUT(fsio_mkdirs(folder));
    TRY_OUT(mds_writer_create(folder, &options, &writer));
    for (int64_t i = 0; i < count; i++) {
        if (i % SPLIT_POLL_SAMPLES == 0)
            TRY_OUT(split_poll(split));
        TRY_OUT(split_count(split, first + i, &sidecar));
        TRY_OUT(split_sample(split, first + i, writer));
        split->progress.done++;
    }
    if (split->tokenizer != NULL)
        TRY_OUT(tokenizer_copy_write(folder, split->tokenizer));
    TRY_OUT(sidecar_write(folder, &sidecar));
    TRY_OUT(mds_writer_finish(writer));
    rc = fsio_fsync_dir(folder);
out:
    mds_writer_destroy(writer);
    return rc;
}

static enum err split_parts(struct split *split)
{
    int64_t samples = dataset_contents(split->dataset)->samples;
    int64_t parts = split->options->parts;
    if (parts > 0 && parts > samples)
        return err_set(ERR_USAGE, "%s has %lld samples, too few for %lld parts",
                       split->set, (long long)samples, (long long)parts);
    progress_begin(&split->progress, "copying", "samples", samples);
    for (int64_t p = 0; p < parts; p++) {
        char name[32];
        /* samples * p / parts, without the product, which could overflow */
        int64_t first = samples / parts * p + samples % parts * p / parts;
        int64_t end =
            samples / parts * (p + 1) + samples % parts * (p + 1) / parts;
        snprintf(name, sizeof name, "part.%05lld", (long long)p);
        TRY(split_part(split, name, first, end - first));
    }
    if (parts == 0) {
        double wanted = (double)samples * split->options->fraction;
        int64_t eval = (int64_t)floor(wanted + 0.5);
        eval = eval < 1 ? 1 : eval > samples - 1 ? samples - 1 : eval;
        if (samples < 2)
            return err_set(ERR_USAGE,
                           "%s has one sample, which can't be divided",
                           split->set);
        TRY(split_part(split, "train", 0, samples - eval));
        TRY(split_part(split, "eval", samples - eval, eval));
    }
    progress_end(&split->progress);
    return ERR_OK;
}

static enum err split_open(struct split *split)
{
    TRY(dataset_open(split->set, &split->dataset));
    if (strcmp(dataset_index(split->dataset), MDS_INDEX_NAME) != 0)
        return err_set(ERR_UNSUPPORTED, "%s is no MDS data set", split->set);
    TRY(sidecar_read(split->set, &split->sidecar));
    TRY(mds_table_open(split->set, &split->table));
    TRY(scan_tokenizer(split->dataset, &split->tokenizer));
    const struct mds_index *index = mds_table_index(split->table);
    if (index->layouts > 1)
        return err_set(ERR_UNSUPPORTED,
                       "%s: its shards have different columns, which one set "
                       "can't have when it is split",
                       split->set);
    const struct mds_layout *layout = index->layout[0];
    size_t columns = (size_t)layout->columns;
    split->columns = layout->columns;
    TRY(new_zeroed(&split->field, columns));
    TRY(new_zeroed(&split->column, columns));
    for (size_t c = 0; c < columns; c++)
        split->column[c] = (struct mds_column){ layout->column[c].name,
                                                layout->column[c].text };
    return ERR_OK;
}

enum err split_set(const char *set, const struct split_options *options)
{
    assert(set != NULL && options->out != NULL);
    enum err rc = ERR_OK;
    struct split split = { .options = options, .set = set };
    if (options->parts > SPLIT_PARTS_MAX)
        TRY_OUT(err_set(ERR_USAGE, "--parts has to be in [1, %d], not %lld",
                        SPLIT_PARTS_MAX, (long long)options->parts));
    TRY_OUT(regular_local(options->out));
    TRY_OUT(split_open(&split));
    TRY_OUT(publish_begin(&split.publish, options->out, false));
    TRY_OUT(split_parts(&split));
    TRY_OUT(publish_commit(&split.publish));
out:
    publish_end(&split.publish);
    free(split.field);
    free(split.column);
    tokenizer_destroy(split.tokenizer);
    mds_table_close(split.table);
    sidecar_release(&split.sidecar);
    dataset_close(split.dataset);
    return rc;
}
