/* Where each tensor goes is decided first, so that a file begins with its
 * header and is written in one pass.
 *
 * The header has all offsets, and so the list of tensors has to be known; their
 * data come later, in order, in any pieces. Files are filled as Hugging Face's
 * libraries fill them: a tensor that would make one too large begins the next.
 * Each is written under a temporary name and has its own once it is on the
 * disk, and the index comes last, so a folder with an index is whole. */
#include "src/formats/safetensors/safetensors_writer.h"

#include <assert.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/formats/safetensors/half.h"

#define CHUNK 65536 /* elements that are converted at a time */

#define SPAN_BYTES ((int64_t)8 << 20)

struct safetensors_writer {
    char folder[FSIO_PATH_MAX];
    struct safetensors_tensor *list; /* the names are its own */
    int count;
    int files;
    int at;         /* tensor */
    int64_t done;   /* bytes of it */
    int64_t offset; /* in the file */
    int fd;
    char path[FSIO_PATH_MAX]; /* of the file that is open */
    char temporary[FSIO_PATH_MAX];
    uint16_t halves[CHUNK];
};

/* --- the plan --- */

static enum err measure(struct safetensors_tensor *tensor)
{
    assert(tensor->dims >= 0 && tensor->dims <= SAFETENSORS_DIMS_MAX);
    tensor->numel = 1;
    bool large = false;
    for (int i = 0; i < tensor->dims; i++)
        large |= __builtin_mul_overflow(tensor->numel, tensor->shape[i],
                                        &tensor->numel);
    large |= __builtin_mul_overflow(
        tensor->numel, safetensors_dtype_bytes(tensor->dtype), &tensor->bytes);
    if (large)
        return err_set(ERR_USAGE, "tensor '%.200s' has more bytes than can be",
                       tensor->name);
    return ERR_OK;
}

/* Files from 0 on; a file that has something and no room for the next tensor is
 * closed. */
static enum err plan(struct safetensors_writer *writer, int64_t bytes_max)
{
    int64_t used = 0;
    int file = 0;
    for (int i = 0; i < writer->count; i++) {
        struct safetensors_tensor *tensor = &writer->list[i];
        TRY(measure(tensor));
        if (used > 0 && tensor->bytes > bytes_max - used) {
            file++;
            used = 0;
        }
        tensor->file = file;
        tensor->offset = used; /* in the data, until the header is made */
        used += tensor->bytes;
    }
    writer->files = file + 1;
    if (writer->files > SAFETENSORS_SHARDS_MAX)
        return err_set(ERR_USAGE,
                       "files of at most %lld bytes: %d of them would be "
                       "needed, at most %d are allowed",
                       (long long)bytes_max, writer->files,
                       SAFETENSORS_SHARDS_MAX);
    return ERR_OK;
}

static void file_name(const struct safetensors_writer *writer, int file,
                      char out[64])
{
    if (writer->files == 1)
        snprintf(out, 64, "%s", SAFETENSORS_FILE);
    else
        snprintf(out, 64, "model-%05d-of-%05d.safetensors", file + 1,
                 writer->files);
}

static enum err check_free(const struct safetensors_writer *writer,
                           const char *name)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/%s", writer->folder, name));
    if (fsio_exists(path))
        return err_set(ERR_SPACE, "%s is there already: choose another folder",
                       path);
    return ERR_OK;
}

static enum err check_folder(const struct safetensors_writer *writer)
{
    char name[64];
    TRY(check_free(writer, SAFETENSORS_FILE));
    TRY(check_free(writer, SAFETENSORS_INDEX));
    for (int i = 0; i < writer->files; i++) {
        file_name(writer, i, name);
        TRY(check_free(writer, name));
    }
    return ERR_OK;
}

/* --- a file --- */

static json_t *entry_json(const struct safetensors_tensor *tensor)
{
    json_t *shape = json_array();
    for (int i = 0; i < tensor->dims; i++)
        jsontext_append(&shape, json_integer(tensor->shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype",
                     safetensors_dtype_name(tensor->dtype), "shape", shape,
                     "data_offsets", (json_int_t)tensor->offset,
                     (json_int_t)(tensor->offset + tensor->bytes));
}

/* The length and the header, with blanks up to a multiple of 8 bytes, of the
 * file that begins with tensor `first`. */
static enum err add_header(const struct safetensors_writer *writer, int first,
                           struct buffer *out)
{
    enum err rc = ERR_OK;
    uint8_t length[8];
    int file = writer->list[first].file;
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    for (int i = first; i < writer->count && writer->list[i].file == file; i++)
        jsontext_set(&root, writer->list[i].name, entry_json(&writer->list[i]));
    char *text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
    if (text == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "safetensors header: out of memory"));
    size_t bytes = (strlen(text) + 7) / 8 * 8;
    if (bytes > SAFETENSORS_HEADER_MAX)
        TRY_OUT(err_set(ERR_UNSUPPORTED, "a safetensors header of %zu bytes",
                        bytes));
    /* little-endian, whatever this machine is */
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bytes >> (8 * i));
    TRY_OUT(buffer_add(out, length, sizeof length));
    TRY_OUT(buffer_add(out, text, strlen(text)));
    while (out->bytes % 8 != 0)
        TRY_OUT(buffer_add(out, " ", 1));
out:
    free(text);
    json_decref(root);
    return rc;
}

static enum err open_file(struct safetensors_writer *writer)
{
    enum err rc = ERR_OK;
    char name[64];
    struct buffer header = { 0 };
    file_name(writer, writer->list[writer->at].file, name);
    TRY(fsio_path(writer->path, "%s/%s", writer->folder, name));
    TRY(fsio_path(writer->temporary, "%s.tmp.%d", writer->path, (int)getpid()));
    TRY_OUT(add_header(writer, writer->at, &header));
    writer->fd =
        open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (writer->fd < 0)
        TRY_OUT(err_errno("%s: create", writer->temporary));
    TRY_OUT(
        fsio_pwrite(writer->fd, header.data, header.bytes, 0, writer->path));
    writer->offset = (int64_t)header.bytes;
out:
    buffer_free(&header);
    return rc;
}

static enum err close_file(struct safetensors_writer *writer)
{
    if (fsync(writer->fd) != 0)
        return err_errno("%s: fsync", writer->path);
    int fd = writer->fd;
    writer->fd = -1;
    if (close(fd) != 0 || rename(writer->temporary, writer->path) != 0) {
        enum err rc = err_errno("%s: close and rename", writer->path);
        unlink(writer->temporary);
        return rc;
    }
    return fsio_fsync_dir(writer->folder);
}

/* Past tensors of which nothing is left; files are opened and closed on the
 * way. */
static enum err advance(struct safetensors_writer *writer)
{
    while (writer->at < writer->count &&
           writer->done == writer->list[writer->at].bytes) {
        int file = writer->list[writer->at].file;
        writer->at++;
        writer->done = 0;
        /* one without elements is over as soon as it begins */
        bool last = writer->at == writer->count;
        if (!last && writer->list[writer->at].file == file)
            continue;
        TRY(close_file(writer));
        if (!last)
            TRY(open_file(writer));
    }
    return ERR_OK;
}

/* --- the writer --- */

static enum err create(struct safetensors_writer *writer, const char *folder,
                       const struct safetensors_tensor *list, int count,
                       int64_t bytes_max)
{
    TRY(fsio_path(writer->folder, "%s", folder));
    TRY(new_zeroed(&writer->list, (size_t)count));
    for (int i = 0; i < count; i++) {
        char *name = NULL;
        TRY(new_text(&name, list[i].name));
        writer->list[i] = list[i];
        writer->list[i].name = name;
        writer->count = i + 1;
    }
    TRY(plan(writer, bytes_max));
    TRY(check_folder(writer));
    TRY(open_file(writer));
    return advance(writer);
}

enum err safetensors_writer_create(const char *folder,
                                   const struct safetensors_tensor *list,
                                   int count, int64_t shard_bytes_max,
                                   struct safetensors_writer **out)
{
    assert(count > 0 && count <= SAFETENSORS_TENSORS_MAX);
    struct safetensors_writer *writer = NULL;
    TRY(new_zeroed(&writer, 1));
    writer->fd = -1;
    enum err rc = create(writer, folder, list, count, shard_bytes_max);
    return new_or_none(rc, writer, out, safetensors_writer_destroy);
}

/* Whole spans go to the disk while the next are made, so that the sync at the
 * end of a file has little left to wait for. A hint: who cannot, syncs later.
 */
static void begin_writing(const struct safetensors_writer *writer,
                          int64_t bytes)
{
    int64_t first = writer->offset / SPAN_BYTES;
    int64_t last = (writer->offset + bytes) / SPAN_BYTES;
    if (last > first)
        (void)sync_file_range(writer->fd, first * SPAN_BYTES,
                              (last - first) * SPAN_BYTES,
                              SYNC_FILE_RANGE_WRITE);
}

enum err safetensors_writer_append(struct safetensors_writer *writer,
                                   const void *data, int64_t bytes)
{
    if (bytes == 0)
        return ERR_OK;
    assert(writer->at < writer->count && bytes > 0);
    assert(bytes <= writer->list[writer->at].bytes - writer->done);
    TRY(fsio_pwrite(writer->fd, data, (size_t)bytes, writer->offset,
                    writer->path));
    begin_writing(writer, bytes);
    writer->offset += bytes;
    writer->done += bytes;
    return advance(writer);
}

static enum err to_f16(struct safetensors_writer *writer, const float *data,
                       int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        writer->halves[i] = half_to_f16(data[i]);
        if ((writer->halves[i] & 0x7fff) == 0x7c00 && isfinite(data[i]))
            return err_set(ERR_NUMERIC,
                           "tensor '%.200s': %g does not fit in fp16, which "
                           "ends at 65504: write bf16 or fp32",
                           writer->list[writer->at].name, (double)data[i]);
    }
    return ERR_OK;
}

enum err safetensors_writer_append_f32(struct safetensors_writer *writer,
                                       const float *data, int64_t count)
{
    if (count == 0)
        return ERR_OK;
    assert(writer->at < writer->count);
    enum safetensors_dtype dtype = writer->list[writer->at].dtype;
    if (dtype == SAFETENSORS_F32)
        return safetensors_writer_append(writer, data, 4 * count);
    assert(dtype == SAFETENSORS_F16 || dtype == SAFETENSORS_BF16);
    while (count > 0) {
        int64_t n = count < CHUNK ? count : CHUNK;
        if (dtype == SAFETENSORS_F16)
            TRY(to_f16(writer, data, n));
        else
            for (int64_t i = 0; i < n; i++)
                writer->halves[i] = half_to_bf16(data[i]);
        TRY(safetensors_writer_append(writer, writer->halves, 2 * n));
        data += n;
        count -= n;
    }
    return ERR_OK;
}

static enum err index_text(const struct safetensors_writer *writer, char **text)
{
    char name[64];
    int64_t total = 0;
    json_t *map = json_object();
    bool whole = map != NULL;
    for (int i = 0; i < writer->count && whole; i++) {
        file_name(writer, writer->list[i].file, name);
        total += writer->list[i].bytes;
        whole = json_object_set_new(map, writer->list[i].name,
                                    json_string(name)) == 0;
    }
    json_t *root = json_pack("{s:{s:I},s:o}", "metadata", "total_size",
                             (json_int_t)total, "weight_map", map);
    enum err rc =
        whole ? jsontext_make(root, 2, text)
              : err_set(ERR_MEMORY, "%s: out of memory", SAFETENSORS_INDEX);
    json_decref(root);
    return rc;
}

enum err safetensors_writer_finish(struct safetensors_writer *writer)
{
    char *text = NULL;
    char path[FSIO_PATH_MAX];
    assert(writer->at == writer->count);
    /* a single file needs no index */
    if (writer->files == 1)
        return ERR_OK;
    TRY(fsio_path(path, "%s/%s", writer->folder, SAFETENSORS_INDEX));
    TRY(index_text(writer, &text));
    enum err rc = fsio_write_atomic(path, text, strlen(text));
    free(text);
    return rc;
}

void safetensors_writer_destroy(struct safetensors_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->fd >= 0) {
        close(writer->fd);
        unlink(writer->temporary);
    }
    for (int i = 0; i < writer->count; i++)
        free((char *)writer->list[i].name);
    free(writer->list);
    free(writer);
}
