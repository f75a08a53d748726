/* Finds and reads the base of a run that trains a part of a model. How its own
 * weights begin is trainer_weights.c.
 *
 * The base is as large as the model and never changes, so checkpoints name it
 * instead of holding it. That is a promise about a file of somebody else's, and is
 * kept by sums: each rank sums what it fills, tensor by tensor, the ranks' sums are
 * joined, and a later start compares them with the first one's. Each stretch
 * that has a sum is filled by one rank, and the others have 0 there, so joining is
 * an exclusive or of the rows.
 *
 * A later start looks for it in this order: where it was; where it would be if it
 * had moved together with the run; where the settings say. */
#include "src/train/start/start.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/formats/weights_tuned.h"
#include "src/formats/weights_sums.h"
#include "src/mirror/home.h"

/* Ranks exchange so many checksums at once. */
#define SUMS_AT_ONCE 4096

static bool is_needed(const struct run *run)
{
    return run->engine.params->frozen != NULL;
}

/* Where it can be found from everywhere: by its absolute path, and from the
 * run's directory. */
static void set_path(const struct run *run, json_t **base, const char *path)
{
    char way[FSIO_PATH_MAX] = "";
    char *absolute = realpath(path, NULL);
    char *home = realpath(run->settings.run.dir, NULL);
    jsontext_set(base, "path", json_string(absolute != NULL ? absolute : path));
    if (absolute != NULL && home != NULL &&
        fsio_relative(home, absolute, way) == ERR_OK)
        jsontext_set(base, "from_run", json_string(way));
    else
        (void)json_object_del(*base, "from_run");
    free(absolute);
    free(home);
}

static json_t *describe(const struct run *run, struct weights *weights)
{
    struct start_from from = train_settings_from(&run->settings);
    json_t *base =
        json_pack("{s:I}", "seed", (json_int_t)run->settings.train.seed);
    if (weights == NULL)
        return base;
    const struct weights_about *about = weights_about(weights);
    set_path(run, &base, about->place);
    jsontext_set(&base, "sha256", json_string(about->sha256));
    jsontext_set(&base, "ignore", json_string(from.ignore));
    return base;
}

/* What merges them, and is not in "fixed" where it is the default. */
static void describe_lora(const struct run *run, json_t **base)
{
    const struct train_settings *s = &run->settings;
    if (run->engine.params->lora_rank == 0) {
        (void)json_object_del(*base, "lora");
        return;
    }
    jsontext_set(base, "lora",
                 json_pack("{s:I, s:f, s:f, s:s}", "rank",
                           (json_int_t)s->lora.rank, "alpha", s->lora.alpha,
                           "dropout", s->lora.dropout, "targets",
                           s->lora.targets));
}

/* --- filling --- */

struct summed {
    const struct replica_source *source; /* NULL: fresh values */
    struct weights_sums *sums;
};

static enum err fill_summed(void *arg, const struct params *params,
                            int64_t begin, int64_t end, float *out)
{
    const struct summed *summed = arg;
    const struct replica_source *source = summed->source;
    if (source != NULL)
        TRY(source->fill(source->arg, params, begin, end, out));
    weights_sums_add(summed->sums, begin, end, out);
    return ERR_OK;
}

/* Each rank has summed what it filled: all get the sums of the whole. */
static enum err join_sums(struct comm *comm, struct weights_sums *sums)
{
    enum err rc = ERR_OK;
    size_t ranks = (size_t)comm_size(comm);
    size_t rank = (size_t)comm_rank(comm);
    int64_t all = sums->first[sums->params->count];
    assert(all >= 0);
    uint32_t *parts = NULL;
    rc = new_zeroed(&parts, ranks * SUMS_AT_ONCE);
    TRY_OUT(comm_agree(comm, rc));
    for (int64_t at = 0; at < all; at += SUMS_AT_ONCE) {
        size_t count =
            (size_t)(all - at < SUMS_AT_ONCE ? all - at : SUMS_AT_ONCE);
        size_t bytes = count * sizeof *parts;
        memcpy(parts + rank * count, sums->list + at, bytes);
        memset(sums->list + at, 0, bytes);
        TRY_OUT(comm_gather_rows(comm, parts, bytes));
        for (size_t i = 0; i < ranks * count; i++)
            sums->list[at + (int64_t)(i % count)] ^= parts[i];
    }
out:
    free(parts);
    return rc;
}

/* The same values as those of the first start; `from` is for messages. */
static enum err check_sums(const struct run *run,
                           const struct weights_sums *sums, const char *from)
{
    struct weights_sums *was = NULL;
    int unknown = 0;
    TRY(weights_sums_parse(json_object_get(run->engine.base, "crc32c"),
                           sums->params, "the checkpoint", &was));
    enum err rc = weights_sums_compare(was, sums, from, &unknown);
    weights_sums_destroy(was);
    TRY(err_prefix(rc, "what does not train has changed (give the weights "
                       "back that the run was started with, or another "
                       "run.dir for a new run)"));
    if (unknown > 0 && run->rank == 0 &&
        json_object_get(run->engine.base, "path") != NULL)
        log_warn("the checkpoint has checksums of %d of the %d tensors that "
                 "do not train: whether %s has the values that the run was "
                 "started with can't be checked; its next checkpoints have "
                 "them all",
                 sums->params->count - unknown, sums->params->count, from);
    return ERR_OK;
}

/* At a later start they must be those of the first. Collective. */
static enum err fill_frozen(struct run *run, uint64_t seed,
                            const struct replica_source *source,
                            const char *from, bool later)
{
    enum err rc = ERR_OK;
    struct weights_sums *sums = NULL;
    assert(is_needed(run) && run->engine.base != NULL);
    TRY_OUT(comm_agree(run->comm,
                       weights_sums_create(run->engine.params->frozen, &sums)));
    struct summed summed = { source, sums };
    struct replica_source all = { fill_summed, &summed,
                                  source != NULL && source->whole };
    TRY_OUT(replica_init_frozen(run->engine.replica, seed, &all));
    TRY_OUT(join_sums(run->comm, sums));
    rc = later ? check_sums(run, sums, from) : ERR_OK;
    if (rc == ERR_OK)
        jsontext_set(&run->engine.base, "crc32c", weights_sums_json(sums));
    if (run->engine.base == NULL)
        rc = err_set(ERR_MEMORY, "out of memory");
    TRY_OUT(comm_agree(run->comm, rc));
out:
    weights_sums_destroy(sums);
    return rc;
}

/* --- the first start --- */

enum err trainer_base_begin(struct run *run, struct weights *weights,
                            const struct replica_source *source)
{
    enum err rc = ERR_OK;
    if (!is_needed(run))
        return ERR_OK;
    assert(run->position.step == 0);
    json_decref(run->engine.base);
    run->engine.base = describe(run, weights);
    describe_lora(run, &run->engine.base);
    if (run->engine.base == NULL)
        rc = err_set(ERR_MEMORY, "%s cannot be kept as JSON",
                     weights != NULL ? weights_about(weights)->path : "base");
    TRY(comm_agree(run->comm, rc));
    return fill_frozen(run, (uint64_t)run->settings.train.seed, source, "",
                       false);
}

/* --- a later start --- */

static const char *text_of(const struct run *run, const char *name)
{
    const char *text =
        json_string_value(json_object_get(run->engine.base, name));
    return text != NULL ? text : "";
}

/* The seed of what no source has, whatever train.seed is now. */
static uint64_t seed_of(const struct run *run)
{
    const json_t *seed = json_object_get(run->engine.base, "seed");
    return seed != NULL ? (uint64_t)json_integer_value(seed)
                        : (uint64_t)run->settings.train.seed;
}

/* Whether it is the base; else `out` is left closed. */
static bool open_if(const char *path, const char *sha256, struct weights **out)
{
    if ((!fsio_exists(path) && !home_is(path)) ||
        weights_open(path, out) != ERR_OK)
        return false;
    if (weights_is(*out, sha256))
        return true;
    weights_close(*out);
    *out = NULL;
    return false;
}

/* Where it was, or where it has moved to: together with the run, or as the
 * settings say. May fail on one rank alone. */
static enum err open_base(const struct run *run, struct weights **out)
{
    char moved[FSIO_PATH_MAX];
    struct start_from from = train_settings_from(&run->settings);
    bool named = from.path[0] != '\0' && !from.state;
    const char *was = text_of(run, "sha256");
    const char *path = text_of(run, "path");
    if (open_if(path, was, out) ||
        (weights_base_moved(run->engine.base, run->settings.run.dir, moved) &&
         open_if(moved, was, out)))
        return ERR_OK;
    TRY(err_prefix(weights_open(named ? from.path : path, out),
                   "what does not train is not in the run's checkpoints, and "
                   "its base cannot be read (it was %s; if it has moved, give "
                   "model.weights)",
                   path));
    if (weights_is(*out, was))
        return ERR_OK;
    return err_set(ERR_CHECKPOINT,
                   "%s: %s is not the base that the run was started with "
                   "(%s, SHA-256 %.12s; this one has %.12s): give that one as "
                   "model.weights, or another run.dir for a new run",
                   named ? from.key : "base", named ? from.path : path, path,
                   was, weights_about(*out)->sha256);
}

struct opening {
    const struct run *run;
    struct weights *weights;
};

static enum err open_it(void *arg)
{
    struct opening *opening = arg;
    return open_base(opening->run, &opening->weights);
}

static enum err fill_from_weights(struct run *run)
{
    enum err rc = ERR_OK;
    struct opening opening = { run, NULL };
    TRY(start_each(run->comm, open_it, &opening));
    struct weights *weights = opening.weights;
    struct trainer_filling filling = { weights, text_of(run, "ignore") };
    struct replica_source source = { trainer_weights_fill, &filling,
                                     filling.ignore[0] == '\0' };
    const struct weights_about *about = weights_about(weights);
    TRY_OUT(fill_frozen(run, seed_of(run), &source, about->path, true));
    /* it may have moved, and the digest be one of before (weights_is) */
    set_path(run, &run->engine.base, about->place);
    jsontext_set(&run->engine.base, "sha256", json_string(about->sha256));
    if (run->engine.base == NULL)
        rc = err_set(ERR_MEMORY, "out of memory");
    TRY_OUT(comm_agree(run->comm, rc));
    if (run->rank == 0)
        log_info("what does not train is of %s", about->place);
out:
    weights_close(weights);
    return rc;
}

enum err trainer_base_fill(struct run *run)
{
    if (!is_needed(run))
        return ERR_OK;
    assert(run->position.step > 0);
    if (text_of(run, "path")[0] != '\0')
        return fill_from_weights(run);
    return fill_frozen(run, seed_of(run), NULL,
                       "fresh values of the run's seed", true);
}

/* --- the state --- */

enum err trainer_base_store(const struct run *run, json_t *state)
{
    if (!is_needed(run))
        return ERR_OK;
    return json_object_set(state, "base", run->engine.base) == 0
               ? ERR_OK
               : err_set(ERR_MEMORY, "out of memory");
}

enum err trainer_base_restore(struct run *run, const json_t *state)
{
    const json_t *base = json_object_get(state, "base");
    if (!is_needed(run))
        return ERR_OK;
    if (!json_is_object(base))
        return err_set(ERR_CHECKPOINT,
                       "the checkpoint is of a run that trained all of its "
                       "model, this one does not (model.freeze, lora.rank): "
                       "take its weights alone, by model.weights");
    TRY(weights_base_check(base, "the checkpoint"));
    json_decref(run->engine.base);
    run->engine.base = json_deep_copy(base);
    return run->engine.base != NULL ? ERR_OK
                                    : err_set(ERR_MEMORY, "out of memory");
}

enum err trainer_base_take(struct run *run, const json_t *state,
                           const char *checkpoint)
{
    char run_dir[FSIO_PATH_MAX], moved[FSIO_PATH_MAX];
    TRY(trainer_base_restore(run, state));
    if (!is_needed(run))
        return ERR_OK;
    TRY(fsio_path(run_dir, "%s/../..", checkpoint));
    const char *path = text_of(run, "path");
    if (weights_base_moved(run->engine.base, run_dir, moved))
        path = moved;
    describe_lora(run, &run->engine.base);
    if (run->engine.base != NULL && path[0] != '\0')
        set_path(run, &run->engine.base, path);
    return run->engine.base != NULL ? ERR_OK
                                    : err_set(ERR_MEMORY, "out of memory");
}
