/* GGUF files of any bytes: each is refused, or all that it has can be read, and
 * a tokenizer made of it or refused. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/formats/gguf/gguf_tokenizer.h"

#define BLOCKS_MAX 64 /* of each tensor that are read */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static uint64_t look(struct gguf_value value)
{
    struct gguf_value item;
    uint64_t sum = 0;
    if (value.kind == GGUF_ARRAY) {
        while (gguf_value_next(&value, &item))
            sum += look(item);
        return sum;
    }
    uint64_t bytes =
        value.kind == GGUF_STRING ? value.count : gguf_kind_bytes(value.kind);
    for (uint64_t i = 0; i < bytes; i++)
        sum += value.data[i];
    return sum;
}

static void read_tensor(const struct gguf *gguf,
                        const struct gguf_tensor *tensor)
{
    uint8_t scratch[4 * GGUF_BLOCKS_NUMBERS_MAX];
    float numbers[GGUF_BLOCKS_NUMBERS_MAX];
    assert(gguf_find_tensor(gguf, tensor->name) == tensor);
    for (uint64_t b = 0; b < tensor->blocks && b < BLOCKS_MAX; b++)
        assert(gguf_read_floats(gguf, tensor, b, 1, scratch, numbers) ==
               ERR_OK);
    assert(gguf_read_floats(gguf, tensor, tensor->blocks - 1, 1, scratch,
                            numbers) == ERR_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static int fd = -1;
    static volatile uint64_t sum;
    char path[FSIO_PATH_MAX];
    struct gguf *gguf = NULL;
    struct gguf_tokenizer tokenizer;
    if (fd < 0)
        fd = memfd_create("gguf", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd < 0 || ftruncate(fd, 0) != 0 ||
        fsio_pwrite(fd, data, bytes, 0, path) != ERR_OK)
        abort();
    if (gguf_open(path, &gguf) != ERR_OK)
        return 0;
    for (size_t k = 0; k < gguf->keys; k++) {
        assert(gguf_find(gguf, gguf->key[k].name) == &gguf->key[k].value);
        sum += look(gguf->key[k].value);
    }
    for (size_t t = 0; t < gguf->tensors; t++)
        read_tensor(gguf, &gguf->tensor[t]);
    if (gguf_tokenizer_make(gguf, &tokenizer) == ERR_OK)
        gguf_tokenizer_free(&tokenizer);
    gguf_close(gguf);
    return 0;
}
