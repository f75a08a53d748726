/* Holds parameters from some time on, as Composer's LayerFreezing does by
 * layers: neither weights nor moments change. Their gradients are computed as
 * before, and count in the norm. The replica is told before each batch, since a
 * resume or a rollback may begin on either side of `start`. */
#include <assert.h>
#include <stdlib.h>

#include "src/base/globs.h"
#include "src/base/new.h"
#include "src/train/run/run.h"

struct layer_freezing {
    struct run *run;
    int64_t start; /* steps */
    bool *held;    /* [tensors] */
};

/* Every glob must match, or it is misspelt; and something has to train. */
static enum err check_globs(const struct algorithm_layer_freezing *s,
                            const struct params *params)
{
    char glob[GLOBS_GLOB_MAX];
    int count = 0;
    for (const char *globs = s->match; globs_next(&globs, glob);) {
        int p = 0;
        while (p < params->count && !globs_match(glob, params->list[p].name))
            p++;
        if (p == params->count)
            return err_set(ERR_USAGE,
                           "match: no parameter that trains is named %s", glob);
    }
    for (int p = 0; p < params->count; p++)
        count += globs_match(s->match, params->list[p].name);
    if (count == 0)
        return err_set(ERR_USAGE, "match is empty: name parameters");
    if (count == params->count && s->start.value == 0)
        return err_set(ERR_USAGE, "match holds all parameters from the start "
                                  "on: nothing would train");
    return ERR_OK;
}

static enum err layer_freezing_check(const void *settings,
                                     const struct train_settings *all)
{
    struct params *params = NULL;
    TRY(train_settings_params(all, &params));
    enum err rc = check_globs(settings, params);
    params_destroy(params);
    return rc;
}

static enum err layer_freezing_create(void *self, const void *settings,
                                      struct run *run)
{
    struct layer_freezing *freezing = self;
    const struct algorithm_layer_freezing *s = settings;
    const struct params *params = run->engine.params;
    freezing->run = run;
    TRY(run_algorithm_steps(run, freezing, "start", s->start,
                            &freezing->start));
    TRY(new_zeroed(&freezing->held, (size_t)params->count));
    for (int p = 0; p < params->count; p++)
        freezing->held[p] = globs_match(s->match, params->list[p].name);
    return ERR_OK;
}

static void layer_freezing_destroy(void *self)
{
    struct layer_freezing *freezing = self;
    free(freezing->held);
}

static enum err layer_freezing_before_batch(void *self,
                                            struct algorithm_step *step)
{
    const struct layer_freezing *freezing = self;
    bool held = freezing->run->position.step >= freezing->start;
    (void)step;
    assert(freezing->held != NULL && freezing->start >= 0);
    replica_hold(freezing->run->engine.replica, held ? freezing->held : NULL);
    return ERR_OK;
}

const struct algorithm_ops algorithm_layer_freezing_ops = {
    ALGORITHM_OF(struct layer_freezing), .check = layer_freezing_check,
    .create = layer_freezing_create, .destroy = layer_freezing_destroy,
    .before_batch = layer_freezing_before_batch
};
