/* What a group does for a save: its maker begins the file and tells where things
 * are, all write, and the maker gets the others' sums and ends it. */
#include <string.h>

#include "checkpoint/ckpt_saver_private.h"

static size_t sums_bytes(const struct ckpt_segment *segments, int count)
{
    int64_t sums = 0;
    for (int i = 0; i < count; i++)
        sums += ckpt_segment_sums(&segments[i]);
    return (size_t)sums * sizeof(uint32_t);
}

struct making {
    struct ckpt_saver *saver;
    bool told, heard; /* as much as is to be */
};

static enum err tell(void *arg, int64_t bytes)
{
    enum err rc = ERR_OK;
    struct making *making = arg;
    const struct ckpt_save *save = &making->saver->save;
    const struct ckpt_group *g = &save->group;
    const struct ckpt_segment *next = g->segments + g->counts[0];
    making->told = true;
    ckpt_saver_meets(making->saver, true);
    for (int m = 1; m < g->members; m++) {
        g->places[0] = (struct ckpt_group_place){ .at = bytes };
        for (int i = 1; i <= g->counts[m]; i++, next++)
            g->places[i] = (struct ckpt_group_place){ next->at, next->offset };
        TRY_OUT(ckpt_group_send(g->comm, g->places,
                                ((size_t)g->counts[m] + 1) * sizeof *g->places,
                                g->ranks[m], save->options.timeout_s));
    }
out:
    ckpt_saver_meets(making->saver, false);
    return rc;
}

/* A member's failure is that rank's to tell; its sums are of no use then. */
static enum err hear(void *arg, uint32_t *sums, const int64_t *sums_of)
{
    enum err rc = ERR_OK;
    struct making *making = arg;
    const struct ckpt_save *save = &making->saver->save;
    const struct ckpt_group *g = &save->group;
    making->heard = true;
    ckpt_saver_meets(making->saver, true);
    for (int m = 1, first = g->counts[0]; m < g->members;
         first += g->counts[m++]) {
        size_t bytes = sums_bytes(g->segments + first, g->counts[m]);
        TRY_OUT(ckpt_group_receive(g->comm, g->sums, bytes, g->ranks[m],
                                   save->options.timeout_s));
        if (sums != NULL)
            memcpy(sums + sums_of[first], g->sums, bytes);
    }
out:
    ckpt_saver_meets(making->saver, false);
    return rc;
}

static enum err make(struct ckpt_saver *saver, enum err rc, const char *file,
                     const struct ckpt_hdf5_identity *identity,
                     struct ckpt_shard *shard)
{
    struct err_kept failed;
    const struct ckpt_save *save = &saver->save;
    struct making making = { .saver = saver };
    struct ckpt_share share = { .segments = save->group.segments,
                                .count = save->group.count,
                                .arg = &making,
                                .begun = tell,
                                .ended = hear };
    if (rc == ERR_OK)
        rc = ckpt_shard_write_shared(save->tmp, file, identity, save->items,
                                     &share, shard);
    err_keep(&failed, rc);
    if (!making.told)
        TRY(tell(&making, 0));
    else if (!making.heard)
        TRY(hear(&making, NULL, NULL));
    return err_again(&failed);
}

static enum err join(struct ckpt_saver *saver, enum err rc, const char *file)
{
    struct err_kept failed;
    const struct ckpt_save *save = &saver->save;
    const struct ckpt_group *g = &save->group;
    double timeout_s = save->options.timeout_s;
    size_t count = (size_t)g->count;
    err_keep(&failed, rc);
    ckpt_saver_meets(saver, true);
    TRY(ckpt_group_receive(g->comm, g->places, (count + 1) * sizeof *g->places,
                           g->maker, timeout_s));
    ckpt_saver_meets(saver, false);
    int64_t file_bytes = g->places[0].at;
    if (file_bytes == 0)
        return err_again(&failed);
    for (size_t i = 0; i < count; i++) {
        g->segments[i].at = g->places[i + 1].at;
        g->segments[i].offset = g->places[i + 1].offset;
    }
    size_t bytes = sums_bytes(g->segments, g->count);
    memset(g->sums, 0, bytes);
    if (rc == ERR_OK)
        err_keep(&failed,
                 ckpt_shard_join(save->tmp, file, file_bytes, save->items,
                                 g->segments, g->count, g->sums));
    ckpt_saver_meets(saver, true);
    TRY(ckpt_group_send(g->comm, g->sums, bytes, g->maker, timeout_s));
    return err_again(&failed);
}

enum err ckpt_save_shared(struct ckpt_saver *saver, enum err rc,
                          const char *file,
                          const struct ckpt_hdf5_identity *identity,
                          struct ckpt_shard *shard)
{
    const struct ckpt_group *group = &saver->save.group;
    return group->maker == group->rank ? make(saver, rc, file, identity, shard)
                                       : join(saver, rc, file);
}
