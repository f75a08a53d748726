/* Reads what an Arrow IPC file has: its columns, and where its batches are.
 *
 * A stream is messages one after the other, the schema first, then dictionaries and
 * record batches, then a mark. A file is one between "ARROW1" and a footer, which says
 * nothing that the stream does not. A message is its length, a head in flatbuffers, and
 * a body with the buffers of columns. All heads are read when a file is opened, so that
 * one that is cut short is known before hours of work; bodies are not. */
#include "src/data/arrow/arrow_impl.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"

#define META_HEAD_MAX ((int64_t)256 << 20)
#define META_MAGIC "ARROW1"
#define META_MARK "\xff\xff\xff\xff"

/* --- flatbuffers, read where they lie. What does not sets `bad`: numbers are 0 then,
 * and there are no tables and lists. Places point forward alone, so there are no
 * circles; but many may point to the same. --- */

struct flat {
    const uint8_t *data;
    size_t bytes;
    bool bad;
};

int64_t arrow_meta_number(const uint8_t *data, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes; i > 0; i--)
        value = value << 8 | data[i - 1];
    return bytes == 4 ? (int32_t)(uint32_t)value : (int64_t)value;
}

int64_t arrow_meta_place(const struct arrow_node *node, const uint8_t *data)
{
    int free_bits = 64 - 8 * (int)node->place_bytes;
    uint64_t top = (uint64_t)arrow_meta_number(data, (size_t)node->place_bytes)
                   << free_bits;
    return node->place_signed ? (int64_t)top >> free_bits
                              : (int64_t)(top >> free_bits);
}

static int64_t flat_load(struct flat *flat, size_t at, size_t bytes)
{
    flat->bad = flat->bad || at > flat->bytes || bytes > flat->bytes - at;
    return flat->bad ? 0 : arrow_meta_number(flat->data + at, bytes);
}

/* Where what is at a place points to; 0: nowhere. */
static size_t flat_follow(struct flat *flat, size_t at)
{
    size_t to = at + (uint32_t)flat_load(flat, at, 4);
    flat->bad = flat->bad || to <= at || to >= flat->bytes;
    return flat->bad ? 0 : to;
}

/* Where a table's field is, 0: there is none. The table says where the places of its
 * fields are. */
static size_t flat_field(struct flat *flat, size_t table, size_t field)
{
    int64_t places = (int64_t)table - flat_load(flat, table, 4);
    flat->bad = flat->bad || places < 0;
    size_t at = (size_t)places;
    if (table == 0 || 2 * (int64_t)field + 6 > flat_load(flat, at, 2))
        return 0;
    size_t place = (size_t)flat_load(flat, at + 4 + 2 * field, 2);
    return place > 0 ? table + place : 0;
}

static int64_t flat_number(struct flat *flat, size_t table, size_t field,
                           size_t bytes)
{
    size_t at = flat_field(flat, table, field);
    return at > 0 ? flat_load(flat, at, bytes) : 0;
}

static size_t flat_table(struct flat *flat, size_t table, size_t field)
{
    size_t at = flat_field(flat, table, field);
    return at > 0 ? flat_follow(flat, at) : 0;
}

/* *count elements of so many bytes. */
static const uint8_t *flat_list(struct flat *flat, size_t table, size_t field,
                                size_t bytes, size_t *count)
{
    size_t at = flat_table(flat, table, field);
    *count = at > 0 ? (uint32_t)flat_load(flat, at, 4) : 0;
    flat->bad =
        flat->bad || (*count > 0 && *count > (flat->bytes - at - 4) / bytes);
    *count = flat->bad ? 0 : *count;
    return *count > 0 ? flat->data + at + 4 : (const uint8_t *)"";
}

/* --- messages --- */

static enum err meta_damaged(const struct arrow_meta *meta, const char *what)
{
    return err_set(ERR_DATA, "%s: as Arrow it %s; copy or make the file again",
                   meta->file.path, what);
}

static enum err meta_unread(const struct arrow_meta *meta, const char *what)
{
    return err_set(ERR_UNSUPPORTED,
                   "%s is Arrow %s, which is not read here; write it again "
                   "without, with pyarrow's defaults",
                   meta->file.path, what);
}

/* What of the head of a message is wanted. */
static void meta_head(struct arrow_meta *meta, struct flat *flat,
                      struct arrow_message *out)
{
    size_t root = flat_follow(flat, 0);
    meta->version = flat_number(flat, root, 0, 2);
    out->kind = (int)flat_number(flat, root, 1, 1);
    out->table = flat_table(flat, root, 2);
    out->body_bytes = flat_number(flat, root, 3, 8);
    flat->bad = flat->bad || out->table == 0;
    size_t batch = out->table;
    if (out->kind == ARROW_SCHEMA)
        return;
    if (out->kind == ARROW_DICTIONARY) {
        out->id = flat_number(flat, batch, 0, 8);
        out->delta = flat_number(flat, batch, 2, 1) != 0;
        batch = flat_table(flat, batch, 1);
    }
    out->rows = flat_number(flat, batch, 0, 8);
    out->node = flat_list(flat, batch, 1, 16, &out->nodes);
    out->buffer = flat_list(flat, batch, 2, 16, &out->buffers);
    out->view = flat_list(flat, batch, 4, 8, &out->views);
    size_t packed = flat_table(flat, batch, 3);
    out->codec = packed > 0 ? flat_number(flat, packed, 0, 1) : -1;
    flat->bad = flat->bad || out->rows < 0 || out->kind < ARROW_SCHEMA ||
                out->kind > ARROW_BATCH;
}

enum err arrow_meta_message(struct arrow_meta *meta, int64_t at,
                            struct arrow_message *out)
{
    uint8_t mark[8] = { 0 };
    *out = (struct arrow_message){ .at = at, .next = at + 8 };
    if (meta->end - at < 8)
        return meta_damaged(meta, "is cut short");
    TRY(fsio_pread(meta->file.fd, mark, 8, at, meta->file.path));
    int64_t bytes = arrow_meta_number(mark + 4, 4);
    if (memcmp(mark, META_MARK, 4) != 0)
        return meta_damaged(meta, "has a message without its mark");
    if (bytes == 0)
        return ERR_OK;
    if (bytes < 0 || bytes > META_HEAD_MAX)
        return meta_damaged(meta, "has a message with a damaged length");
    if (bytes > meta->end - at - 8)
        return meta_damaged(meta, "is cut short");
    meta->head.bytes = 0;
    TRY(buffer_reserve(&meta->head, (size_t)bytes));
    TRY(fsio_pread(meta->file.fd, meta->head.data, (size_t)bytes, at + 8,
                   meta->file.path));
    meta->head.bytes = (size_t)bytes;
    struct flat flat = { meta->head.data, (size_t)bytes, false };
    meta_head(meta, &flat, out);
    out->body = at + 8 + bytes;
    if (flat.bad || out->body_bytes < 0)
        return meta_damaged(meta, "has a damaged message");
    if (out->body_bytes > meta->end - out->body)
        return meta_damaged(meta, "is cut short");
    out->next = out->body + out->body_bytes;
    return meta->version == 3 || meta->version == 4
               ? ERR_OK
               : meta_unread(meta, "of another version than 4 and 5");
}

/* --- the schema --- */

/* Types by the format's numbers: how many buffers an array has, what it is where it is
 * not OTHER, and why it is no text. */
enum { TYPES = 27 };
static const uint8_t meta_buffers[TYPES] = { 0, 0, 2, 2, 3, 3, 2, 2, 2,
                                             2, 2, 2, 2, 1, 1, 2, 1, 2,
                                             2, 3, 3, 2, 0, 2, 2, 3, 3 };
static const enum arrow_kind meta_kinds[TYPES] = {
    [4] = ARROW_TEXT,        [5] = ARROW_TEXT,        [12] = ARROW_LIST,
    [13] = ARROW_STRUCT,     [17] = ARROW_LIST, /* a map, of pairs */
    [19] = ARROW_LARGE_TEXT, [20] = ARROW_LARGE_TEXT, [21] = ARROW_LARGE_LIST,
};
static const char *const meta_wrong[TYPES] = {
    [1] = "nulls alone",
    [2] = "whole numbers",
    [3] = "real numbers",
    [6] = "truths",
    [7] = "decimal numbers",
    [8] = "dates",
    [9] = "times",
    [10] = "times",
    [11] = "spans of time",
    [14] = "a union",
    [15] = "bytes of fixed length",
    [16] = "lists of fixed length",
    [18] = "spans of time",
    [22] = "runs of values",
    [23] = "views of texts",
    [24] = "views of texts",
    [25] = "views of lists",
    [26] = "views of lists",
};
enum { TYPE_UNION = 14, TYPE_VIEW = 23, TYPE_TEXT_VIEW };

struct meta_walk {
    struct arrow_meta *meta;
    struct flat flat;
    char path[COLUMNS_PATH_BYTES];
};

/* What a field is, but for its name; *wrong: why it is no text. */
static enum err field_node(struct meta_walk *walk, size_t field,
                           struct arrow_node *node, const char **wrong)
{
    struct flat *flat = &walk->flat;
    size_t type = (size_t)flat_number(flat, field, 2, 1);
    size_t dictionary = flat_table(flat, field, 4);
    if (type == 0 || type >= TYPES)
        return err_set(ERR_UNSUPPORTED,
                       "%s: column '%s' has a type that is unknown here; write "
                       "the file again without it",
                       walk->meta->file.path, walk->path);
    node->kind = meta_kinds[type];
    node->buffers = meta_buffers[type];
    node->views = type == TYPE_VIEW || type == TYPE_TEXT_VIEW;
    *wrong = meta_wrong[type];
    if (type == TYPE_UNION) /* dense ones have offsets, old ones validity */
        node->buffers +=
            (size_t)(flat_number(flat, flat_table(flat, field, 3), 0, 2) +
                     (walk->meta->version < 4));
    if (dictionary == 0)
        return ERR_OK;
    size_t place = flat_table(flat, dictionary, 1);
    bool words = node->kind >= ARROW_TEXT;
    node->words = node->kind;
    node->kind = words ? ARROW_PLACES : ARROW_OTHER;
    node->buffers = 2;
    node->views = false;
    node->dictionary = flat_number(flat, dictionary, 0, 8);
    int64_t bits = place > 0 ? flat_number(flat, place, 0, 4) : 32;
    node->place_signed = place == 0 || flat_number(flat, place, 1, 1) != 0;
    node->place_bytes = bits / 8;
    *wrong = words ? NULL : "a dictionary of other things";
    flat->bad =
        flat->bad || (bits != 8 && bits != 16 && bits != 32 && bits != 64);
    return ERR_OK;
}

/* A field below `from`, and those in it; of what is no text, where that is NULL, there
 * are no leaves. */
static enum err meta_field(struct meta_walk *walk, size_t field, size_t above,
                           const struct columns_way *from, int depth)
{
    struct arrow_meta *meta = walk->meta;
    struct flat *flat = &walk->flat;
    struct columns_way way = { .bytes = 0 };
    struct arrow_node node = { .above = above, .leaf = SIZE_MAX };
    const char *wrong = NULL;
    size_t count = 0, at = meta->nodes;
    const uint8_t *list = flat_list(flat, field, 0, 1, &count);
    if (at == COLUMNS_MAX || depth == COLUMNS_DEPTH_MAX)
        return meta_damaged(meta, "has more columns than are read here");
    if (from != NULL) {
        way = *from;
        wrong = columns_leaf_name(&way, walk->path, list, count);
        if (wrong != NULL)
            return meta_damaged(meta, wrong);
        columns_leaf_level(&way, false);
    }
    TRY(field_node(walk, field, &node, &wrong));
    bool lists = node.kind == ARROW_LIST || node.kind == ARROW_LARGE_LIST;
    bool leaf = !lists && node.kind != ARROW_STRUCT;
    if (from != NULL && leaf) {
        node.leaf = meta->file.leaves;
        TRY(columns_leaf_add(&meta->file, walk->path, &way, wrong));
    }
    if (lists)
        columns_leaf_level(&way, true);
    TRY(array_room(&meta->node, &meta->nodes_capacity, at + 1));
    meta->node[meta->nodes++] = node;
    list = flat_list(flat, field, 5, 4, &count);
    if (flat->bad || field == 0 || (lists && count != 1))
        return meta_damaged(meta, "has a damaged schema");
    if (flat_table(flat, field, 4) != 0)
        count = 0; /* of a dictionary they are in its own batch */
    for (size_t i = 0; i < count; i++) {
        size_t next = flat_follow(flat, (size_t)(list - flat->data) + 4 * i);
        TRY(meta_field(walk, next, at, from != NULL && !leaf ? &way : NULL,
                       depth + 1));
    }
    return ERR_OK;
}

static enum err meta_schema(struct arrow_meta *meta, size_t schema)
{
    static const struct columns_way top;
    struct meta_walk walk = { meta,
                              { meta->head.data, meta->head.bytes, false },
                              "" };
    size_t count = 0;
    if (flat_number(&walk.flat, schema, 0, 2) != 0)
        return meta_unread(meta, "of a big-endian machine");
    const uint8_t *list = flat_list(&walk.flat, schema, 1, 4, &count);
    for (size_t i = 0; i < count; i++) {
        size_t next =
            flat_follow(&walk.flat, (size_t)(list - walk.flat.data) + 4 * i);
        TRY(meta_field(&walk, next, SIZE_MAX, &top, 0));
    }
    return walk.flat.bad ? meta_damaged(meta, "has a damaged schema") : ERR_OK;
}

/* --- the file --- */

static enum err meta_add(struct arrow_meta *meta,
                         const struct arrow_message *message)
{
    struct columns_file *file = &meta->file;
    size_t batches = file->groups;
    if (message->kind == ARROW_BATCH) {
        TRY(array_room(&file->rows, &meta->rows_capacity, batches + 1));
        TRY(array_room(&meta->batch, &meta->batch_capacity, batches + 1));
        file->rows[batches] = message->rows;
        meta->batch[file->groups++] = message->at;
        return ERR_OK;
    }
    if (message->kind != ARROW_DICTIONARY)
        return meta_damaged(meta, "has two schemas");
    if (message->delta)
        return meta_unread(meta, "with dictionaries in parts");
    TRY(array_room(&meta->dictionary, &meta->dictionaries_capacity,
                   meta->dictionaries + 1));
    meta->dictionary[meta->dictionaries++] =
        (struct arrow_dictionary){ message->at, message->id, batches };
    return ERR_OK;
}

/* The messages from a place up to the mark, or in a file to its footer. */
static enum err meta_messages(struct arrow_meta *meta, int64_t at, bool stream)
{
    struct arrow_message message;
    TRY(arrow_meta_message(meta, at, &message));
    if (message.kind != ARROW_SCHEMA)
        return meta_damaged(meta, "has no schema");
    TRY(meta_schema(meta, message.table));
    while (stream || message.next < meta->end) {
        TRY(arrow_meta_message(meta, message.next, &message));
        if (message.kind == ARROW_END)
            break;
        TRY(meta_add(meta, &message));
    }
    return message.kind != ARROW_END || message.next == meta->end
               ? ERR_OK
               : meta_damaged(meta, "goes on behind its end");
}

enum err arrow_meta_open(const char *path, struct arrow_meta *meta)
{
    uint8_t mark[8] = { 0 }, tail[10] = { 0 };
    int64_t bytes = 0;
    TRY(columns_leaf_open(&meta->file, path, &bytes));
    meta->end = bytes;
    if (bytes >= 8)
        TRY(fsio_pread(meta->file.fd, mark, 8, 0, path));
    if (memcmp(mark, META_MARK, 4) == 0)
        return meta_messages(meta, 0, true);
    if (memcmp(mark, META_MAGIC, 6) != 0)
        return err_set(ERR_DATA,
                       "%s begins neither as a file of Arrow nor as a stream: "
                       "it is cut short, or something else (Feather of version "
                       "1, Arrow before 0.15); make it again, or give it "
                       "another name",
                       path);
    if (bytes >= 18)
        TRY(fsio_pread(meta->file.fd, tail, 10, bytes - 10, path));
    meta->end = bytes - 10 - (uint32_t)arrow_meta_number(tail, 4);
    return memcmp(tail + 4, META_MAGIC, 6) == 0
               ? meta_messages(meta, 8, false)
               : meta_damaged(meta, "is cut short");
}

void arrow_meta_close(struct arrow_meta *meta)
{
    buffer_free(&meta->head);
    free(meta->node);
    free(meta->batch);
    free(meta->dictionary);
    columns_leaf_close(&meta->file);
}
