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

/* Where it can be found from everywhere: by its absolute path, and from the
 * run's directory. */
static int set_path(const struct trainer *trainer, json_t *base,
                    const char *path)
{
    char way[FSIO_PATH_MAX] = "";
    char *absolute = realpath(path, NULL);
    char *run = realpath(trainer->settings.run.dir, NULL);
    int failed = json_object_set_new(
        base, "path", json_string(absolute != NULL ? absolute : path));
    if (absolute != NULL && run != NULL &&
        fsio_relative(run, absolute, way) == ERR_OK)
        failed |= json_object_set_new(base, "from_run", json_string(way));
    else
        (void)json_object_del(base, "from_run");
    free(absolute);
    free(run);
    return failed;
}

static json_t *describe(const struct trainer *trainer, struct weights *weights)
{
    struct start_from from = start_weights_from(&trainer->settings);
    json_t *base =
        json_pack("{s:I}", "seed", (json_int_t)trainer->settings.train.seed);
    if (base == NULL || weights == NULL)
        return base;
    const struct weights_about *about = weights_about(weights);
    if (set_path(trainer, base, about->path) != 0 ||
        json_object_set_new(base, "sha256", json_string(about->sha256)) != 0 ||
        json_object_set_new(base, "ignore", json_string(from.ignore)) != 0) {
        json_decref(base);
        base = NULL;
    }
    return base;
}

/* What merges them, and is not in "fixed" where it is the default. */
static int describe_lora(const struct trainer *trainer, json_t *base)
{
    const struct train_settings *s = &trainer->settings;
    if (trainer->params->lora_rank == 0) {
        (void)json_object_del(base, "lora");
        return 0;
    }
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

/* Of what no source has, whatever train.seed is now. */
static uint64_t seed_of(const struct trainer *trainer)
{
    const json_t *seed = json_object_get(trainer->base, "seed");
    return seed != NULL ? (uint64_t)json_integer_value(seed)
                        : (uint64_t)trainer->settings.train.seed;
}

/* Whether it is the base; else `out` is left closed. */
static bool open_if(const char *path, const char *sha256, struct weights **out)
{
    if (!fsio_exists(path) || weights_open(path, out) != ERR_OK)
        return false;
    if (strcmp(weights_about(*out)->sha256, sha256) == 0)
        return true;
    weights_close(*out);
    *out = NULL;
    return false;
}

/* Where it was, or where it has moved to: together with the run, or as the
 * settings say. May fail on one rank alone. */
static enum err open_base(const struct trainer *trainer, struct weights **out)
{
    char moved[FSIO_PATH_MAX];
    struct start_from from = start_weights_from(&trainer->settings);
    bool named = from.path[0] != '\0' && !from.state;
    const char *was = text_of(trainer, "sha256");
    const char *path = text_of(trainer, "path");
    if (open_if(path, was, out) ||
        (weights_tuned_moved(trainer->base, trainer->settings.run.dir, moved) &&
         open_if(moved, was, out)))
        return ERR_OK;
    enum err rc = weights_open(named ? from.path : path, out);
    if (rc != ERR_OK)
        return err_prefix(rc,
                          "what does not train is not in the run's "
                          "checkpoints, and its base cannot be read (it was "
                          "%s; if it has moved, give model.weights)",
                          path);
    if (strcmp(weights_about(*out)->sha256, was) == 0)
        return ERR_OK;
    return err_set(ERR_CHECKPOINT,
                   "%s: %s is not the base that the run was started with "
                   "(%s, SHA-256 %.12s; this one has %.12s): give that one as "
                   "model.weights, or another run.dir for a new run",
                   named ? from.key : "base", named ? from.path : path, path,
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
    TRY_OUT(replica_init_frozen(trainer->replica, seed_of(trainer), &source));
    if (trainer->rank == 0)
        log_info("what does not train is of %s", weights_about(weights)->path);
out:
    weights_close(weights);
    return rc;
}

enum err trainer_base_fill(struct trainer *trainer)
{
    if (!is_needed(trainer))
        return ERR_OK;
    if (text_of(trainer, "path")[0] != '\0')
        return fill_from_weights(trainer);
    return replica_init_frozen(trainer->replica, seed_of(trainer), NULL);
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

enum err trainer_base_take(struct trainer *trainer, const json_t *state,
                           const char *checkpoint)
{
    char run_dir[FSIO_PATH_MAX], moved[FSIO_PATH_MAX];
    TRY(trainer_base_restore(trainer, state));
    if (!is_needed(trainer))
        return ERR_OK;
    TRY(fsio_path(run_dir, "%s/../..", checkpoint));
    const char *path = text_of(trainer, "path");
    if (weights_tuned_moved(trainer->base, run_dir, moved))
        path = moved;
    int failed = describe_lora(trainer, trainer->base);
    if (path[0] != '\0')
        failed |= set_path(trainer, trainer->base, path);
    return failed == 0 ? ERR_OK : err_set(ERR_MEMORY, "out of memory");
}
