/* Memory for the losses of a rank's leaves, and their one copy to the host
 * after all of them: a copy for each leaf would have the host wait for the device
 * as often. Behind the leaves that count are places that nobody reads, for leaves
 * that are computed only because other ranks need this one in them. */
#include "src/train/run/trainer_losses.h"

#include <assert.h>

enum err trainer_losses_create(const struct kernel_memory *memory,
                               int64_t count, int own,
                               struct trainer_losses *out)
{
    enum err rc = ERR_OK;
    size_t bytes = (size_t)(count + own) * sizeof(struct leaf_loss);
    *out = (struct trainer_losses){ .memory = memory, .count = count };
    TRY_OUT(memory->tensors_create(bytes, &out->tensors));
    if (memory->device)
        TRY_OUT(memory->host_create(bytes, &out->pinned));
out:
    if (rc != ERR_OK)
        trainer_losses_destroy(out);
    return rc;
}

void trainer_losses_destroy(struct trainer_losses *losses)
{
    if (losses->memory == NULL)
        return;
    if (losses->memory->device)
        losses->memory->host_destroy(&losses->pinned);
    losses->memory->tensors_destroy(&losses->tensors);
    *losses = (struct trainer_losses){ 0 };
}

struct leaf_loss *trainer_losses_at(const struct trainer_losses *losses,
                                    int64_t first)
{
    assert(first < losses->count && losses->memory != NULL);
    struct leaf_loss *all = (void *)losses->tensors.base;
    return all + (first < 0 ? losses->count : first);
}

enum err trainer_losses_fetch(const struct trainer_losses *losses, void *stream)
{
    const struct kernel_memory *memory = losses->memory;
    if (!memory->device)
        return ERR_OK;
    return memory->download(stream,
                            (size_t)losses->count * sizeof(struct leaf_loss),
                            losses->tensors.base, losses->pinned.base);
}

const struct leaf_loss *trainer_losses_host(const struct trainer_losses *losses)
{
    return (const void *)(losses->memory->device ? losses->pinned.base
                                                 : losses->tensors.base);
}
