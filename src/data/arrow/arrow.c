/* Arrow's IPC files, as columns.h reads them: files (Feather of version 2 among them) and
 * streams, as Python's datasets writes them.
 *
 * Texts are utf8 and binary, large or not, and dictionaries of these; lists may be large,
 * or maps. Bodies are packed with lz4, zstd or not. A column is an array of the batch,
 * or several, from the top to the leaf: each has its length, and buffers that say which
 * elements are there, by bits, and where they lie. All are taken as if elements could be
 * missing, so each name of a path has a level, and each list one more. No number is
 * believed: it is compared with its buffer before a byte is touched. Memory: what a
 * record batch has of the columns that are read, with their dictionaries, of at most
 * ARROW_BYTES_MAX, and what of it is packed. */
#include "src/data/arrow/arrow_impl.h"

#include <stdlib.h>

#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/data/codec/codec.h"

#define ARROW_BYTES_MAX ((size_t)1 << 30)
#define PACKED_MORE 65536 /* bytes, where nothing can be packed */

static const struct {
    const char *name;
    const struct codec_ops *ops;
} arrow_codecs[] = { { "lz4", &codec_lz4_frame_ops },
                     { "zstd", &codec_zstd_ops } };

/* Where a buffer is among those that were read. */
struct arrow_part {
    size_t at, bytes;
};

struct arrow_array {
    size_t node;
    enum arrow_kind kind;
    int64_t length;
    bool nulls;
    struct arrow_part part[3]; /* which are there, offsets or places, texts */
};

struct arrow_column {
    const struct columns_leaf *leaf;
    struct arrow_array *level; /* from the top to the leaf */
    size_t levels, inner;      /* the first one in a list; 0: there is none */
    const struct arrow_node *leaf_node;
    bool begun;               /* the batch; of it: */
    struct buffer data;       /* what was read */
    int64_t rows, row;        /* next */
    int64_t element, end;     /* of the list at hand, that are left */
    struct arrow_array words; /* the dictionary as it is for the batch */
    struct buffer words_data;
    size_t next; /* of meta.dictionary, to be looked at */
};

struct arrow {
    struct arrow_meta meta;
    struct arrow_column *column;
    size_t count, batch; /* the one at hand */
    size_t held;         /* bytes of all columns */
    struct buffer packed;
};

static enum err arrow_damaged(void)
{
    return err_set(ERR_DATA, "is damaged");
}

static void arrow_close(struct columns_file *file)
{
    struct arrow *arrow = (struct arrow *)file;
    for (size_t c = 0; c < arrow->count; c++) {
        free(arrow->column[c].level);
        buffer_free(&arrow->column[c].data);
        buffer_free(&arrow->column[c].words_data);
    }
    free(arrow->column);
    buffer_free(&arrow->packed);
    arrow_meta_close(&arrow->meta);
}

static enum err arrow_open(const char *path, struct columns_file **out)
{
    struct arrow *arrow = NULL;
    TRY(new_zeroed(&arrow, 1));
    enum err rc = arrow_meta_open(path, &arrow->meta);
    return new_or_none(rc, &arrow->meta.file, out, arrow_close);
}

/* The way to a leaf, which is in the node. */
static enum err arrow_way(const struct arrow_meta *meta, size_t node,
                          struct arrow_column *column)
{
    column->begun = true; /* there is no batch at hand */
    column->leaf_node = &meta->node[node];
    for (size_t n = node; n != SIZE_MAX; n = meta->node[n].above)
        column->levels++;
    TRY(new_zeroed(&column->level, column->levels));
    size_t l = column->levels;
    for (size_t n = node; n != SIZE_MAX; n = meta->node[n].above) {
        if (meta->node[n].kind == ARROW_LIST ||
            meta->node[n].kind == ARROW_LARGE_LIST)
            column->inner = l;
        column->level[--l].node = n;
    }
    return ERR_OK;
}

static enum err arrow_choose(struct columns_file *file,
                             const struct columns_leaf *const *chosen,
                             size_t count)
{
    struct arrow *arrow = (struct arrow *)file;
    TRY(new_zeroed(&arrow->column, count + 1));
    for (size_t n = 0; arrow->count < count; n++)
        if (arrow->meta.node[n].leaf == chosen[arrow->count]->number) {
            struct arrow_column *column = &arrow->column[arrow->count];
            column->leaf = chosen[arrow->count++];
            TRY(arrow_way(&arrow->meta, n, column));
        }
    return ERR_OK;
}

/* Read `bytes` at a place of the file, as they are. */
static enum err arrow_read(const struct arrow *arrow, int64_t at, size_t bytes,
                           struct buffer *out)
{
    TRY(buffer_reserve(out, bytes + 1));
    TRY(fsio_pread(arrow->meta.file.fd, out->data + out->bytes, bytes, at,
                   arrow->meta.file.path));
    out->bytes += bytes;
    return ERR_OK;
}

static void arrow_forget(struct arrow *arrow, struct buffer *data)
{
    arrow->held -= data->bytes;
    buffer_free(data);
}

/* A buffer of a batch, behind what is in `data`. What is packed begins with its length,
 * -1 where it is not. */
static enum err arrow_part(struct arrow *arrow,
                           const struct arrow_message *batch, size_t buffer,
                           struct buffer *data, struct arrow_part *part)
{
    struct buffer *packed = &arrow->packed;
    if (buffer >= batch->buffers)
        return arrow_damaged();
    int64_t at = arrow_meta_number(batch->buffer + 16 * buffer, 8);
    int64_t bytes = arrow_meta_number(batch->buffer + 16 * buffer + 8, 8);
    if (at < 0 || bytes < 0 || at > batch->body_bytes ||
        bytes > batch->body_bytes - at)
        return arrow_damaged();
    at += batch->body;
    packed->bytes = 0;
    bool whole = batch->codec < 0 || bytes == 0;
    int64_t length = bytes;
    if (!whole) {
        if (bytes < 8)
            return arrow_damaged();
        TRY(arrow_read(arrow, at, 8, packed));
        length = arrow_meta_number(packed->data, 8);
        at += 8;
        bytes -= 8;
        whole = length == -1;
        length = whole ? bytes : length;
    }
    /* zstd makes at most 2^17 bytes of four */
    if (length < 0 || batch->codec > 1 || length >> 15 > bytes)
        return arrow_damaged();
    if ((uint64_t)length > ARROW_BYTES_MAX - arrow->held)
        return err_set(ERR_UNSUPPORTED,
                       "and others have more than the %zu bytes of a batch "
                       "that are read here",
                       ARROW_BYTES_MAX);
    if (bytes > length + length / 8 + PACKED_MORE)
        return arrow_damaged();
    arrow->held += (size_t)length;
    *part = (struct arrow_part){ data->bytes, (size_t)length };
    if (whole)
        return arrow_read(arrow, at, part->bytes, data);
    packed->bytes = 0;
    TRY(arrow_read(arrow, at, (size_t)bytes, packed));
    TRY(buffer_reserve(data, part->bytes + 1));
    data->bytes += part->bytes;
    return codec_unpack_bytes(
        arrow_codecs[batch->codec].ops, arrow_codecs[batch->codec].name,
        packed->data, packed->bytes, data->data + part->at, part->bytes);
}

/* An array of a batch, whose node and kind are known and whose buffers begin with
 * `first`. */
static enum err arrow_array(struct arrow *arrow,
                            const struct arrow_message *batch, size_t first,
                            struct buffer *data, struct arrow_array *array)
{
    if (array->node >= batch->nodes)
        return arrow_damaged();
    const uint8_t *node = batch->node + 16 * array->node;
    array->length = arrow_meta_number(node, 8);
    array->nulls = arrow_meta_number(node + 8, 8) != 0;
    if (array->length < 0 || array->length > INT64_MAX / 16)
        return arrow_damaged();
    if (array->nulls)
        TRY(arrow_part(arrow, batch, first, data, &array->part[0]));
    if (array->kind != ARROW_STRUCT)
        TRY(arrow_part(arrow, batch, first + 1, data, &array->part[1]));
    return array->kind == ARROW_TEXT || array->kind == ARROW_LARGE_TEXT
               ? arrow_part(arrow, batch, first + 2, data, &array->part[2])
               : ERR_OK;
}

/* The dictionary of a column as it is for the batch at hand: the last one that came
 * before it. */
static enum err arrow_words(struct arrow *arrow, struct arrow_column *column)
{
    struct arrow_meta *meta = &arrow->meta;
    struct arrow_message message;
    const struct arrow_dictionary *last = NULL;
    const struct arrow_node *node = column->leaf_node;
    for (; column->next < meta->dictionaries &&
           meta->dictionary[column->next].before <= arrow->batch;
         column->next++)
        if (meta->dictionary[column->next].id == node->dictionary)
            last = &meta->dictionary[column->next];
    if (node->kind != ARROW_PLACES || last == NULL)
        return ERR_OK;
    arrow_forget(arrow, &column->words_data);
    column->words.kind = node->words;
    TRY(arrow_meta_message(meta, last->at, &message));
    return arrow_array(arrow, &message, 0, &column->words_data, &column->words);
}

/* Where each node of a batch has its buffers. */
static bool arrow_buffers(struct arrow_meta *meta,
                          const struct arrow_message *batch)
{
    size_t at = 0, view = 0;
    for (size_t n = 0; n < meta->nodes; n++) {
        meta->node[n].first = at;
        at += meta->node[n].buffers;
        if (!meta->node[n].views || view == batch->views)
            continue;
        int64_t more = arrow_meta_number(batch->view + 8 * view++, 8);
        if (more < 0 || (uint64_t)more > batch->buffers)
            return false;
        at += (size_t)more;
    }
    return at == batch->buffers && meta->nodes == batch->nodes;
}

/* What a column has of the batch at hand. */
static enum err arrow_column(struct arrow *arrow, struct arrow_column *column)
{
    struct arrow_meta *meta = &arrow->meta;
    struct arrow_message batch;
    column->rows = meta->file.rows[arrow->batch];
    TRY(arrow_words(arrow, column));
    if (column->rows == 0)
        return ERR_OK;
    TRY(arrow_meta_message(meta, meta->batch[arrow->batch], &batch));
    if (!arrow_buffers(meta, &batch))
        return arrow_damaged();
    for (size_t l = 0; l < column->levels; l++) {
        struct arrow_array *level = &column->level[l];
        level->kind = meta->node[level->node].kind;
        TRY(arrow_array(arrow, &batch, meta->node[level->node].first,
                        &column->data, level));
    }
    return column->level[0].length == column->rows ? ERR_OK : arrow_damaged();
}

static void arrow_begin(struct columns_file *file, size_t group)
{
    struct arrow *arrow = (struct arrow *)file;
    arrow->batch = group;
    for (size_t c = 0; c < arrow->count; c++) {
        struct arrow_column *column = &arrow->column[c];
        arrow_forget(arrow, &column->data);
        column->row = column->element = column->end = 0;
        column->begun = false;
    }
}

/* `bytes` of part `part` of an array. */
static enum err array_get(const struct arrow_array *array, int part,
                          const struct buffer *data, int64_t at, int64_t bytes,
                          const uint8_t **out)
{
    int64_t size = (int64_t)array->part[part].bytes;
    if (at < 0 || bytes < 0 || at > size || bytes > size - at)
        return arrow_damaged();
    *out = bytes > 0 ? data->data + array->part[part].at + at
                     : (const uint8_t *)"";
    return ERR_OK;
}

static enum err array_there(const struct arrow_array *array,
                            const struct buffer *data, int64_t i, bool *there)
{
    const uint8_t *bits = NULL;
    *there = true;
    if (i >= array->length)
        return arrow_damaged();
    if (array->nulls)
        TRY(array_get(array, 0, data, i / 8, 1, &bits));
    *there = bits == NULL || (*bits >> i % 8 & 1) != 0;
    return ERR_OK;
}

/* Where element i of a list or a text begins and ends. */
static enum err array_range(const struct arrow_array *array,
                            const struct buffer *data, int64_t i,
                            int64_t range[2])
{
    const uint8_t *offset = NULL;
    size_t each =
        array->kind == ARROW_LARGE_LIST || array->kind == ARROW_LARGE_TEXT ? 8
                                                                           : 4;
    TRY(array_get(array, 1, data, i * (int64_t)each, 2 * (int64_t)each,
                  &offset));
    range[0] = arrow_meta_number(offset, each);
    range[1] = arrow_meta_number(offset + each, each);
    return range[0] >= 0 && range[0] <= range[1] ? ERR_OK : arrow_damaged();
}

/* Element i of the leaf, which is there; in a dictionary it may be none. */
static enum err column_text(const struct arrow_column *column, int64_t i,
                            struct columns_value *out)
{
    const struct arrow_array *array = &column->level[column->levels - 1];
    const struct buffer *data = &column->data;
    int64_t each = column->leaf_node->place_bytes;
    int64_t range[2] = { 0, 0 };
    const uint8_t *place = NULL;
    bool there = true;
    if (array->kind == ARROW_PLACES) {
        TRY(array_get(array, 1, data, i * each, each, &place));
        i = arrow_meta_place(column->leaf_node, place);
        array = &column->words;
        data = &column->words_data;
        if (i < 0 || i >= array->length)
            return err_set(ERR_DATA,
                           "has the place %lld in a dictionary of %lld texts",
                           (long long)i, (long long)array->length);
        TRY(array_there(array, data, i, &there));
    }
    if (!there)
        return ERR_OK;
    TRY(array_range(array, data, i, range));
    out->bytes = (size_t)(range[1] - range[0]);
    return array_get(array, 2, data, range[0], range[1] - range[0], &out->text);
}

/* Element i of a level, and what of it is there below. */
static enum err column_value(struct arrow_column *column, size_t level,
                             int64_t i, struct columns_value *out)
{
    bool there = false;
    int64_t range[2] = { 0, 0 };
    for (size_t l = level; l < column->levels; l++) {
        const struct arrow_array *array = &column->level[l];
        TRY(array_there(array, &column->data, i, &there));
        if (!there)
            return ERR_OK;
        out->defined++;
        if (l + 1 == column->inner) {
            TRY(array_range(array, &column->data, i, range));
            if (range[0] == range[1])
                return ERR_OK;
            out->defined++;
            i = range[0];
            column->element = i + 1;
            column->end = range[1];
        }
    }
    return column_text(column, i, out);
}

static enum err arrow_next(struct columns_file *file, size_t number,
                           struct columns_value *out, bool *more)
{
    struct arrow *arrow = (struct arrow *)file;
    struct arrow_column *column = &arrow->column[number];
    if (!column->begun)
        TRY(arrow_column(arrow, column));
    column->begun = true;
    bool inside = column->element < column->end;
    *more = inside || column->row < column->rows;
    *out = (struct columns_value){ .begins = !inside };
    if (!inside)
        return *more ? column_value(column, 0, column->row++, out) : ERR_OK;
    out->defined = (int)column->inner + 1;
    return column_value(column, column->inner, column->element++, out);
}

static int64_t arrow_position(const struct columns_file *file)
{
    const struct arrow *arrow = (const struct arrow *)file;
    return arrow->batch < file->groups ? arrow->meta.batch[arrow->batch] : 0;
}

const struct columns_format arrow_format = {
    COLUMNS_FORMAT("Arrow", "record batch", ".arrow", ".feather"),
    .remedy = "write the file again, not packed, in smaller batches",
    .open = arrow_open,
    .choose = arrow_choose,
    .close = arrow_close,
    .begin = arrow_begin,
    .next = arrow_next,
    .position = arrow_position
};
