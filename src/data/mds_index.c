#include "src/data/mds_index.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"

/* Some 600,000 shards. */
#define MDS_INDEX_BYTES_MAX ((size_t)256 << 20)
#define MDS_INDEX_INT32 "ndarray:int32"
#define MDS_INDEX_INT32_BYTES (sizeof MDS_INDEX_INT32 - 1)
/* A shard's offsets are 32-bit. */
#define MDS_INDEX_SHARD_BYTES_MAX ((json_int_t)UINT32_MAX)

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
    if (name[0] == '\0' || name[0] == '/')
        return false;
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        part += part[0] == '/';
        size_t length = strcspn(part, "/");
        if (length == 0 || (length == 2 && strncmp(part, "..", 2) == 0))
            return false;
    }
    return true;
}

static enum err mds_index_file(const json_t *object,
                               struct mds_shard_info *info)
{
    if (!json_is_null(json_object_get(object, "zip_data")) ||
        !json_is_null(json_object_get(object, "compression")))
        return err_set(ERR_DATA, "the shard is compressed, which is not "
                                 "supported; write the data set without "
                                 "compression");
    const json_t *raw = json_object_get(object, "raw_data");
    const char *name = json_string_value(json_object_get(raw, "basename"));
    if (name == NULL || !mds_index_name_is_safe(name))
        return err_set(ERR_DATA, "'raw_data.basename' is not the name of a "
                                 "file in the data set");
    enum err rc = ERR_OK;
    TRY(mds_index_int(raw, "bytes", 8, MDS_INDEX_SHARD_BYTES_MAX,
                      &info->bytes));
    TRY(mds_index_int(object, "samples", 0, (info->bytes - 8) / 4,
                      &info->samples));
    info->basename = strdup(name);
    if (info->basename == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    const char *sha256 = json_string_value(
        json_object_get(json_object_get(raw, "hashes"), "sha256"));
    if (sha256 == NULL)
        return ERR_OK;
    if (strlen(sha256) != 64 || strspn(sha256, "0123456789abcdef") != 64)
        return err_set(ERR_DATA, "'raw_data.hashes.sha256' is not 64 "
                                 "lower-case hexadecimal digits");
    memcpy(info->sha256, sha256, sizeof info->sha256);
out:
    return rc;
}

static enum err mds_index_tokens(const char *encoding, int column,
                                 struct mds_shard_info *info)
{
    const char *shape = NULL;
    bool typed = strncmp(encoding, MDS_INDEX_INT32, MDS_INDEX_INT32_BYTES) == 0;
    bool valid = typed || strcmp(encoding, "ndarray") == 0;
    if (typed && encoding[MDS_INDEX_INT32_BYTES] != '\0') {
        shape = encoding + MDS_INDEX_INT32_BYTES;
        valid = shape[0] == ':' && shape[1] != '\0' &&
                strspn(shape + 1, "0123456789") == strlen(shape + 1);
    }
    if (!valid)
        return err_set(ERR_DATA,
                       "column 'tokens' is '%.60s'; it has to be "
                       "'ndarray:int32'",
                       encoding);
    info->tokens_column = column;
    info->tokens_typed = typed;
    info->tokens_shaped = shape != NULL;
    return ERR_OK;
}

static enum err mds_index_column(const json_t *name, const json_t *encoding,
                                 const json_t *size, int column,
                                 struct mds_shard_info *info)
{
    if (!json_is_string(name) || !json_is_string(encoding))
        return err_set(ERR_DATA, "a column's name or encoding is no string");
    int64_t *bytes = &info->column_bytes[column];
    *bytes = MDS_INDEX_VARIABLE;
    if (json_is_integer(size)) {
        json_int_t value = json_integer_value(size);
        if (value < 1 || value > MDS_INDEX_SHARD_BYTES_MAX)
            return err_set(ERR_DATA, "a column's size is %lld bytes",
                           (long long)value);
        *bytes = (int64_t)value;
    } else if (!json_is_null(size)) {
        return err_set(ERR_DATA, "a column's size is neither null nor a whole "
                                 "number");
    }
    if (strcmp(json_string_value(name), "tokens") != 0)
        return ERR_OK;
    if (info->tokens_column >= 0)
        return err_set(ERR_DATA, "there are two columns 'tokens'");
    return mds_index_tokens(json_string_value(encoding), column, info);
}

static enum err mds_index_columns(const json_t *object,
                                  struct mds_shard_info *info)
{
    enum err rc = ERR_OK;
    const json_t *names = json_object_get(object, "column_names");
    const json_t *encodings = json_object_get(object, "column_encodings");
    const json_t *sizes = json_object_get(object, "column_sizes");
    size_t columns = json_array_size(names);
    if (columns == 0 || json_array_size(encodings) != columns ||
        json_array_size(sizes) != columns)
        return err_set(ERR_DATA, "'column_names', 'column_encodings' and "
                                 "'column_sizes' are not lists of one length");
    if (columns > MDS_INDEX_COLUMNS_MAX)
        return err_set(ERR_DATA, "%zu columns; at most %d are supported",
                       columns, MDS_INDEX_COLUMNS_MAX);
    info->columns = (int)columns;
    info->tokens_column = -1;
    for (size_t c = 0; c < columns; c++)
        TRY(mds_index_column(json_array_get(names, c),
                             json_array_get(encodings, c),
                             json_array_get(sizes, c), (int)c, info));
    if (info->tokens_column < 0)
        return err_set(ERR_DATA, "there is no column 'tokens'; tokenize the "
                                 "text with tessera-data tokenize");
out:
    return rc;
}

static enum err mds_index_shard(const json_t *object,
                                struct mds_shard_info *info)
{
    enum err rc = ERR_OK;
    int64_t version = 0;
    if (!json_is_object(object))
        return err_set(ERR_DATA, "is not an object");
    const char *format = json_string_value(json_object_get(object, "format"));
    if (format == NULL || strcmp(format, "mds") != 0)
        return err_set(ERR_DATA, "'format' is not \"mds\"");
    TRY(mds_index_int(object, "version", 2, 2, &version));
    TRY(mds_index_file(object, info));
    TRY(mds_index_columns(object, info));
out:
    return rc;
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
    TRY(fsio_path(path, "%s/%s", folder, MDS_INDEX_NAME));
    TRY(fsio_read_file(path, MDS_INDEX_BYTES_MAX, &index->text,
                       &index->text_bytes));
    TRY(mds_index_parse(index, path));
    *out = index;
    index = NULL;
out:
    mds_index_destroy(index);
    return rc;
}

void mds_index_destroy(struct mds_index *index)
{
    if (index == NULL)
        return;
    for (int64_t s = 0; s < index->shards; s++)
        free(index->shard[s].basename);
    free(index->shard);
    free(index->text);
    free(index);
}
