/* A whole save in one call, as training makes it behind its steps. */
#pragma once

#include "checkpoint/ckpt.h"

/* From the items in place or, with options.memory, from a copy. A failure is
 * returned on all ranks; *progress, how it ended, may be NULL. Collective. */
static inline enum err ckpt_save(struct comm *comm, const char *run_dir,
                                 int64_t step, const json_t *state,
                                 const struct ckpt_item *items, int item_count,
                                 const struct ckpt_options *options,
                                 struct ckpt_progress *progress)
{
    enum err rc = ERR_OK;
    struct ckpt_saver *saver = NULL;
    struct ckpt_options in_place = *options;
    struct ckpt_progress ended = { 0 };
    in_place.stage = false;
    TRY_OUT(
        ckpt_saver_create(comm, run_dir, &in_place, items, item_count, &saver));
    TRY_OUT(ckpt_saver_start(saver, step, state));
    TRY_OUT(ckpt_saver_wait(saver, &ended));
    if (ended.phase == CKPT_FAILED)
        rc = err_set(ended.error, "%s", ended.text);
out:
    ckpt_saver_destroy(saver);
    if (progress != NULL)
        *progress = ended;
    return rc;
}
