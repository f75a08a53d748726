/* The losses of leaves: tensors that the model writes in the order of the
 * stream, brought to the host once, after all of them. Where the host reaches
 * tensors both are the same. */
#pragma once

#include <stdint.h>

#include "kernels/kernel_memory.h"
#include "src/base/arena.h"
#include "src/base/err.h"
#include "src/model/model.h"

struct trainer_losses {
    const struct kernel_memory *memory;
    int64_t count;
    struct arena tensors, pinned;
};

/* For `count` leaves, of which a call of the model has `own` neighbouring ones.
 * `out` is zeroed before. */
enum err trainer_losses_create(const struct kernel_memory *memory,
                               int64_t count, int own,
                               struct trainer_losses *out);
void trainer_losses_destroy(struct trainer_losses *losses);

/* Where the model writes from leaf number `first` on; first < 0: leaves that
 * nobody counts. */
struct leaf_loss *trainer_losses_at(const struct trainer_losses *losses,
                                    int64_t first);

/* Enqueue the way to the host. */
enum err trainer_losses_fetch(const struct trainer_losses *losses,
                              void *stream);
/* [count], when the stream has come there. Lent. */
const struct leaf_loss *
trainer_losses_host(const struct trainer_losses *losses);
