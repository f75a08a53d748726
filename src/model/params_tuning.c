/* Decides which parameters are frozen, and refuses what cannot be. The tables
 * are made in params.c. */
#include "src/model/params.h"

#include <assert.h>
#include <fnmatch.h>

#include "src/base/globs.h"

bool params_tuning_freezes(const struct params_tuning *tuning,
                           const struct param *param)
{
    char glob[GLOBS_GLOB_MAX];
    if (tuning == NULL || param->role >= PARAM_LORA)
        return false;
    const char *rest = tuning->freeze;
    bool given = globs_next(&rest, glob);
    return given ? globs_match(tuning->freeze, param->name) : tuning->rank > 0;
}

enum err params_tuning_check(const struct model_config *config,
                             const struct params_tuning *tuning)
{
    if (tuning == NULL || tuning->rank == 0)
        return ERR_OK;
    return lora_check(config, tuning->targets);
}

/* What must not be frozen alone: gate and up are one matrix of a product, and
 * the positions' gradient is made together with that of the tokens. */
static const struct {
    enum param_role rests, trains;
} pairs[] = {
    { PARAM_GATE_WEIGHT, PARAM_UP_WEIGHT },
    { PARAM_UP_WEIGHT, PARAM_GATE_WEIGHT },
    { PARAM_GATE_BIAS, PARAM_UP_BIAS },
    { PARAM_UP_BIAS, PARAM_GATE_BIAS },
    { PARAM_WTE, PARAM_WPE },
};

static const struct param *find(const struct params *params, int block,
                                enum param_role role)
{
    for (int i = 0; i < params->count; i++)
        if (params->list[i].block == block && params->list[i].role == role)
            return &params->list[i];
    return NULL;
}

static enum err check_pair(const struct params *params, int block,
                           enum param_role rests, enum param_role trains)
{
    if (params->blocks[block].place[trains] < 0 ||
        params->frozen->blocks[block].place[rests] < 0)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "model.freeze: %s is frozen and %s is not, but they are "
                   "computed as one: freeze both or neither",
                   find(params->frozen, block, rests)->name,
                   find(params, block, trains)->name);
}

static enum err check_globs(const char *globs, const struct params *frozen)
{
    char glob[GLOBS_GLOB_MAX];
    while (globs_next(&globs, glob)) {
        bool matched = false;
        for (int i = 0; i < frozen->count && !matched; i++)
            matched = fnmatch(glob, frozen->list[i].name, 0) == 0;
        if (!matched)
            return err_set(ERR_USAGE,
                           "model.freeze: no parameter of the model matches "
                           "\"%s\" (names are such as "
                           "transformer.blocks.0.attn.Wqkv.weight)",
                           glob);
    }
    return ERR_OK;
}

enum err params_tuning_fits(const struct params_tuning *tuning,
                            const struct params *params)
{
    assert(params->frozen != NULL);
    TRY(check_globs(tuning->freeze, params->frozen));
    if (params->count == 0)
        return err_set(ERR_USAGE, "model.freeze matches every parameter: "
                                  "nothing is left to train");
    for (int block = 0; block < params->block_count; block++)
        for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
            TRY(check_pair(params, block, pairs[i].rests, pairs[i].trains));
    return ERR_OK;
}
