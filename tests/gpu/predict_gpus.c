#include "tests/gpu/predict_gpus.h"

#include <math.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/train/plan/train_exchange.h"
#include "src/train/plan/train_memory.h"

#define LINK_SHARE 0.8 /* of a link's rate */

/* The settings of all of them, and where they are. */
struct whole {
    struct train_settings settings;
    struct train_memory_place place;
};

static enum err whole_of(const struct predict_gpus *of, struct whole **out)
{
    TRY(new_zeroed(out, 1));
    struct train_settings *s = &(*out)->settings;
    *s = *of->settings;
    s->train.global_batch *= of->gpus;
    s->parallel.slots *= of->gpus;
    s->parallel.shard_degree = of->degree < of->gpus ? of->degree : 0;
    s->once = of->degree > 0;
    (*out)->place = (struct train_memory_place){
        .kernels = of->kernels,
        .threads = 1,
        .ranks = of->gpus * of->ranks,
        .node_ranks = of->gpus > 1 ? of->gpu->node_gpus : 0,
    };
    return ERR_OK;
}

enum err predict_gpus_memory(const struct predict_gpus *of,
                             struct memory_plan *out)
{
    struct whole *whole = NULL;
    TRY(whole_of(of, &whole));
    enum err rc = train_memory_plan(&whole->settings, &whole->place, out);
    free(whole);
    return rc;
}

enum err predict_gpus_exchange(const struct predict_gpus *of,
                               const struct params *params, double *seconds)
{
    struct train_exchange list[TRAIN_EXCHANGES];
    struct whole *whole = NULL;
    TRY(whole_of(of, &whole));
    const struct train_settings *s = &whole->settings;
    struct train_memory_way way = { .strategy =
                                        train_memory_replica(s).strategy,
                                    .shard_degree =
                                        of->degree > 0 ? of->degree : of->gpus,
                                    .ranks = of->gpus,
                                    .microbatch = s->train.microbatch,
                                    .once = s->once };
    train_exchanges(s, &whole->place, params, &way, list);
    *seconds = 0.0;
    for (int i = 0; i < TRAIN_EXCHANGES; i++) {
        if (list[i].times == 0.0 || list[i].ranks < 2)
            continue;
        struct train_exchange_sent sent =
            train_exchange_sent(&list[i], of->gpu->node_gpus);
        *seconds += list[i].times / LINK_SHARE *
                    fmax(sent.near / of->gpu->link_bytes_per_s,
                         sent.far / of->gpu->network_bytes_per_s);
    }
    free(whole);
    return ERR_OK;
}
