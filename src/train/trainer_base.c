/* Finds and reads the base of a run that trains a part of a model. How its own
 * weights begin is trainer_weights.c. */
#include "src/train/trainer_base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/train/start_weights.h"
#include "src/weights/weights_tuned.h"

static bool is_needed(const struct trainer *trainer)
{
    return trainer->params->frozen != NULL;
}

/* Where it can be found from everywhere. */
static json_t *describe(const struct trainer *trainer, struct weights *weights)
{
    struct start_from from = start_weights_from(&trainer->settings);
    if (weights == NULL)
        return json_pack("{s:I}", "seed",
                         (json_int_t)trainer->settings.train.seed);
    const struct weights_about *about = weights_about(weights);
    char way[FSIO_PATH_MAX] = "";
    char *path = realpath(about->path, NULL);
    char *run = realpath(trainer->settings.run.dir, NULL);
    json_t *base =
        json_pack("{s:s, s:s, s:s}", "path", path != NULL ? path : about->path,
                  "sha256", about->sha256, "ignore", from.ignore);
    if (base != NULL && path != NULL && run != NULL &&
        fsio_relative(run, path, way) == ERR_OK)
        (void)json_object_set_new(base, "from_run", json_string(way));
    free(path);
    free(run);
    return base;
}

/* What merges them, and is not in "fixed" where it is the default. */
static int describe_lora(const struct trainer *trainer, json_t *base)
{
    const struct train_settings *s = &trainer->settings;
    if (trainer->params->lora_rank == 0)
        return 0;
    return json_object_set_new(
        base, "lora",
        json_pack("{s:I, s:f, s:f, s:s}", "rank", (json_int_t)s->lora.rank,
                  "alpha", s->lora.alpha, "dropout", s->lora.dropout, "targets",
                  s->lora.targets));
}

enum err trainer_base_begin(struct trainer *trainer, struct weights *weights,
                            const struct replica_source *source)
{
    enum err rc = ERR_OK;
    if (!is_needed(trainer))
        return ERR_OK;
    json_decref(trainer->base);
    trainer->base = describe(trainer, weights);
    if (trainer->base == NULL || describe_lora(trainer, trainer->base) != 0)
        rc = err_set(ERR_MEMORY, "%s cannot be kept as JSON",
                     weights != NULL ? weights_about(weights)->path : "base");
    TRY(comm_agree(trainer->comm, rc));
    return replica_init_frozen(trainer->replica,
                               (uint64_t)trainer->settings.train.seed, source);
}

/* --- a later start --- */

static const char *text_of(const struct trainer *trainer, const char *name)
{
    const char *text = json_string_value(json_object_get(trainer->base, name));
    return text != NULL ? text : "";
}

/* The settings' where they name it, for it may have moved. */
static const char *path_of(const struct trainer *trainer, const char **key,
                           char moved[FSIO_PATH_MAX])
{
    struct start_from from = start_weights_from(&trainer->settings);
    *key = from.path[0] != '\0' && !from.state ? from.key : NULL;
    if (*key != NULL)
        return from.path;
    if (weights_tuned_moved(trainer->base, trainer->settings.run.dir, moved))
        return moved;
    return text_of(trainer, "path");
}

/* May fail on one rank alone. */
static enum err open_base(const struct trainer *trainer, struct weights **out)
{
    const char *key;
    char moved[FSIO_PATH_MAX];
    const char *path = path_of(trainer, &key, moved);
    const char *was = text_of(trainer, "sha256");
    enum err rc = weights_open(path, out);
    if (rc != ERR_OK)
        return err_prefix(rc,
                          "what does not train is not in the run's "
                          "checkpoints, and its base cannot be read (it was "
                          "%s; if it has moved, give model.weights)",
                          text_of(trainer, "path"));
    if (strcmp(weights_about(*out)->sha256, was) == 0)
        return ERR_OK;
    return err_set(ERR_CHECKPOINT,
                   "%s: %s is not the base that the run was started with "
                   "(%s, SHA-256 %.12s; this one has %.12s): give that one as "
                   "model.weights, or another run.dir for a new run",
                   key != NULL ? key : "base", path, text_of(trainer, "path"),
                   was, weights_about(*out)->sha256);
}

struct filling {
    struct weights *weights;
    const char *ignore;
};

static enum err fill(void *arg, const struct params *params, int64_t begin,
                     int64_t end, float *out)
{
    const struct filling *filling = arg;
    return weights_fill(filling->weights, params, filling->ignore, begin, end,
                        out);
}

static enum err fill_from_weights(struct trainer *trainer)
{
    enum err rc = ERR_OK;
    struct weights *weights = NULL;
    TRY_OUT(comm_agree(trainer->comm, open_base(trainer, &weights)));
    struct filling filling = { weights, text_of(trainer, "ignore") };
    struct replica_source source = { fill, &filling,
                                     filling.ignore[0] == '\0' };
    TRY_OUT(replica_init_frozen(
        trainer->replica, (uint64_t)trainer->settings.train.seed, &source));
    if (trainer->rank == 0)
        log_info("what does not train is of %s", weights_about(weights)->path);
out:
    weights_close(weights);
    return rc;
}

enum err trainer_base_fill(struct trainer *trainer)
{
    json_int_t seed = (json_int_t)trainer->settings.train.seed;
    if (!is_needed(trainer))
        return ERR_OK;
    if (text_of(trainer, "path")[0] != '\0')
        return fill_from_weights(trainer);
    seed = json_integer_value(json_object_get(trainer->base, "seed"));
    return replica_init_frozen(trainer->replica, (uint64_t)seed, NULL);
}

/* --- the state --- */

enum err trainer_base_store(const struct trainer *trainer, json_t *state)
{
    if (!is_needed(trainer))
        return ERR_OK;
    return json_object_set(state, "base", trainer->base) == 0
               ? ERR_OK
               : err_set(ERR_MEMORY, "out of memory");
}

enum err trainer_base_restore(struct trainer *trainer, const json_t *state)
{
    const json_t *base = json_object_get(state, "base");
    if (!is_needed(trainer))
        return ERR_OK;
    if (!json_is_object(base))
        return err_set(ERR_CHECKPOINT,
                       "the checkpoint is of a run that trained all of its "
                       "model, this one does not (model.freeze, lora.rank): "
                       "take its weights alone, by model.weights");
    json_decref(trainer->base);
    trainer->base = json_deep_copy(base);
    return trainer->base != NULL ? ERR_OK
                                 : err_set(ERR_MEMORY, "out of memory");
}
