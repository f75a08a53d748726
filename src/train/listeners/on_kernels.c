/* Listener: warns at the start of a run whose kernel set was named and is not the
 * best that rank 0's processor runs. Whether that one suits the processor is
 * measured by tessera-health. */
#include <string.h>

#include "src/base/log.h"
#include "src/train/run/run.h"

struct on_kernels {
    const struct run *run;
};

static enum err kernels_create(void *self, const struct run *run)
{
    struct on_kernels *on = self;
    on->run = run;
    return ERR_OK;
}

static enum err kernels_handle(void *self, enum event event,
                               const struct step_record *step,
                               struct asks *asks)
{
    const struct on_kernels *on = self;
    const struct kernels *used = on->run->engine.kernels, *best;
    (void)event;
    (void)step;
    (void)asks;
    /* where the run goes back it was told already */
    if (strcmp(used->backend, "cpu") != 0 || on->run->position.came_back.asked)
        return ERR_OK;
    TRY(kernels_find("cpu", "auto", &best));
    if (strcmp(used->kernel_set, best->kernel_set) != 0)
        log_warn("hardware.kernel_set is %s, and this processor runs %s, which "
                 "is faster: set it to auto",
                 used->kernel_set, best->kernel_set);
    return ERR_OK;
}

const struct listener_ops on_kernels_ops = { LISTENER_OF(struct on_kernels),
                                             .create = kernels_create,
                                             .handle = kernels_handle };
