/* A GGUF file as a MODEL. Blocks of numbers become floats as they are read, and
 * rows of q and k that lie in pairs' order come in ours.
 *
 * What is asked for are elements, what can be read are blocks of up to 256 of
 * them: whole blocks go straight to where they are wanted, those at either end
 * through a block aside. A file whose tokenizer we do not know is still a
 * model; it is read without one, with a warning. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/formats/gguf/gguf_config.h"
#include "src/formats/gguf/gguf_tokenizer.h"
#include "src/formats/hf/hf_files.h"
#include "src/formats/weights_slices.h"

/* Blocks that are read at a time: of the smallest, numbers one by one, 16 KiB.
 */
#define READ_NUMBERS 8192
#define HEAD_READ_BYTES ((size_t)64 << 10)

struct state {
    struct gguf *gguf;
    struct gguf_tokenizer tokenizer;
    char *generation;
    char sha256[65];
};

static bool is_gguf(const char *path)
{
    char magic[4] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool same = fd >= 0 &&
                fsio_pread(fd, magic, sizeof magic, 0, path) == ERR_OK &&
                memcmp(magic, GGUF_MAGIC, sizeof magic) == 0;
    fsio_close(fd);
    return same;
}

/* --- the tensors, for weights_slices.c --- */

/* Files have the fastest side first, and none of 1 at the end. */
static void at(void *arg, int tensor, struct weights_tensor *out)
{
    const struct state *state = arg;
    const struct gguf_tensor *t = &state->gguf->tensor[tensor];
    *out = (struct weights_tensor){ .dims = 0 };
    snprintf(out->name, sizeof out->name, "%s", t->name);
    if (t->dims < 1 || t->dims > 2)
        return;
    out->dims = (int)t->dims;
    out->shape[0] = (int64_t)t->dim[t->dims - 1];
    out->shape[1] = t->dims == 2 ? (int64_t)t->dim[0] : 0;
}

static int find(void *arg, const char *name)
{
    const struct state *state = arg;
    const struct gguf_tensor *found = gguf_find_tensor(state->gguf, name);
    return found == NULL ? -1 : (int)(found - state->gguf->tensor);
}

/* A table of angles that the configuration has been read from. */
static bool is_buffer(void *arg, const char *name)
{
    (void)arg;
    return strcmp(name, ARCH_GGUF_FREQS) == 0;
}

/* Elements within one block: the ends of what is asked for. */
static enum err read_within(const struct state *state,
                            const struct gguf_tensor *tensor, uint64_t block,
                            uint64_t first, uint64_t count, float *out)
{
    float numbers[GGUF_BLOCKS_NUMBERS_MAX];
    char scratch[4 * GGUF_BLOCKS_NUMBERS_MAX];
    TRY(gguf_read_floats(state->gguf, tensor, block, 1, scratch, numbers));
    memcpy(out, numbers + first, (size_t)count * sizeof *out);
    return ERR_OK;
}

static enum err read_tensor(void *arg, int number, int64_t first, int64_t count,
                            float *out)
{
    const struct state *state = arg;
    const struct gguf_tensor *tensor = &state->gguf->tensor[number];
    const struct gguf_blocks_layout *layout = gguf_blocks_layout(tensor->type);
    char scratch[4 * READ_NUMBERS];
    assert(layout != NULL && layout->bytes <= 4 * layout->numbers);
    uint64_t size = layout->numbers;
    uint64_t begin = (uint64_t)first;
    uint64_t end = begin + (uint64_t)count;
    while (begin < end) {
        uint64_t in = begin % size;
        uint64_t take = (end - begin) / size * size;
        take = take > READ_NUMBERS ? READ_NUMBERS / size * size : take;
        /* an end within a block, or whole blocks */
        if (in > 0 || take == 0) {
            take = size - in < end - begin ? size - in : end - begin;
            TRY(read_within(state, tensor, begin / size, in, take, out));
        } else {
            TRY(gguf_read_floats(state->gguf, tensor, begin / size,
                                 (size_t)(take / size), scratch, out));
        }
        out += take;
        begin += take;
    }
    return ERR_OK;
}

/* --- opening --- */

/* The type that most numbers are of. */
static const char *dtype_of(const struct gguf *gguf)
{
    uint64_t numbers[GGUF_BLOCKS_BF16 + 1] = { 0 };
    enum gguf_blocks_type most = GGUF_BLOCKS_F32;
    for (size_t i = 0; i < gguf->tensors; i++) {
        const struct gguf_tensor *tensor = &gguf->tensor[i];
        numbers[tensor->type] += tensor->numbers;
        if (numbers[tensor->type] > numbers[most])
            most = tensor->type;
    }
    return gguf_blocks_name(most);
}

/* The digest of all before the first tensor's data. */
static enum err make_sha256(struct state *state)
{
    enum err rc = ERR_OK;
    struct digest *digest = NULL;
    char *buffer = NULL;
    uint64_t bytes = UINT64_MAX;
    /* where the first tensor's data begin */
    for (size_t i = 0; i < state->gguf->tensors; i++)
        if (state->gguf->tensor[i].offset < bytes)
            bytes = state->gguf->tensor[i].offset;
    TRY_OUT(new_room(&buffer, HEAD_READ_BYTES));
    TRY_OUT(digest_create(&digest));
    for (uint64_t done = 0; done < bytes;) {
        size_t step = bytes - done < HEAD_READ_BYTES ? (size_t)(bytes - done)
                                                     : HEAD_READ_BYTES;
        TRY_OUT(fsio_pread(state->gguf->fd, buffer, step, (int64_t)done,
                           state->gguf->path));
        TRY_OUT(digest_update(digest, buffer, step));
        done += step;
    }
    TRY_OUT(digest_finish(digest, state->sha256));
out:
    digest_destroy(digest);
    free(buffer);
    return rc;
}

/* Weights without a tokenizer that we know are of use, too. */
static enum err open_tokenizer(const char *path, struct state *state,
                               struct weights_about *about)
{
    about->vocab = about->config.vocab_size;
    enum err rc = gguf_tokenizer_make(state->gguf, &state->tokenizer);
    if (rc == ERR_UNSUPPORTED ||
        (rc == ERR_DATA &&
         gguf_find(state->gguf, "tokenizer.ggml.model") == NULL)) {
        log_warn("%s; its weights are read without a tokenizer", err_text());
        return ERR_OK;
    }
    if (rc != ERR_OK)
        return rc;
    struct gguf_tokenizer *made = &state->tokenizer;
    const struct hf_files files = {
        .text = { made->tokenizer, made->config, made->chat, made->generation },
        .bytes = { strlen(made->tokenizer), strlen(made->config),
                   made->chat == NULL ? 0 : strlen(made->chat),
                   made->generation == NULL ? 0 : strlen(made->generation) },
    };
    return weights_slices_tokens(&files, path, NULL, 0, about,
                                 &state->generation);
}

static enum err open_gguf(const char *path, struct weights_source *source)
{
    struct weights_about *about = &source->about;
    struct state *state = NULL;
    enum arch arch;
    TRY(new_zeroed(&state, 1));
    source->state = state;
    TRY(gguf_open(path, &state->gguf));
    TRY(gguf_config_read(state->gguf, &arch, &about->config));
    const struct weights_slices_file file = {
        .arg = state,
        .count = (int)state->gguf->tensors,
        .at = at,
        .find = find,
        .is_buffer = is_buffer,
        .read = read_tensor,
    };
    TRY(weights_slices_create(&file, arch_rows[arch].gguf, source));
    TRY(open_tokenizer(path, state, about));
    TRY(make_sha256(state));
    about->dtype = dtype_of(state->gguf);
    about->sha256 = state->sha256;
    return ERR_OK;
}

static void close_gguf(struct weights_source *source)
{
    struct state *state = source->state;
    free(source->list);
    if (state == NULL)
        return;
    gguf_tokenizer_free(&state->tokenizer);
    free(state->generation);
    weights_slices_destroy(source->slices);
    gguf_close(state->gguf);
    free(state);
}

const struct weights_ops weights_gguf = {
    .kind = WEIGHTS_GGUF,
    .what = "a GGUF file",
    .is = is_gguf,
    .open = open_gguf,
    .close = close_gguf,
    .read = weights_slices_read,
};
