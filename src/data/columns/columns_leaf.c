/* The leaves of a file's tree of columns, as a format comes to them. */
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/base/regular.h"
#include "src/data/columns/columns_format.h"
#include "src/text/unicode.h"

const char *columns_leaf_name(struct columns_way *way, char *path,
                              const uint8_t *name, size_t bytes)
{
    size_t begin = way->bytes + (way->bytes > 0);
    if (begin + bytes >= COLUMNS_PATH_BYTES)
        return "has a column with a name that is too long";
    if (unicode_valid(name, bytes) != bytes || memchr(name, 0, bytes) != NULL)
        return "has a column with a name that is no text";
    if (way->bytes > 0)
        path[way->bytes] = '.';
    memcpy(path + begin, name, bytes);
    path[begin + bytes] = '\0';
    way->top = way->bytes > 0 ? way->top : begin + bytes;
    way->bytes = begin + bytes;
    way->last = begin;
    way->inside += way->repeated > 0;
    return NULL;
}

void columns_leaf_level(struct columns_way *way, bool repeated)
{
    way->defined++;
    if (repeated && way->repeated++ == 0)
        way->list = way->defined;
}

enum err columns_leaf_add(struct columns_file *file, const char *path,
                          const struct columns_way *way, const char *wrong)
{
    if (file->leaves == COLUMNS_MAX)
        return err_set(ERR_DATA, "has more columns than are read here");
    TRY(array_room(&file->leaf, &file->leaves_capacity, file->leaves + 1));
    struct columns_leaf leaf = { .top = way->top,
                                 .last = way->last,
                                 .number = file->leaves,
                                 .wrong = wrong,
                                 .defined = way->defined,
                                 .repeated = way->repeated,
                                 .list = way->list,
                                 .inside = way->inside };
    TRY(new_text(&leaf.path, path));
    file->leaf[file->leaves++] = leaf;
    return ERR_OK;
}

enum err columns_leaf_open(struct columns_file *file, const char *path,
                           int64_t *bytes)
{
    file->fd = -1;
    TRY(new_text(&file->path, path));
    return regular_open(path, &file->fd, bytes);
}

void columns_leaf_close(struct columns_file *file)
{
    fsio_close(file->fd);
    for (size_t l = 0; l < file->leaves; l++)
        free(file->leaf[l].path);
    free(file->leaf);
    free(file->rows);
    free(file->path);
    free(file);
}
