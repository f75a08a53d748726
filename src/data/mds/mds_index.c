/* Reads index.json into a list of shards and columns, and refuses what can't be
 * right. No shard is opened here.
 *
 *   {"shards": [{"column_encodings": [..], "column_names": [..],
 *                "column_sizes": [..], "compression": "zstd:3" or null,
 *                "format": "mds", "hashes": [..], "raw_data": FILE,
 *                "samples": N, "size_limit": N, "version": 2,
 *                "zip_data": FILE or null}, ..], "version": 2}
 *   FILE: {"basename": NAME, "bytes": N, "hashes": {"sha1": HEX, ..}}
 *
 * Everything that a shard is measured by later comes from here, so limits are
 * checked here, once: names stay in the set's folder, sizes fit the 32 bits of
 * a shard's offsets, counts fit the sizes. Keys that are not known are passed
 * over, for indexes of later versions have some. A set has up to some 600,000
 * shards, mostly of the same columns: these are kept once for all shards that
 * follow each other with the same ones. */
#include "src/data/mds/mds_index.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/base/regular.h"
#include "src/data/codec/checksum.h"

/* Some 600,000 shards. */
#define MDS_INDEX_BYTES_MAX ((size_t)256 << 20)
#define MDS_INDEX_NAME_BYTES_MAX ((size_t)FILE_NAME_BYTES - 1)
#define MDS_INDEX_HASHES_MAX (FILE_SUMS_MAX - 1)
/* A shard's offsets are 32-bit. */
#define MDS_INDEX_SHARD_BYTES_MAX ((json_int_t)UINT32_MAX)
/* Packing makes no file that much larger. */
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

/* Where the name is known here `hex` has its form. */
static enum err mds_index_hash(struct file_entry *file, const char *name,
                               const char *hex)
{
    size_t digits = checksum_digits(name);
    if (digits > 0 &&
        (strlen(hex) != digits || strspn(hex, "0123456789abcdef") != digits))
        return err_set(ERR_DATA,
                       "'hashes.%s' is not %zu lower-case hexadecimal digits",
                       name, digits);
    struct file_sum *hash = &file->hash[file->hashes++];
    hash->name = name;
    snprintf(hash->hex, sizeof hash->hex, "%s", digits > 0 ? hex : "");
    return ERR_OK;
}

static enum err mds_index_hashes(const json_t *object, struct file_entry *file)
{
    json_t *hashes = json_object_get(object, "hashes");
    const char *name = NULL;
    json_t *value = NULL;
    file->hashes = 0;
    if (hashes != NULL && !json_is_object(hashes))
        return err_set(ERR_DATA, "'hashes' is not an object");
    if (json_object_size(hashes) > MDS_INDEX_HASHES_MAX)
        return err_set(ERR_DATA, "'hashes' has more than %d entries",
                       MDS_INDEX_HASHES_MAX);
    json_object_foreach(hashes, name, value)
    {
        const char *hex = json_string_value(value);
        if (hex == NULL)
            return err_set(ERR_DATA, "'hashes.%.40s' is not a text", name);
        TRY(mds_index_hash(file, name, hex));
    }
    return ERR_OK;
}

/* 'raw_data' or 'zip_data' */
static enum err mds_index_file(const json_t *object, const char *key,
                               json_int_t least, json_int_t most,
                               struct file_entry *file)
{
    const json_t *value = json_object_get(object, key);
    const char *name = json_string_value(json_object_get(value, "basename"));
    if (name == NULL || !mds_index_name_is_safe(name))
        return err_set(ERR_DATA,
                       "'%s.basename' is not the name of a file in the "
                       "data set, of at most %zu bytes",
                       key, MDS_INDEX_NAME_BYTES_MAX);
    enum err rc = mds_index_int(value, "bytes", least, most, &file->bytes);
    if (rc == ERR_OK)
        rc = mds_index_hashes(value, file);
    snprintf(file->name, sizeof file->name, "%s", name);
    return err_prefix(rc, "'%s'", key);
}

static enum err mds_index_files(const json_t *object, struct cache_shard *files)
{
    const json_t *zip = json_object_get(object, "zip_data");
    const char *compression =
        json_string_value(json_object_get(object, "compression"));
    TRY(mds_index_file(object, "raw_data", 8, MDS_INDEX_SHARD_BYTES_MAX,
                       &files->raw));
    files->zip.name[0] = '\0';
    files->zip.hashes = 0;
    if (zip == NULL || json_is_null(zip))
        return ERR_OK;
    if (compression == NULL)
        return err_set(ERR_DATA, "has 'zip_data', but 'compression' is no "
                                 "text");
    files->compression = compression;
    return mds_index_file(object, "zip_data", 0, MDS_INDEX_ZIP_BYTES_MAX,
                          &files->zip);
}

/* What it has is lent by the object. */
static enum err mds_index_shard(const json_t *object, struct cache_shard *files,
                                int64_t *samples)
{
    int64_t version = 0;
    if (!json_is_object(object))
        return err_set(ERR_DATA, "is not an object");
    const char *format = json_string_value(json_object_get(object, "format"));
    /* Streaming has JSON and CSV as well, whose samples are text */
    if (format == NULL || strcmp(format, "mds") != 0)
        return err_set(ERR_DATA,
                       "'format' is '%.20s', not 'mds': it holds no tokens; "
                       "make tokens of its text with tessera-data tokenize, or "
                       "write tokens with Streaming's MDSWriter",
                       format != NULL ? format : "");
    TRY(mds_index_int(object, "version", 2, 2, &version));
    TRY(mds_index_files(object, files));
    /* each sample has an offset of four bytes at least */
    return mds_index_int(object, "samples", 0, (files->raw.bytes - 8) / 4,
                         samples);
}

/* One more shard; *last has the columns of the one before and becomes this. */
static enum err mds_index_add(struct mds_index *index, json_t *object,
                              json_t **last)
{
    struct cache_shard files;
    int64_t samples = 0;
    TRY(mds_index_shard(object, &files, &samples));
    /* compared as JSON, before anything is made of it */
    if (*last == NULL || !mds_layout_same(object, *last)) {
        TRY(array_room(&index->layout, &index->layout_room,
                       index->layouts + 1));
        TRY(mds_layout_read(object, &index->layout[index->layouts]));
        index->layouts++;
        char *form = json_dumps(object, JSON_COMPACT);
        enum err rc = form != NULL
                          ? buffer_add(&index->forms, form, strlen(form) + 1)
                          : err_set(ERR_MEMORY, "out of memory");
        free(form);
        TRY(rc);
    }
    json_decref(*last);
    *last = json_incref(object);
    TRY(mds_pack_add(&index->pack, &files, samples,
                     index->layout[index->layouts - 1]));
    index->shards++;
    index->samples += samples;
    return ERR_OK;
}

/* The list of shards in the text. ERR_DATA where the text is not JSON outside of
 * it, or has none in these letters. */
static enum err mds_index_find(const struct mds_index *index,
                               struct json_member *list)
{
    struct json_split split = json_split_begin(index->text, index->text_bytes);
    struct json_member member;
    bool done = false;
    *list = (struct json_member){ 0 };
    for (;;) {
        TRY(json_split_next(&split, &member, &done));
        if (done)
            break;
        if (member.key_bytes == strlen("'shards'") &&
            memcmp(member.key, "\"shards\"", member.key_bytes) == 0)
            *list = member;
    }
    return list->value != NULL && list->value[0] == '['
               ? ERR_OK
               : err_set(ERR_DATA, "'shards' is not a list");
}

/* The text but for the shards; of a text that can't be divided, which is not to
 * be an index, all of it, and the error says where it is wrong. */
static enum err mds_index_outside(const struct mds_index *index,
                                  const char *path, struct json_member *list,
                                  json_t **root)
{
    struct buffer rest = { 0 };
    json_error_t problem;
    enum err rc = ERR_OK;
    if (mds_index_find(index, list) == ERR_OK) {
        const char *behind = list->value + list->value_bytes;
        TRY_OUT(buffer_add(&rest, index->text,
                           (size_t)(list->value - index->text)));
        TRY_OUT(buffer_add(&rest, "[]", 2));
        TRY_OUT(buffer_add(&rest, behind,
                           (size_t)(index->text + index->text_bytes - behind)));
    } else {
        TRY_OUT(buffer_add(&rest, index->text, index->text_bytes));
    }
    *root = jsontext_load((const char *)rest.data, rest.bytes,
                          JSON_REJECT_DUPLICATES, &problem);
    if (*root == NULL)
        rc = err_set(jsontext_wrong(&problem), "%s:%d: not valid JSON: %s",
                     path, problem.line, problem.text);
out:
    buffer_free(&rest);
    return rc;
}

/* An element, which is JSON; ERR_DATA has its line in the file. */
static enum err mds_index_element(const struct mds_index *index,
                                  const char *path, const char *value,
                                  size_t bytes, json_t **out)
{
    json_error_t problem;
    *out = jsontext_load(value, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY,
                         &problem);
    if (*out != NULL)
        return ERR_OK;
    int line = problem.line;
    for (const char *c = index->text; c < value; c++)
        line += *c == '\n';
    return err_set(jsontext_wrong(&problem), "%s:%d: not valid JSON: %s", path,
                   line, problem.text);
}

static enum err mds_index_fill(struct mds_index *index, const char *path)
{
    enum err rc = ERR_OK;
    int64_t version = 0;
    struct json_member list;
    json_t *root = NULL, *object = NULL, *last = NULL;
    const char *value = NULL;
    size_t bytes = 0;
    bool done = false;
    TRY_OUT(mds_index_outside(index, path, &list, &root));
    rc = mds_index_int(root, "version", 2, 2, &version);
    if (rc == ERR_OK && (list.value == NULL || list.value[0] != '['))
        rc = err_set(ERR_DATA, "'shards' is not a list");
    TRY_OUT(err_prefix(rc, "%s", path));
    struct json_split split = json_split_begin(list.value, list.value_bytes);
    for (;;) {
        rc = json_split_element(&split, &value, &bytes, &done);
        TRY_OUT(err_prefix(rc, "%s: not valid JSON: 'shards'", path));
        if (done)
            break;
        json_decref(object);
        object = NULL;
        TRY_OUT(mds_index_element(index, path, value, bytes, &object));
        rc = mds_index_add(index, object, &last);
        TRY_OUT(
            err_prefix(rc, "%s: shard %lld", path, (long long)index->shards));
    }
out:
    json_decref(object);
    json_decref(last);
    json_decref(root);
    return rc;
}

enum err mds_index_read(const char *folder, struct mds_index **out)
{
    assert(folder != NULL && out != NULL);
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    struct mds_index *index = NULL;
    TRY(fsio_path(path, "%s/%s", folder, MDS_INDEX_NAME));
    TRY(new_zeroed(&index, 1));
    TRY_OUT(regular_read(path, MDS_INDEX_BYTES_MAX, &index->text,
                         &index->text_bytes));
    TRY_OUT(mds_index_fill(index, path));
out:
    return new_or_none(rc, index, out, mds_index_destroy);
}

enum err mds_index_image(const struct mds_index *index, struct buffer *images)
{
    const int64_t counts[] = { index->samples, index->layouts };
    TRY(buffer_add(images, counts, sizeof counts));
    TRY(buffer_add(images, index->forms.data, index->forms.bytes));
    return mds_pack_image(&index->pack, images);
}

enum err mds_index_take(const void *image, struct mds_index **out)
{
    enum err rc = ERR_OK;
    int64_t counts[2];
    struct mds_index *index = NULL;
    const char *form = (const char *)image + sizeof counts;
    memcpy(counts, image, sizeof counts);
    TRY(new_zeroed(&index, 1));
    TRY_OUT(array_room(&index->layout, &index->layout_room, counts[1]));
    for (; index->layouts < counts[1]; index->layouts++) {
        json_t *object = json_loads(form, 0, NULL);
        rc = mds_layout_read(object, &index->layout[index->layouts]);
        json_decref(object);
        TRY_OUT(rc);
        form += strlen(form) + 1;
    }
    TRY_OUT(mds_pack_take(form, index->layout, &index->pack));
    index->samples = counts[0];
    index->shards = index->pack.shards;
out:
    return new_or_none(rc, index, out, mds_index_destroy);
}

enum err mds_index_check(const struct mds_index *index, const char *folder)
{
    assert(index != NULL && folder != NULL);
    const struct mds_layout *last = NULL;
    for (int64_t s = 0; s < index->shards; s++) {
        const struct mds_layout *layout =
            mds_pack_shard(&index->pack, s).layout;
        TRY(err_prefix(layout == last ? ERR_OK : mds_layout_check(layout),
                       "%s/%s: shard %lld", folder, MDS_INDEX_NAME,
                       (long long)s));
        last = layout;
    }
    return ERR_OK;
}

void mds_index_destroy(struct mds_index *index)
{
    if (index == NULL)
        return;
    for (int64_t l = 0; l < index->layouts; l++)
        mds_layout_destroy(index->layout[l]);
    free(index->layout);
    mds_pack_release(&index->pack);
    buffer_free(&index->forms);
    free(index->text);
    free(index);
}

/* --- JSON as Python writes it ---
 *
 * It escapes in lower case what jansson escapes in upper case, and DEL as well. */

enum err mds_text_add(struct buffer *text, json_t *value)
{
    enum err rc = ERR_OK;
    char *ascii =
        json_dumps(value, JSON_SORT_KEYS | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
    char *rest = ascii, *part;
    json_decref(value);
    if (ascii == NULL)
        return err_set(ERR_MEMORY, "no memory for a text of JSON");
    for (char *at = ascii; (at = strchr(at, '\\')) != NULL; at += 2)
        for (int i = 2; at[1] == 'u' && i < 6; i++)
            at[i] = (char)tolower((unsigned char)at[i]);
    while (rc == ERR_OK && (part = strsep(&rest, "\x7f")) != NULL) {
        rc = buffer_add(text, part, strlen(part));
        if (rc == ERR_OK && rest != NULL)
            rc = buffer_add(text, "\\u007f", 6);
    }
    free(ascii);
    return rc;
}
