/* Reads the footer of a Parquet file.
 *
 * A file ends with its footer, the length of that and "PAR1". The footer has the
 * tree of columns, laid down from the root with the number of children of each,
 * and for every row group and column where the pages are. It is read twice where
 * it lies in memory: for the columns, and, when some of them are chosen, for
 * where these lie; of all the others nothing is kept. */
#include "src/data/parquet/parquet_impl.h"

#include <assert.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/new.h"

#define META_FOOTER_MAX ((int64_t)256 << 20)

enum meta_repetition { META_REQUIRED, META_OPTIONAL, META_REPEATED };

static const char *const meta_types[] = {
    "truths",      "int32 numbers",        "int64 numbers",
    "int96 times", "float numbers",        "double numbers",
    NULL,          "bytes of fixed length"
};
#define META_BYTES 6 /* BYTE_ARRAY */

/* A node of the tree: numbers by their fields, and its name. */
enum { NODE_TYPE = 1, NODE_REPETITION = 3, NODE_CHILDREN = 5, NODE_FORM };
#define NODE_DECIMAL 5
struct meta_node {
    int64_t number[NODE_FORM + 1]; /* type -1: a group */
    struct thrift_text name;
};

/* The way from the root to a node. */
struct meta_way {
    int64_t left; /* children that follow */
    struct columns_way names;
};

static enum err meta_damaged(const struct parquet_meta *meta, const char *what)
{
    return err_set(ERR_DATA,
                   "%s: its Parquet footer %s; copy or make the file again",
                   meta->file.path, what);
}

static enum err meta_encrypted(const struct parquet_meta *meta)
{
    return err_set(ERR_UNSUPPORTED,
                   "%s is encrypted Parquet, which is not read here; write it "
                   "again without",
                   meta->file.path);
}

static void meta_read_node(struct thrift *thrift, struct meta_node *node)
{
    const int64_t *number = node->number;
    *node =
        (struct meta_node){ { [NODE_TYPE] = -1 }, { (const uint8_t *)"", 0 } };
    thrift_struct(thrift, node->number, NODE_FORM + 1, &node->name);
    thrift->bad = thrift->bad || number[NODE_TYPE] < -1 ||
                  number[NODE_TYPE] > 7 || number[NODE_REPETITION] < 0 ||
                  number[NODE_REPETITION] > META_REPEATED ||
                  number[NODE_CHILDREN] < 0;
}

static enum err meta_add_leaf(struct parquet_meta *meta, const char *path,
                              const struct columns_way *way,
                              const struct meta_node *node)
{
    const int64_t type = node->number[NODE_TYPE];
    /* without a form of their own they may be */
    const char *wrong = type != META_BYTES ? meta_types[type]
                        : node->number[NODE_FORM] == NODE_DECIMAL
                            ? "decimal numbers"
                            : NULL;
    enum err rc = columns_leaf_add(&meta->file, path, way, wrong);
    return rc == ERR_DATA ? meta_damaged(meta, err_text()) : rc;
}

/* One node below the way, which becomes *here. */
static enum err meta_node(struct parquet_meta *meta, struct thrift *thrift,
                          char *path, const struct meta_way *above,
                          struct meta_way *here)
{
    struct meta_node node;
    meta_read_node(thrift, &node);
    if (thrift->bad)
        return meta_damaged(meta, "is damaged");
    *here = *above;
    const char *wrong =
        columns_leaf_name(&here->names, path, node.name.data, node.name.bytes);
    if (wrong != NULL)
        return meta_damaged(meta, wrong);
    if (node.number[NODE_REPETITION] != META_REQUIRED)
        columns_leaf_level(&here->names,
                           node.number[NODE_REPETITION] == META_REPEATED);
    here->left = node.number[NODE_CHILDREN];
    bool group = node.number[NODE_TYPE] < 0;
    if (group != (here->left > 0))
        return meta_damaged(meta, "has a column without a type");
    return group ? ERR_OK : meta_add_leaf(meta, path, &here->names, &node);
}

static enum err meta_schema(struct parquet_meta *meta, struct thrift *thrift,
                            size_t count)
{
    char path[COLUMNS_PATH_BYTES];
    struct meta_way way[COLUMNS_DEPTH_MAX] = { { .left = 0 } };
    struct meta_node root;
    size_t depth = 0;
    if (count == 0 || meta->file.leaves > 0)
        return meta_damaged(meta, "has no columns");
    meta_read_node(thrift, &root);
    way[0].left = root.number[NODE_CHILDREN];
    for (size_t i = 1;; i++) {
        while (depth > 0 && way[depth].left == 0)
            depth--;
        if (i == count)
            break;
        if (way[depth].left-- == 0 || depth + 1 == COLUMNS_DEPTH_MAX)
            return meta_damaged(meta, "has columns in columns without an end");
        TRY(meta_node(meta, thrift, path, &way[depth], &way[depth + 1]));
        depth++;
    }
    return way[depth].left == 0 ? ERR_OK : meta_damaged(meta, "lacks columns");
}

/* Where a column's pages begin and end. */
static void meta_read_place(struct thrift *thrift, struct parquet_chunk *chunk)
{
    int64_t number[12] = { 0 };
    thrift_struct(thrift, number, 12, NULL);
    int64_t bytes = number[7], data = number[9], dictionary = number[11];
    /* some writers put 0 for a dictionary that there is not */
    chunk->begin = dictionary > 0 && dictionary < data ? dictionary : data;
    chunk->codec = number[4];
    chunk->values = number[5];
    if (bytes < 0 || chunk->begin < 0 || chunk->begin > INT64_MAX - bytes ||
        chunk->values < 0)
        thrift->bad = true;
    else
        chunk->end = chunk->begin + bytes;
}

static enum err meta_column(const struct parquet_meta *meta,
                            struct thrift *thrift, struct parquet_chunk *chunk)
{
    const char *why = NULL;
    struct thrift_field field = { 0, 0 };
    *chunk = (struct parquet_chunk){ .values = -1 };
    while (thrift_next(thrift, &field)) {
        why = field.id == 1                    ? "lies in another file"
              : field.id == 8 || field.id == 9 ? "is encrypted"
                                               : why;
        if (field.id == 3 && field.type == THRIFT_STRUCT)
            meta_read_place(thrift, chunk);
        else
            thrift_skip(thrift, &field);
    }
    if (why != NULL)
        return err_set(ERR_UNSUPPORTED,
                       "%s, which is not read here; write the file again", why);
    if (thrift->bad || chunk->values < 0 || chunk->end > meta->bytes ||
        (chunk->values > 0 && chunk->begin < 4))
        return err_set(ERR_DATA, "does not lie in the file; copy or make the "
                                 "file again");
    return ERR_OK;
}

/* The columns of a row group, of which just the chosen ones are looked at. */
static enum err meta_group(struct parquet_meta *meta, struct thrift *thrift,
                           const struct columns_leaf *const *chosen,
                           size_t count, size_t group)
{
    struct thrift_field field = { 0, 0 };
    const struct thrift_field column = { 0, THRIFT_STRUCT };
    size_t columns = 0;
    meta->file.rows[group] = -1;
    while (thrift_next(thrift, &field))
        if (field.id == 3) {
            meta->file.rows[group] = thrift_int(thrift, &field);
        } else if (field.id == 1) {
            columns = thrift_list(thrift, &field, THRIFT_STRUCT);
            for (size_t i = 0, c = 0; i < columns && !thrift->bad; i++) {
                if (c == count || chosen[c]->number != i) {
                    thrift_skip(thrift, &column);
                    continue;
                }
                enum err rc =
                    meta_column(meta, thrift, &meta->chunk[group * count + c]);
                TRY(err_prefix(rc, "%s: row group %zu: column '%s'",
                               meta->file.path, group, chosen[c]->path));
                c++;
            }
        } else {
            thrift_skip(thrift, &field);
        }
    return thrift->bad || columns != meta->file.leaves ||
                   meta->file.rows[group] < 0
               ? meta_damaged(meta, "has a damaged row group")
               : ERR_OK;
}

static enum err meta_groups(struct parquet_meta *meta, struct thrift *thrift,
                            size_t groups,
                            const struct columns_leaf *const *chosen,
                            size_t count)
{
    if (meta->file.rows != NULL)
        return meta_damaged(meta, "is damaged");
    TRY(new_zeroed(&meta->file.rows, groups + 1));
    TRY(new_zeroed(&meta->chunk, groups * count + 1));
    for (size_t g = 0; g < groups; g++)
        TRY(meta_group(meta, thrift, chosen, count, g));
    meta->file.groups = groups;
    return ERR_OK;
}

/* chosen NULL: the columns, else where they lie. */
static enum err meta_read(struct parquet_meta *meta,
                          const struct columns_leaf *const *chosen,
                          size_t count)
{
    struct thrift thrift = { meta->footer.data,
                             meta->footer.data + meta->footer.bytes, false, 0 };
    struct thrift_field field = { 0, 0 };
    bool schema = chosen == NULL;
    while (thrift_next(&thrift, &field)) {
        if (field.id == 8)
            return meta_encrypted(meta);
        if (field.id == (schema ? 2 : 4)) {
            size_t found = thrift_list(&thrift, &field, THRIFT_STRUCT);
            TRY(schema ? meta_schema(meta, &thrift, found)
                       : meta_groups(meta, &thrift, found, chosen, count));
        } else {
            thrift_skip(&thrift, &field);
        }
    }
    return thrift.bad || meta->file.leaves == 0 ||
                   (!schema && meta->file.rows == NULL)
               ? meta_damaged(meta, "is damaged")
               : ERR_OK;
}

enum err parquet_meta_open(const char *path, struct parquet_meta *out)
{
    uint8_t tail[8] = { 0 };
    int64_t bytes = 0, footer = 0;
    TRY(columns_leaf_open(&out->file, path, &bytes));
    if (bytes >= 12)
        TRY(fsio_pread(out->file.fd, tail, 8, bytes - 8, path));
    if (memcmp(tail + 4, "PARE", 4) == 0)
        return meta_encrypted(out);
    if (memcmp(tail + 4, "PAR1", 4) != 0)
        return err_set(ERR_DATA,
                       "%s does not end as Parquet does: it is cut short, or "
                       "something else; copy or make it again, or give it "
                       "another name than .parquet",
                       path);
    for (int i = 3; i >= 0; i--)
        footer = footer << 8 | tail[i];
    out->bytes = bytes - 8 - footer;
    if (footer == 0 || footer > META_FOOTER_MAX || out->bytes < 4)
        return meta_damaged(out, "has no length that could be");
    TRY(buffer_reserve(&out->footer, (size_t)footer));
    TRY(fsio_pread(out->file.fd, out->footer.data, (size_t)footer, out->bytes,
                   path));
    out->footer.bytes = (size_t)footer;
    return meta_read(out, NULL, 0);
}

enum err parquet_meta_choose(struct parquet_meta *meta,
                             const struct columns_leaf *const *chosen,
                             size_t count)
{
    static const struct columns_leaf *const none[1];
    assert(meta->file.rows == NULL);
    enum err rc = meta_read(meta, count > 0 ? chosen : none, count);
    buffer_free(&meta->footer);
    return rc;
}
