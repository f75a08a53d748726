/* Puts the tokenizer's file beside the tensors that a checkpoint saves. How they
 * are written is checkpoint/'s business, when is on_checkpoint.c's. */
#include "src/train/state/on_checkpoint_parts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/new.h"
#include "src/base/regular.h"
#include "src/data/set/dataset.h"

/* A tokenizer is text of a few MiB; those of a million tokens have 60. */
#define TOKENIZER_BYTES_MAX ((size_t)1 << 28)

struct on_checkpoint_items {
    struct run *run;
    struct arena tokenizer; /* where the backend's tensors are */
    struct ckpt_item *list;
    int count;
};

/* Rank 0: the file, whose digest must still be that with which the data set was
 * opened. */
static enum err read_tokenizer(const struct run *run, char **text,
                               size_t *bytes)
{
    char sha256[65];
    const struct dataset *data = run->inputs.train_data[0];
    const char *path = dataset_tokenizer_file(data);
    if (run->rank != 0 || path[0] == '\0')
        return ERR_OK;
    TRY(regular_read(path, TOKENIZER_BYTES_MAX, text, bytes));
    TRY(digest_bytes(*text, *bytes, sha256));
    if (strcmp(sha256, dataset_sidecar(data)->tokenizer_sha256) != 0)
        return err_set(ERR_DATA, "%s was replaced while the run started", path);
    return ERR_OK;
}

static enum err put_tokenizer(struct on_checkpoint_items *items,
                              const char *text, size_t bytes)
{
    struct run *run = items->run;
    const struct kernel_memory *memory = run->engine.kernels->memory;
    struct ckpt_item *item = &items->list[items->count++];
    assert(bytes > 0); /* without a file there is no item */
    *item = (struct ckpt_item){ .name = ON_CHECKPOINT_TOKENIZER,
                                .dtype = DTYPE_U8,
                                .dims = 1,
                                .shape = { (int64_t)bytes } };
    if (run->rank != 0)
        return ERR_OK;
    TRY(memory->tensors_create(bytes, &items->tokenizer));
    TRY(memory->upload(run->engine.stream, bytes, text, items->tokenizer.base));
    TRY(memory->wait(run->engine.stream));
    item->part.end = (int64_t)bytes;
    item->data = items->tokenizer.base;
    return ERR_OK;
}

enum err on_checkpoint_items_create(struct run *run,
                                    struct on_checkpoint_items **out)
{
    enum err rc = ERR_OK;
    char *text = NULL;
    size_t read = 0;
    int count = 0;
    const struct ckpt_item *tensors =
        replica_items(run->engine.replica, &count);
    struct on_checkpoint_items *items = NULL;
    rc = new_zeroed(&items, 1);
    if (rc == ERR_OK)
        rc = new_zeroed(&items->list, (size_t)count + 1);
    if (rc == ERR_OK)
        rc = read_tokenizer(run, &text, &read);
    TRY_OUT(comm_agree(run->comm, rc));
    uint64_t bytes = read;
    TRY_OUT(comm_broadcast(run->comm, &bytes, sizeof bytes, 0));
    items->run = run;
    items->count = count;
    memcpy(items->list, tensors, (size_t)count * sizeof *tensors);
    if (bytes > 0)
        TRY_OUT(
            comm_agree(run->comm, put_tokenizer(items, text, (size_t)bytes)));
out:
    free(text);
    return new_or_none(rc, items, out, on_checkpoint_items_destroy);
}

void on_checkpoint_items_destroy(struct on_checkpoint_items *items)
{
    if (items == NULL)
        return;
    if (items->tokenizer.base != NULL)
        items->run->engine.kernels->memory->tensors_destroy(&items->tokenizer);
    free(items->list);
    free(items);
}

const struct ckpt_item *
on_checkpoint_items_list(const struct on_checkpoint_items *items, int *count)
{
    *count = items->count;
    return items->list;
}
