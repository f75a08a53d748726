/* Writes GGUF files: a head in memory, then data behind it.
 *
 * A head lists tensors with their offsets before any data, so all names and
 * shapes come first, in two buffers that are already as the file has them. The
 * first data end that: what a key or tensor after it would need is written
 * already. Data come in any pieces; the writer knows where a tensor ends and
 * fills up to the next multiple of the alignment there. */
#include "src/formats/gguf/gguf_writer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/new.h"
#include "src/base/output.h"

struct gguf_writer {
    struct output out;
    struct buffer keys, tensors; /* as they are in the file */
    uint64_t key_count, tensor_count, items_left;
    uint64_t *bytes; /* of each tensor */
    size_t capacity;
    uint64_t data_bytes; /* of tensors so far, with what fills up */
    bool begun;
    uint64_t at;          /* in the file */
    size_t tensor;        /* that data is for */
    uint64_t tensor_done; /* bytes of it */
};

static uint64_t writer_up(uint64_t bytes)
{
    return (bytes + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

enum err gguf_writer_create(const char *path, struct gguf_writer **out)
{
    struct gguf_writer *writer = NULL;
    TRY(new_zeroed(&writer, 1));
    enum err rc = output_begin(path, NULL, 0, &writer->out);
    return new_or_none(rc, writer, out, gguf_writer_destroy);
}

void gguf_writer_destroy(struct gguf_writer *writer)
{
    if (writer == NULL)
        return;
    output_drop(&writer->out);
    buffer_free(&writer->keys);
    buffer_free(&writer->tensors);
    free(writer->bytes);
    free(writer);
}

static enum err writer_u32(struct buffer *buffer, uint32_t value)
{
    return buffer_add(buffer, &value, sizeof value);
}

static enum err writer_u64(struct buffer *buffer, uint64_t value)
{
    return buffer_add(buffer, &value, sizeof value);
}

static enum err writer_text(struct buffer *buffer, const char *text,
                            size_t bytes)
{
    TRY(writer_u64(buffer, bytes));
    return buffer_add(buffer, text, bytes);
}

static enum err writer_key(struct gguf_writer *writer, const char *key,
                           enum gguf_kind kind)
{
    assert(!writer->begun && writer->items_left == 0);
    writer->key_count++;
    TRY(writer_text(&writer->keys, key, strlen(key)));
    return writer_u32(&writer->keys, kind);
}

enum err gguf_writer_number(struct gguf_writer *writer, const char *key,
                            enum gguf_kind kind, const void *value)
{
    assert(gguf_kind_bytes(kind) > 0);
    TRY(writer_key(writer, key, kind));
    return buffer_add(&writer->keys, value, gguf_kind_bytes(kind));
}

enum err gguf_writer_string(struct gguf_writer *writer, const char *key,
                            const char *text, size_t bytes)
{
    TRY(writer_key(writer, key, GGUF_STRING));
    return writer_text(&writer->keys, text, bytes);
}

enum err gguf_writer_text(struct gguf_writer *writer, const char *key,
                          const char *text)
{
    return gguf_writer_string(writer, key, text, strlen(text));
}

static enum err writer_array(struct gguf_writer *writer, const char *key,
                             enum gguf_kind item, uint64_t count)
{
    TRY(writer_key(writer, key, GGUF_ARRAY));
    TRY(writer_u32(&writer->keys, item));
    return writer_u64(&writer->keys, count);
}

enum err gguf_writer_numbers(struct gguf_writer *writer, const char *key,
                             enum gguf_kind item, const void *items,
                             uint64_t count)
{
    assert(gguf_kind_bytes(item) > 0);
    TRY(writer_array(writer, key, item, count));
    return buffer_add(&writer->keys, items, count * gguf_kind_bytes(item));
}

enum err gguf_writer_strings(struct gguf_writer *writer, const char *key,
                             uint64_t count)
{
    TRY(writer_array(writer, key, GGUF_STRING, count));
    writer->items_left = count;
    return ERR_OK;
}

enum err gguf_writer_item(struct gguf_writer *writer, const char *text,
                          size_t bytes)
{
    assert(writer->items_left > 0);
    writer->items_left--;
    return writer_text(&writer->keys, text, bytes);
}

enum err gguf_writer_tensor(struct gguf_writer *writer, const char *name,
                            enum gguf_blocks_type type, const uint64_t *dim,
                            unsigned dims)
{
    const struct gguf_blocks_layout *layout = gguf_blocks_layout(type);
    uint64_t numbers = 1;
    assert(!writer->begun && writer->items_left == 0 && layout != NULL);
    assert(dims >= 1 && dims <= GGUF_DIMS_MAX);
    for (unsigned d = 0; d < dims; d++) {
        assert(dim[d] > 0 && numbers <= (uint64_t)INT64_MAX / 8 / dim[d]);
        numbers *= dim[d];
    }
    if (dim[0] % layout->numbers != 0)
        return err_set(ERR_USAGE,
                       "%s: tensor '%s': rows of %" PRIu64
                       " numbers are no blocks of %u, as %s has them",
                       writer->out.path, name, dim[0], layout->numbers,
                       gguf_blocks_name(type));
    TRY(array_room(&writer->bytes, &writer->capacity,
                   writer->tensor_count + 1));
    TRY(writer_text(&writer->tensors, name, strlen(name)));
    TRY(writer_u32(&writer->tensors, dims));
    TRY(buffer_add(&writer->tensors, dim, dims * sizeof *dim));
    TRY(writer_u32(&writer->tensors, type));
    TRY(writer_u64(&writer->tensors, writer->data_bytes));
    uint64_t bytes = numbers / layout->numbers * layout->bytes;
    writer->bytes[writer->tensor_count++] = bytes;
    /* where the next one begins, which is what its entry says */
    writer->data_bytes += writer_up(bytes);
    return ERR_OK;
}

static enum err writer_put(struct gguf_writer *writer, const void *data,
                           size_t bytes)
{
    TRY(fsio_pwrite(fileno(writer->out.file), data, bytes, (int64_t)writer->at,
                    writer->out.temporary));
    writer->at += bytes;
    return ERR_OK;
}

/* Zeros up to where the next thing begins. */
static enum err writer_fill(struct gguf_writer *writer)
{
    static const uint8_t zeros[GGUF_ALIGNMENT];
    return writer_put(writer, zeros, writer_up(writer->at) - writer->at);
}

static enum err writer_begin(struct gguf_writer *writer)
{
    enum err rc = ERR_OK;
    struct buffer head = { 0 };
    assert(writer->items_left == 0);
    TRY_OUT(buffer_add(&head, GGUF_MAGIC, 4));
    TRY_OUT(writer_u32(&head, GGUF_VERSION));
    TRY_OUT(writer_u64(&head, writer->tensor_count));
    TRY_OUT(writer_u64(&head, writer->key_count));
    TRY_OUT(writer_put(writer, head.data, head.bytes));
    TRY_OUT(writer_put(writer, writer->keys.data, writer->keys.bytes));
    TRY_OUT(writer_put(writer, writer->tensors.data, writer->tensors.bytes));
    TRY_OUT(writer_fill(writer));
    writer->begun = true;
out:
    buffer_free(&head);
    return rc;
}

enum err gguf_writer_data(struct gguf_writer *writer, const void *data,
                          size_t bytes)
{
    const uint8_t *from = data;
    if (!writer->begun)
        TRY(writer_begin(writer));
    while (bytes > 0) {
        assert(writer->tensor < writer->tensor_count);
        uint64_t left = writer->bytes[writer->tensor] - writer->tensor_done;
        size_t part = bytes < left ? bytes : (size_t)left;
        TRY(writer_put(writer, from, part));
        from += part;
        bytes -= part;
        writer->tensor_done += part;
        if (part < left)
            break;
        TRY(writer_fill(writer));
        writer->tensor++;
        writer->tensor_done = 0;
    }
    return ERR_OK;
}

enum err gguf_writer_finish(struct gguf_writer *writer)
{
    if (!writer->begun)
        TRY(writer_begin(writer));
    assert(writer->tensor == writer->tensor_count);
    return output_end(&writer->out, true);
}
