/* Reads index.json into a list of shards and columns, and refuses what can't be
 * right. No shard is opened here. */
#include "src/data/mds_index.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/data/checksum.h"
#include "src/data/regular.h"

/* Some 600,000 shards. */
#define MDS_INDEX_BYTES_MAX ((size_t)256 << 20)
#define MDS_INDEX_NAME_BYTES_MAX ((size_t)512)
#define MDS_INDEX_HASHES_MAX 32
/* A shard's offsets are 32-bit. */
#define MDS_INDEX_SHARD_BYTES_MAX ((json_int_t)UINT32_MAX)
/* What no codec needs even for noise. */
#define MDS_INDEX_ZIP_BYTES_MAX (2 * MDS_INDEX_SHARD_BYTES_MAX)

static enum err mds_index_int(const json_t *object, const char *key,
                              json_int_t min, json_int_t max, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        return err_set(ERR_DATA, "'%s' is not a whole number", key);
    json_int_t number = json_integer_value(value);
    if (number < min || number > max)
        return err_set(ERR_DATA, "'%s' is %lld, outside [%lld, %lld]", key,
                       (long long)number, (long long)min, (long long)max);
    *out = (int64_t)number;
    return ERR_OK;
}

/* Merged indexes name files in subfolders; none may lead out of the set. */
static bool mds_index_name_is_safe(const char *name)
{
    if (name[0] == '\0' || name[0] == '/' ||
        strlen(name) > MDS_INDEX_NAME_BYTES_MAX)
        return false;
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        part += part[0] == '/';
        size_t length = strcspn(part, "/");
        if (length == 0 || (length == 2 && strncmp(part, "..", 2) == 0))
            return false;
    }
    return true;
}

static enum err mds_index_list_hash(const char *file, const char *name,
                                    const char *hex, int *hashes,
                                    struct mds_hash **list)
{
    size_t digits = checksum_digits(name);
    if (digits > 0 &&
        (strlen(hex) != digits || strspn(hex, "0123456789abcdef") != digits))
        return err_set(ERR_DATA,
                       "'%s.hashes.%s' is not %zu lower-case hexadecimal "
                       "digits",
                       file, name, digits);
    struct mds_hash *grown =
        realloc(*list, ((size_t)*hashes + 1) * sizeof *grown);
    if (grown == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    *list = grown;
    struct mds_hash *hash = &grown[(*hashes)++];
    hash->name = strdup(name);
    hash->hex = strdup(hex);
    if (hash->name == NULL || hash->hex == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    return ERR_OK;
}

enum err mds_index_add_hash(struct mds_shard_info *info, const char *name,
                            const char *hex)
{
    return mds_index_list_hash("raw_data", name, hex, &info->hashes,
                               &info->hash);
}

/* Of `file`, "raw_data" or "zip_data". */
static enum err mds_index_hashes(const json_t *object, const char *file,
                                 int *count, struct mds_hash **list)
{
    json_t *hashes = json_object_get(object, "hashes");
    const char *name = NULL;
    json_t *value = NULL;
    if (hashes != NULL && !json_is_object(hashes))
        return err_set(ERR_DATA, "'%s.hashes' is not an object", file);
    if (json_object_size(hashes) > MDS_INDEX_HASHES_MAX)
        return err_set(ERR_DATA, "'%s.hashes' has more than %d entries", file,
                       MDS_INDEX_HASHES_MAX);
    json_object_foreach(hashes, name, value)
    {
        const char *hex = json_string_value(value);
        if (hex == NULL)
            return err_set(ERR_DATA, "'%s.hashes.%.40s' is not a text", file,
                           name);
        TRY(mds_index_list_hash(file, name, hex, count, list));
    }
    return ERR_OK;
}

static enum err mds_index_copy(const char *text, char **out)
{
    if (text == NULL)
        return ERR_OK;
    *out = strdup(text);
    return *out != NULL ? ERR_OK : err_set(ERR_MEMORY, "out of memory");
}

/* Whether the raw file is there, too, shows when it is opened. */
static enum err mds_index_compression(const json_t *object,
                                      struct mds_shard_info *info)
{
    const json_t *zip = json_object_get(object, "zip_data");
    const json_t *compression = json_object_get(object, "compression");
    if ((zip == NULL || json_is_null(zip)) &&
        (compression == NULL || json_is_null(compression)))
        return ERR_OK;
    const char *name = json_string_value(compression);
    const char *file = json_string_value(json_object_get(zip, "basename"));
    TRY(mds_index_copy(name != NULL ? name : "a form that is not named",
                       &info->compression));
    if (file == NULL || !mds_index_name_is_safe(file))
        return ERR_OK;
    TRY(mds_index_copy(file, &info->zip));
    enum err rc = mds_index_int(zip, "bytes", 0, MDS_INDEX_ZIP_BYTES_MAX,
                                &info->zip_bytes);
    if (rc != ERR_OK)
        return err_prefix(rc, "'zip_data'");
    return mds_index_hashes(zip, "zip_data", &info->zip_hashes,
                            &info->zip_hash);
}

static enum err mds_index_file(const json_t *object,
                               struct mds_shard_info *info)
{
    const json_t *raw = json_object_get(object, "raw_data");
    const char *name = json_string_value(json_object_get(raw, "basename"));
    if (name == NULL || !mds_index_name_is_safe(name))
        return err_set(ERR_DATA,
                       "'raw_data.basename' is not the name of a file in the "
                       "data set, of at most %zu bytes",
                       MDS_INDEX_NAME_BYTES_MAX);
    TRY(mds_index_int(raw, "bytes", 8, MDS_INDEX_SHARD_BYTES_MAX,
                      &info->bytes));
    TRY(mds_index_int(object, "samples", 0, (info->bytes - 8) / 4,
                      &info->samples));
    TRY(mds_index_copy(name, &info->basename));
    TRY(mds_index_compression(object, info));
    return mds_index_hashes(raw, "raw_data", &info->hashes, &info->hash);
}

static enum err mds_index_shard(const json_t *object,
                                struct mds_shard_info *info)
{
    int64_t version = 0;
    if (!json_is_object(object))
        return err_set(ERR_DATA, "is not an object");
    const char *format = json_string_value(json_object_get(object, "format"));
    if (format == NULL || strcmp(format, "mds") != 0)
        return err_set(ERR_DATA,
                       "'format' is '%.20s', not 'mds': it holds no tokens; "
                       "make tokens of its text with tessera-data tokenize, or "
                       "write tokens with Streaming's MDSWriter",
                       format != NULL ? format : "");
    TRY(mds_index_int(object, "version", 2, 2, &version));
    return mds_index_file(object, info);
}

/* The columns of shard s, which often are those of the shard before. */
static enum err mds_index_columns(struct mds_index *index, const json_t *shards,
                                  size_t s)
{
    const json_t *object = json_array_get(shards, s);
    if (s > 0 && mds_layout_same(object, json_array_get(shards, s - 1))) {
        index->shard[s].layout = index->shard[s - 1].layout;
        return ERR_OK;
    }
    struct mds_layout **grown =
        realloc(index->layout, (size_t)(index->layouts + 1) * sizeof *grown);
    if (grown == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    index->layout = grown;
    TRY(mds_layout_read(object, &grown[index->layouts]));
    index->shard[s].layout = grown[index->layouts++];
    return ERR_OK;
}

static enum err mds_index_parse(struct mds_index *index, const char *path)
{
    enum err rc = ERR_OK;
    int64_t version = 0;
    json_error_t problem;
    json_t *root = json_loadb(index->text, index->text_bytes,
                              JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL) {
        rc = err_set(ERR_DATA, "%s:%d: not valid JSON: %s", path, problem.line,
                     problem.text);
        goto out;
    }
    rc = mds_index_int(root, "version", 2, 2, &version);
    const json_t *shards = json_object_get(root, "shards");
    if (rc == ERR_OK && !json_is_array(shards))
        rc = err_set(ERR_DATA, "'shards' is not a list");
    if (rc != ERR_OK) {
        err_prefix(rc, "%s", path);
        goto out;
    }
    size_t count = json_array_size(shards);
    index->shard = calloc(count > 0 ? count : 1, sizeof *index->shard);
    if (index->shard == NULL) {
        rc = err_set(ERR_MEMORY, "%s: no memory for %zu shards", path, count);
        goto out;
    }
    for (size_t s = 0; s < count; s++) {
        index->shards++;
        rc = mds_index_shard(json_array_get(shards, s), &index->shard[s]);
        if (rc == ERR_OK)
            rc = mds_index_columns(index, shards, s);
        if (rc != ERR_OK) {
            err_prefix(rc, "%s: shard %zu", path, s);
            goto out;
        }
        index->samples += index->shard[s].samples;
    }
out:
    json_decref(root);
    return rc;
}

enum err mds_index_read(const char *folder, struct mds_index **out)
{
    assert(folder != NULL && out != NULL);
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    struct mds_index *index = calloc(1, sizeof *index);
    if (index == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    TRY_OUT(fsio_path(path, "%s/%s", folder, MDS_INDEX_NAME));
    TRY_OUT(regular_read(path, MDS_INDEX_BYTES_MAX, &index->text,
                         &index->text_bytes));
    TRY_OUT(mds_index_parse(index, path));
    *out = index;
    index = NULL;
out:
    mds_index_destroy(index);
    return rc;
}

enum err mds_index_check(const struct mds_index *index, const char *folder)
{
    const struct mds_layout *last = NULL;
    for (int64_t s = 0; s < index->shards; s++) {
        const struct mds_layout *layout = index->shard[s].layout;
        enum err rc = layout == last ? ERR_OK : mds_layout_check(layout);
        if (rc != ERR_OK)
            return err_prefix(rc, "%s/%s: shard %lld", folder, MDS_INDEX_NAME,
                              (long long)s);
        last = layout;
    }
    return ERR_OK;
}

static void mds_index_free_hashes(int count, struct mds_hash *list)
{
    for (int h = 0; h < count; h++) {
        free(list[h].name);
        free(list[h].hex);
    }
    free(list);
}

void mds_index_destroy(struct mds_index *index)
{
    if (index == NULL)
        return;
    for (int64_t s = 0; s < index->shards; s++) {
        struct mds_shard_info *info = &index->shard[s];
        mds_index_free_hashes(info->hashes, info->hash);
        mds_index_free_hashes(info->zip_hashes, info->zip_hash);
        free(info->basename);
        free(info->compression);
        free(info->zip);
    }
    for (int64_t l = 0; l < index->layouts; l++)
        mds_layout_destroy(index->layout[l]);
    free(index->layout);
    free(index->shard);
    free(index->text);
    free(index);
}
