/* The strict reader of MANIFEST.json: what it accepts needs no further checks.
 *
 * A CRC finds damage, not a mistake of who computed it, and anybody can make a
 * file with a good one. So every number is held to its limits here, once:
 * offsets inside the file and ascending, extents inside their tensors, names
 * inside the folder. Code behind it may index with what it finds. */
#include "checkpoint/files/ckpt_manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/new.h"
#include "src/base/jsontext.h"

#define CRC_TAIL_BYTES                                                         \
    (sizeof CKPT_MANIFEST_CRC_BEFORE - 1 + CRC_DIGITS +                        \
     sizeof CKPT_MANIFEST_CRC_AFTER - 1)
#define CRC_DIGITS 8
/* A few bytes may stand for many extents, but not for more than a manifest of
 * version 1 could hold; 70B on 16,384 ranks has 4 million. */
#define EXTENTS_MAX ((int64_t)1 << 25)

/* Damage that the CRC did not show can only be a bug or another version. */
static enum err malformed(const char *what)
{
    return err_set(ERR_CHECKPOINT, "malformed: %s", what);
}

static enum err check_crc(const char *text, size_t bytes)
{
    char want[CRC_TAIL_BYTES + 1];
    if (bytes <= CRC_TAIL_BYTES)
        return err_set(ERR_CHECKPOINT, "truncated (%zu bytes)", bytes);
    size_t covered = bytes - CRC_DIGITS - (sizeof CKPT_MANIFEST_CRC_AFTER - 1);
    uint32_t crc = crc32c(0, text, covered);
    snprintf(want, sizeof want, "%s%08" PRIx32 "%s", CKPT_MANIFEST_CRC_BEFORE,
             crc, CKPT_MANIFEST_CRC_AFTER);
    if (memcmp(text + bytes - CRC_TAIL_BYTES, want, CRC_TAIL_BYTES) != 0)
        return err_set(ERR_CHECKPOINT, "damaged: its CRC32C does not match");
    return ERR_OK;
}

static bool get_integer(const json_t *value, int64_t min, int64_t max,
                        int64_t *out)
{
    if (!json_is_integer(value))
        return false;
    *out = json_integer_value(value);
    return *out >= min && *out <= max;
}

static bool dtype_of(const char *name, enum dtype *out)
{
    for (int i = 0; i < DTYPES; i++)
        if (name != NULL && strcmp(name, dtype_name((enum dtype)i)) == 0) {
            *out = (enum dtype)i;
            return true;
        }
    return false;
}

static enum err parse_tensor(const json_t *value, struct ckpt_tensor *tensor)
{
    const char *name = json_string_value(json_object_get(value, "name"));
    const json_t *shape = json_object_get(value, "shape");
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    if (name == NULL || strlen(name) >= sizeof tensor->name ||
        !json_is_array(shape) || json_array_size(shape) > CKPT_DIMS_MAX ||
        !dtype_of(dtype, &tensor->dtype))
        return malformed("tensor");
    memcpy(tensor->name, name, strlen(name) + 1);
    tensor->dims = (int)json_array_size(shape);
    for (int i = 0; i < tensor->dims; i++)
        if (!get_integer(json_array_get(shape, (size_t)i), 0, INT64_MAX,
                         &tensor->shape[i]))
            return malformed("tensor shape");
    return ckpt_manifest_elements(tensor->dtype, tensor->dims, tensor->shape,
                                  &tensor->elements);
}

static enum err parse_tensors(const json_t *list, struct ckpt_manifest *out)
{
    if (!json_is_array(list) || json_array_size(list) > INT32_MAX)
        return malformed("tensors");
    int count = (int)json_array_size(list);
    TRY(new_zeroed(&out->tensors, (size_t)count + 1));
    out->tensor_count = count;
    for (int i = 0; i < count; i++)
        TRY(parse_tensor(json_array_get(list, (size_t)i), &out->tensors[i]));
    return ERR_OK;
}

static bool get_integers(const json_t *list, int count, int64_t *out)
{
    bool good = json_is_array(list) && json_array_size(list) == (size_t)count;
    for (int i = 0; good && i < count; i++)
        good =
            get_integer(json_array_get(list, (size_t)i), 0, INT64_MAX, &out[i]);
    return good;
}

/* Not empty, inside the tensor, and in normal form. */
static enum err parse_part(const json_t *first, const json_t *second,
                           const struct ckpt_tensor *owner,
                           struct ckpt_part *part)
{
    part->boxed = json_is_array(first);
    if (!part->boxed) {
        if (!get_integer(first, 0, owner->elements, &part->begin) ||
            !get_integer(second, part->begin + 1, owner->elements, &part->end))
            return malformed("piece outside its tensor");
        return ERR_OK;
    }
    if (!get_integers(first, owner->dims, part->origin) ||
        !get_integers(second, owner->dims, part->sides) ||
        ckpt_part_check(part, owner->dims, owner->shape, "box", owner->name) !=
            ERR_OK)
        return malformed("box outside its tensor");
    struct ckpt_part normal = *part;
    ckpt_part_normalise(&normal, owner->dims, owner->shape);
    if (!normal.boxed)
        return malformed("box that is an interval");
    return ERR_OK;
}

/* The shard's next, for which there is room; its part is good. */
static enum err add_extent(struct ckpt_manifest *m, struct ckpt_shard *shard,
                           int tensor, const struct ckpt_part *part,
                           int64_t offset)
{
    const struct ckpt_tensor *owner = &m->tensors[tensor];
    int64_t bytes = ckpt_part_elements(part, owner->dims) *
                    (int64_t)dtype_bytes(owner->dtype);
    if (offset < ckpt_manifest_end(shard, shard->extent_count) ||
        offset > shard->bytes || bytes > shard->bytes - offset)
        return malformed("piece outside its file");
    if (m->extents == EXTENTS_MAX ||
        __builtin_add_overflow(m->bytes, bytes, &m->bytes))
        return malformed("too many pieces");
    shard->extents[shard->extent_count++] =
        (struct ckpt_extent){ .tensor = tensor,
                              .dims = owner->dims,
                              .part = *part,
                              .offset = offset,
                              .bytes = bytes,
                              .block = shard->block_count };
    shard->block_count += ckpt_manifest_block_count(bytes);
    m->extents++;
    return ERR_OK;
}

static enum err parse_extent(const json_t *value, struct ckpt_manifest *m,
                             struct ckpt_shard *shard)
{
    int64_t tensor, offset;
    struct ckpt_part part = { 0 };
    if (json_array_size(value) != 4 ||
        !get_integer(json_array_get(value, 0), 0, m->tensor_count - 1, &tensor))
        return malformed("piece of an unknown tensor");
    TRY(parse_part(json_array_get(value, 1), json_array_get(value, 2),
                   &m->tensors[tensor], &part));
    if (!get_integer(json_array_get(value, 3), 0, shard->bytes, &offset))
        return malformed("piece outside its file");
    return add_extent(m, shard, (int)tensor, &part, offset);
}

/* Runs are in the order of the shard before and have none of it twice: *next is
 * behind the last. */
static enum err parse_run(const json_t *value, struct ckpt_manifest *m,
                          const struct ckpt_shard *before, int64_t *next,
                          struct ckpt_shard *shard)
{
    int64_t first, count, longer;
    if (!get_integer(json_array_get(value, 0), *next, before->extent_count - 1,
                     &first) ||
        !get_integer(json_array_get(value, 1), 1, before->extent_count - first,
                     &count) ||
        !get_integer(json_array_get(value, 2), INT64_MIN / 2, INT64_MAX / 2,
                     &longer))
        return malformed("run of pieces");
    *next = first + count;
    for (int i = (int)first; i < *next; i++) {
        const struct ckpt_extent *old = &before->extents[i];
        struct ckpt_part part = { .begin = old->part.end };
        int64_t elements = old->part.end - old->part.begin + longer;
        int64_t gap = old->offset - ckpt_manifest_end(before, i);
        int64_t end = ckpt_manifest_end(shard, shard->extent_count);
        if (old->part.boxed || elements < 1 ||
            elements > m->tensors[old->tensor].elements - part.begin)
            return malformed("run of pieces outside their tensors");
        if (gap > shard->bytes - end)
            return malformed("piece outside its file");
        part.end = part.begin + elements;
        TRY(add_extent(m, shard, old->tensor, &part, end + gap));
    }
    return ERR_OK;
}

/* Block CRCs are in the frame, which has a sum here, and so behind all extents; or
 * they are here. */
static enum err parse_blocks(const json_t *value, struct ckpt_shard *shard)
{
    const json_t *list = json_object_get(value, "block_crc32c");
    int64_t bytes = 4 * shard->block_count;
    int64_t end = ckpt_manifest_end(shard, shard->extent_count);
    if (list == NULL)
        return get_integer(json_object_get(value, "crc32c_offset"),
                           end > 0 ? end : 1, shard->bytes - bytes,
                           &shard->crc_offset)
                   ? ERR_OK
                   : malformed("crc32c_offset");
    if (!json_is_array(list) ||
        json_array_size(list) != (size_t)shard->block_count)
        return malformed("number of block CRCs");
    TRY(new_zeroed(&shard->blocks, (size_t)shard->block_count + 1));
    for (size_t i = 0; i < (size_t)shard->block_count; i++) {
        int64_t crc;
        if (!get_integer(json_array_get(list, i), 0, UINT32_MAX, &crc))
            return malformed("block CRC");
        shard->blocks[i] = (uint32_t)crc;
    }
    return ERR_OK;
}

/* "shard-..." or "shards/NNN/shard-...": any other path would let a manifest
 * point outside its folder. */
static bool is_shard_name(const char *file)
{
    static const char folder[] = "shards/";
    if (file == NULL || strlen(file) >= CKPT_FILE_BYTES)
        return false;
    if (strncmp(file, folder, strlen(folder)) == 0) {
        file += strlen(folder);
        size_t digits = strspn(file, "0123456789");
        if (digits < 3 || file[digits] != '/')
            return false;
        file += digits + 1;
    }
    return strncmp(file, "shard-", 6) == 0 && strpbrk(file, "/\"\\") == NULL;
}

static enum err parse_shard(const json_t *value, struct ckpt_manifest *m,
                            const struct ckpt_shard *before,
                            struct ckpt_shard *shard)
{
    const char *file = json_string_value(json_object_get(value, "file"));
    const json_t *extents = json_object_get(value, "pieces");
    int64_t frame_crc, next = 0;
    if (!is_shard_name(file))
        return malformed("shard file name");
    memcpy(shard->file, file, strlen(file) + 1);
    if (!get_integer(json_object_get(value, "bytes"), 0, INT64_MAX,
                     &shard->bytes) ||
        !get_integer(json_object_get(value, "frame_crc32c"), 0, UINT32_MAX,
                     &frame_crc) ||
        !json_is_array(extents))
        return malformed("shard");
    shard->frame_crc = (uint32_t)frame_crc;
    if (m->files_alone)
        return __builtin_add_overflow(m->bytes, shard->bytes, &m->bytes)
                   ? malformed("shard")
                   : ERR_OK;
    TRY(new_zeroed(&shard->extents, json_array_size(extents) +
                                        (size_t)before->extent_count + 1));
    for (size_t i = 0; i < json_array_size(extents); i++) {
        const json_t *piece = json_array_get(extents, i);
        TRY(json_array_size(piece) == 3
                ? parse_run(piece, m, before, &next, shard)
                : parse_extent(piece, m, shard));
    }
    return parse_blocks(value, shard);
}

static enum err parse_shards(const json_t *list, struct ckpt_manifest *out)
{
    const struct ckpt_shard none = { 0 }, *before = &none;
    if (!json_is_array(list) || json_array_size(list) > INT32_MAX)
        return malformed("shards");
    int count = (int)json_array_size(list);
    TRY(new_zeroed(&out->shards, (size_t)count + 1));
    out->shard_count = count;
    for (int i = 0; i < count; before = &out->shards[i++]) {
        struct ckpt_shard *shard = &out->shards[i];
        enum err rc =
            parse_shard(json_array_get(list, (size_t)i), out, before, shard);
        TRY(err_prefix(rc, "%s", shard->file[0] != 0 ? shard->file : "shards"));
    }
    return ERR_OK;
}

static enum err parse_view(const json_t *value, struct ckpt_view *view)
{
    const char *file = json_string_value(json_object_get(value, "file"));
    int64_t crc;
    if (json_is_null(value))
        return ERR_OK;
    if (file == NULL || strcmp(file, CKPT_VIEW_FILE) != 0 ||
        !get_integer(json_object_get(value, "bytes"), 1, INT64_MAX,
                     &view->bytes) ||
        !get_integer(json_object_get(value, "crc32c"), 0, UINT32_MAX, &crc))
        return malformed("view");
    view->crc = (uint32_t)crc;
    return ERR_OK;
}

static enum err parse_root(const json_t *root, struct ckpt_manifest *out)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    int64_t version, ranks;
    if (format == NULL || strcmp(format, CKPT_MANIFEST_FORMAT) != 0 ||
        !get_integer(json_object_get(root, "version"), 1, INT64_MAX, &version))
        return malformed("not a Tessera manifest");
    if (version > CKPT_MANIFEST_VERSION)
        return err_set(ERR_UNSUPPORTED,
                       "format version %" PRId64
                       ", this program reads version %d: use a newer one",
                       version, CKPT_MANIFEST_VERSION);
    out->state = json_incref(json_object_get(root, "state"));
    if (!get_integer(json_object_get(root, "step"), 0, INT64_MAX, &out->step) ||
        !get_integer(json_object_get(root, "ranks"), 1, INT32_MAX, &ranks) ||
        out->state == NULL)
        return malformed("step, ranks or state");
    const json_t *uuid = json_object_get(out->state, "run_uuid");
    if (uuid != NULL && (!json_is_string(uuid) ||
                         !ckpt_manifest_uuid_valid(json_string_value(uuid))))
        return malformed("run_uuid");
    out->ranks = (int)ranks;
    TRY(parse_view(json_object_get(root, "view"), &out->view));
    if (!out->files_alone)
        TRY(parse_tensors(json_object_get(root, "tensors"), out));
    TRY(parse_shards(json_object_get(root, "shards"), out));
    return out->files_alone ? ERR_OK : ckpt_cover_check(out);
}

enum err ckpt_manifest_parse_as(const char *text, size_t bytes,
                                const char *where, bool files_alone,
                                struct ckpt_manifest **out)
{
    enum err rc = ERR_OK;
    json_t *root = NULL;
    json_error_t error;
    struct ckpt_manifest *manifest = NULL;
    *out = NULL;
    TRY(new_zeroed(&manifest, 1));
    manifest->files_alone = files_alone;
    TRY_OUT(check_crc(text, bytes));
    root = jsontext_load(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
                         &error);
    if (root == NULL)
        TRY_OUT(jsontext_wrong(&error) == ERR_MEMORY
                    ? err_set(ERR_MEMORY, "%s", error.text)
                    : malformed(error.text));
    TRY_OUT(parse_root(root, manifest));
out:
    err_prefix(rc, "%s", where);
    json_decref(root);
    return new_or_none(rc, manifest, out, ckpt_manifest_destroy);
}

enum err ckpt_manifest_parse(const char *text, size_t bytes, const char *where,
                             struct ckpt_manifest **out)
{
    return ckpt_manifest_parse_as(text, bytes, where, false, out);
}
