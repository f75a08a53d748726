/* GGUF files for a Python peer: "gguf floats FILE" writes the numbers of all
 * tensors as floats to standard output, "gguf copy FILE OUT TYPE" writes the same
 * keys and tensors, with tensors of two dimensions and more as TYPE and the
 * others as F32, "gguf tokenizer FILE FOLDER" the files of its tokenizer. */
#include <string.h>

#include "src/base/fsio.h"
#include "src/formats/gguf/gguf_tokenizer.h"
#include "src/formats/gguf/gguf_writer.h"
#include "tests/interop/need.h"

#define PIECE 4096 /* blocks that are read at once */

static uint8_t scratch[PIECE * 4 * GGUF_BLOCKS_NUMBERS_MAX];
static float numbers[PIECE * GGUF_BLOCKS_NUMBERS_MAX];
static uint8_t written[PIECE * 4 * GGUF_BLOCKS_NUMBERS_MAX];

/* The type of a copy; the numbers of a tensor as blocks of it, or as floats. */
static enum gguf_blocks_type of_copy(const struct gguf_tensor *tensor,
                                     enum gguf_blocks_type type)
{
    return tensor->dims > 1 ? type : GGUF_BLOCKS_F32;
}

static void put_tensor(const struct gguf *gguf,
                       const struct gguf_tensor *tensor,
                       struct gguf_writer *writer, enum gguf_blocks_type type)
{
    size_t of = gguf_blocks_layout(tensor->type)->numbers;
    /* pieces are whole blocks of both types */
    for (uint64_t first = 0; first < tensor->blocks; first += PIECE) {
        uint64_t left = tensor->blocks - first;
        size_t count = left < PIECE ? (size_t)left : PIECE;
        need(gguf_read_floats(gguf, tensor, first, count, scratch, numbers));
        if (writer == NULL) {
            fwrite(numbers, sizeof *numbers, count * of, stdout);
            continue;
        }
        const struct gguf_blocks_layout *layout = gguf_blocks_layout(type);
        size_t blocks = count * of / layout->numbers;
        if (gguf_blocks_write(type, numbers, blocks, written) > 0)
            fprintf(stderr, "gguf: %s: numbers were lost\n", tensor->name);
        need(gguf_writer_data(writer, written, blocks * layout->bytes));
    }
}

static void put_key(struct gguf_writer *writer, const char *key,
                    struct gguf_value value)
{
    struct gguf_value item;
    if (value.kind == GGUF_STRING) {
        need(gguf_writer_string(writer, key, (const char *)value.data,
                                (size_t)value.count));
    } else if (value.kind != GGUF_ARRAY) {
        need(gguf_writer_number(writer, key, value.kind, value.data));
    } else if (value.item == GGUF_STRING) {
        need(gguf_writer_strings(writer, key, value.count));
        while (gguf_value_next(&value, &item))
            need(gguf_writer_item(writer, (const char *)item.data,
                                  (size_t)item.count));
    } else {
        need(gguf_writer_numbers(writer, key, value.item, value.data,
                                 value.count));
    }
}

static void copy(const struct gguf *gguf, const char *path, const char *name)
{
    struct gguf_writer *writer = NULL;
    uint32_t type = 0;
    while (strcmp(gguf_blocks_name(type), name) != 0)
        type++;
    need(fsio_remove_tree(path)); /* of the type before */
    need(gguf_writer_create(path, &writer));
    for (size_t k = 0; k < gguf->keys; k++)
        if (strcmp(gguf->key[k].name, GGUF_ALIGNMENT_KEY) != 0)
            put_key(writer, gguf->key[k].name, gguf->key[k].value);
    for (size_t t = 0; t < gguf->tensors; t++) {
        const struct gguf_tensor *tensor = &gguf->tensor[t];
        need(gguf_writer_tensor(writer, tensor->name, of_copy(tensor, type),
                                tensor->dim, tensor->dims));
    }
    for (size_t t = 0; t < gguf->tensors; t++)
        put_tensor(gguf, &gguf->tensor[t], writer,
                   of_copy(&gguf->tensor[t], type));
    need(gguf_writer_finish(writer));
    gguf_writer_destroy(writer);
}

static void put_file(const char *folder, const char *name, const char *text)
{
    char path[FSIO_PATH_MAX];
    if (text == NULL)
        return;
    need(fsio_path(path, "%s/%s", folder, name));
    need(fsio_write_atomic(path, text, strlen(text)));
}

int main(int argc, char **argv)
{
    struct gguf *gguf = NULL;
    struct gguf_tokenizer tokenizer;
    if (argc < 3)
        return 64;
    need(gguf_open(argv[2], &gguf));
    if (strcmp(argv[1], "floats") == 0) {
        for (size_t t = 0; t < gguf->tensors; t++)
            put_tensor(gguf, &gguf->tensor[t], NULL, GGUF_BLOCKS_F32);
    } else if (strcmp(argv[1], "copy") == 0 && argc == 5) {
        copy(gguf, argv[3], argv[4]);
    } else if (argc == 4) {
        need(gguf_tokenizer_make(gguf, &tokenizer));
        need(fsio_mkdirs(argv[3]));
        put_file(argv[3], "tokenizer.json", tokenizer.tokenizer);
        put_file(argv[3], "tokenizer_config.json", tokenizer.config);
        put_file(argv[3], "chat_template.jinja", tokenizer.chat);
        gguf_tokenizer_free(&tokenizer);
    }
    gguf_close(gguf);
    return 0;
}
