/* Puts a model together of a checkpoint and its base.
 *
 * The checkpoint has what has trained: whole tensors, or pairs of small
 * matrices A [rank, in] and B [out, rank] beside a weight that stayed. The rest
 * is in the base, which the state names by path and digest, or fresh from the
 * run's seed. A tensor is read from the first of these that has it, and if
 * adapters belong to it, W + (alpha / rank) B A is formed row by row, summed in
 * fp64 and rounded once. A base may be such a checkpoint itself, so this nests.
 *
 * The digest of a base says that its headers are the same. That its values are,
 * the sums in the state say (weights_sums.h), for blocks of elements: a block
 * is read whole, compared, and kept until another one is wanted, as readers go
 * in order. */
#include "src/formats/weights_tuned.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/formats/weights_pairs.h"
#include "src/formats/weights_sums.h"

/* A base may be such a checkpoint itself; one that is its own base has no end.
 */
#define DEPTH_MAX 16

#define PAIRS 3 /* of a tensor at most: queries, keys and values */

struct weights_tuned {
    struct model_config config;
    struct params *whole;
    struct weights_tuned_own own;
    struct weights *base; /* NULL: fresh weights */
    char *ignore;         /* what is fresh although there is a base */
    uint64_t seed;
    struct weights_sums *sums; /* of what does not come from `own` */
    float *block;              /* the last one read of what has sums ... */
    int block_of;              /* ... in this tensor; -1: none */
    int64_t block_at;
    struct weights_lora lora; /* rank 0: there are no adapters */
    int merged;               /* the tensor whose pairs are here; -1: none */
    struct weights_pair pairs[PAIRS];
    int pair_count;
};

bool weights_tuned_is(const json_t *state)
{
    return json_is_object(json_object_get(state, "base"));
}

/* -1: none. */
static int find_own(const struct weights_tuned *tuned, const char *name)
{
    for (int i = 0; i < tuned->own.count; i++)
        if (strcmp(tuned->own.list[i].name, name) == 0)
            return i;
    return -1;
}

static bool is_adapter(const char *name)
{
    return weights_ignored("*.lora_[AB].weight", name);
}

static bool is_fresh(const struct weights_tuned *tuned, const char *name)
{
    return tuned->base == NULL || weights_ignored(tuned->ignore, name);
}

/* --- opening --- */

static void read_lora(struct weights_tuned *tuned, const json_t *base)
{
    const json_t *lora = json_object_get(base, "lora");
    struct weights_lora *out = &tuned->lora;
    out->rank = json_integer_value(json_object_get(lora, "rank"));
    out->alpha = json_number_value(json_object_get(lora, "alpha"));
    out->dropout = json_number_value(json_object_get(lora, "dropout"));
    for (int i = 0; i < tuned->own.count; i++)
        if (!is_adapter(tuned->own.list[i].name)) {
            out->others++;
            out->other = tuned->own.list[i].name;
        }
}

void weights_tuned_about(const struct weights_tuned *tuned,
                         struct weights_about *about)
{
    about->lora = tuned->lora.rank > 0 ? &tuned->lora : NULL;
    about->origin = NULL;
    if (tuned->base == NULL)
        return;
    /* the base of a base is another model's */
    const struct weights_about *base = weights_about(tuned->base);
    about->origin =
        base->imported && base->origin != NULL ? base->origin : base->path;
}

/* A tensor that trained must be one of these: a name or shape of another model
 * would leave a parameter fresh, or without its adapter, without a word. */
static enum err check_tensor(const struct weights_tensor *own,
                             const struct params *params, const char *where)
{
    const struct param *param = NULL;
    for (int p = 0; p < params->count && param == NULL; p++)
        if (strcmp(params->list[p].name, own->name) == 0)
            param = &params->list[p];
    if (param == NULL)
        return err_set(ERR_CHECKPOINT, "%s: its model has no %s", where,
                       own->name);
    if (own->dims != param->dims || own->shape[0] != param->shape[0] ||
        (own->dims == 2 && own->shape[1] != param->shape[1]))
        return err_set(ERR_CHECKPOINT,
                       "%s: %s is not of the type and shape that it has "
                       "in its model",
                       where, own->name);
    return ERR_OK;
}

static enum err check_own(const struct weights_tuned *tuned, const char *where)
{
    enum err rc = ERR_OK;
    struct params *adapted = NULL;
    struct params_tuning all = { .freeze = "",
                                 .targets = "*",
                                 .rank = tuned->lora.rank };
    int adapters = 0;
    if (tuned->lora.rank > 0)
        TRY(params_create_tuned(&tuned->config, &all, &adapted));
    for (int i = 0; i < tuned->own.count; i++) {
        const struct weights_tensor *own = &tuned->own.list[i];
        bool adapter = is_adapter(own->name);
        adapters += adapter;
        if (adapter && adapted == NULL)
            TRY_OUT(err_set(ERR_CHECKPOINT,
                            "%s: it has the adapter %s, and its state does not "
                            "say of which rank and alpha",
                            where, own->name));
        TRY_OUT(check_tensor(own, adapter ? adapted : tuned->whole, where));
    }
    if (adapted != NULL && adapters == 0)
        TRY_OUT(err_set(ERR_CHECKPOINT,
                        "%s: its state says that it has adapters, and it has "
                        "none",
                        where));
out:
    params_destroy(adapted);
    return rc;
}

static enum err open_base(struct weights_tuned *tuned, const json_t *base,
                          const char *where)
{
    static _Thread_local int depth;
    char moved[FSIO_PATH_MAX], run_dir[FSIO_PATH_MAX];
    const char *path = json_string_value(json_object_get(base, "path"));
    const char *was = json_string_value(json_object_get(base, "sha256"));
    if (path == NULL)
        return ERR_OK;
    TRY(fsio_path(run_dir, "%s/../..", where));
    if (weights_base_moved(base, run_dir, moved))
        path = moved;
    if (depth >= DEPTH_MAX)
        return err_set(ERR_CHECKPOINT,
                       "%s: more than %d bases one behind the "
                       "other",
                       where, DEPTH_MAX);
    /* opening a base may come here again; one that is its own has no end */
    depth++;
    enum err rc = weights_open(path, &tuned->base);
    depth--;
    TRY(err_prefix(rc,
                   "%s has a part of its model, the rest is in %s (if "
                   "that has moved, put it, or a link to it, there)",
                   where, path));
    tuned->lora.base = weights_about(tuned->base)->place;
    if (weights_is(tuned->base, was))
        return ERR_OK;
    return err_set(ERR_CHECKPOINT,
                   "%s has a part of its model, and %s is not what the "
                   "rest was (SHA-256 %.12s, it has %.12s): put that there",
                   where, path, was, weights_about(tuned->base)->sha256);
}

/* What neither has trained nor is the base's. */
static void count_fresh(struct weights_tuned *tuned)
{
    for (int i = 0; i < tuned->whole->count; i++) {
        const char *name = tuned->whole->list[i].name;
        if (find_own(tuned, name) >= 0 || !is_fresh(tuned, name))
            continue;
        tuned->lora.fresh++;
        tuned->lora.fresh_one = name;
    }
}

/* Sums of what does not come from the checkpoint itself. */
static enum err open_sums(struct weights_tuned *tuned, const json_t *base,
                          const char *where)
{
    int unknown = 0;
    TRY(weights_sums_parse(json_object_get(base, "crc32c"), tuned->whole, where,
                           &tuned->sums));
    tuned->block_of = -1;
    TRY(new_room(&tuned->block, (size_t)WEIGHTS_SUMS_BLOCK));
    for (int i = 0; i < tuned->whole->count; i++)
        unknown += !tuned->sums->known[i] &&
                   find_own(tuned, tuned->whole->list[i].name) < 0;
    if (unknown > 0 && tuned->base != NULL)
        log_warn("%s has no checksums of %d tensors of its base: whether %s "
                 "has the values that it was trained with can't be checked",
                 where, unknown, tuned->lora.base);
    return ERR_OK;
}

enum err weights_tuned_open(const json_t *state, const char *where,
                            const struct model_config *config,
                            const struct weights_tuned_own *own,
                            struct weights_tuned **out)
{
    assert(config != NULL && own != NULL && out != NULL);
    enum err rc = ERR_OK;
    const json_t *base = json_object_get(state, "base");
    const json_t *fixed = json_object_get(state, "fixed");
    const char *ignore = json_string_value(json_object_get(base, "ignore"));
    TRY(weights_base_check(base, where));
    struct weights_tuned *tuned = NULL;
    TRY(new_zeroed(&tuned, 1));
    tuned->config = *config;
    tuned->own = *own;
    tuned->merged = -1;
    const json_t *seed = json_object_get(base, "seed");
    tuned->seed = (uint64_t)json_integer_value(
        seed != NULL ? seed : json_object_get(fixed, "train.seed"));
    TRY_OUT(new_text(&tuned->ignore, ignore != NULL ? ignore : ""));
    TRY_OUT(params_create(config, &tuned->whole));
    read_lora(tuned, base);
    TRY_OUT(check_own(tuned, where));
    TRY_OUT(open_base(tuned, base, where));
    TRY_OUT(open_sums(tuned, base, where));
    count_fresh(tuned);
out:
    return new_or_none(rc, tuned, out, weights_tuned_close);
}

void weights_tuned_close(struct weights_tuned *tuned)
{
    if (tuned == NULL)
        return;
    weights_pairs_drop(tuned->pairs, &tuned->pair_count);
    params_destroy(tuned->whole);
    weights_close(tuned->base);
    weights_sums_destroy(tuned->sums);
    free(tuned->block);
    free(tuned->ignore);
    free(tuned);
}

enum err weights_tuned_list(const struct weights_tuned *tuned,
                            struct weights_tensor **list, int *count)
{
    assert(list != NULL && count != NULL);
    const struct params *whole = tuned->whole;
    TRY(new_zeroed(list, (size_t)whole->count + 1));
    for (int i = 0; i < whole->count; i++) {
        const struct param *param = &whole->list[i];
        struct weights_tensor *entry = &(*list)[i];
        snprintf(entry->name, sizeof entry->name, "%s", param->name);
        entry->dims = param->dims;
        entry->shape[0] = param->shape[0];
        entry->shape[1] = param->shape[1];
    }
    *count = whole->count;
    return ERR_OK;
}

/* --- adapters --- */

enum err weights_tuned_matrix(struct weights_tuned *tuned, const char *name,
                              int64_t rows, int64_t cols, float **out)
{
    assert(name != NULL && rows > 0 && cols > 0);
    int index = find_own(tuned, name);
    *out = NULL;
    if (index < 0)
        return ERR_OK;
    const struct weights_tensor *tensor = &tuned->own.list[index];
    if (tensor->dims != 2 || tensor->shape[0] != rows ||
        tensor->shape[1] != cols)
        return err_set(ERR_CHECKPOINT,
                       "%s is not [%lld, %lld], as the model's adapter is",
                       name, (long long)rows, (long long)cols);
    TRY(new_room(out, (size_t)(rows * cols)));
    enum err rc = tuned->own.read(tuned->own.arg, index, 0, rows * cols, *out);
    if (rc != ERR_OK) {
        free(*out);
        *out = NULL;
    }
    return rc;
}

static enum err read_pair(struct weights_tuned *tuned, const char *prefix,
                          const struct lora_shape *shape, bool part)
{
    assert(tuned->pair_count < PAIRS);
    char name[WEIGHTS_NAME_BYTES];
    struct weights_pair *pair = &tuned->pairs[tuned->pair_count++];
    *pair = (struct weights_pair){ .rank = tuned->lora.rank,
                                   .scale = tuned->lora.alpha /
                                            (double)tuned->lora.rank,
                                   .in = shape->in,
                                   .out = shape->out,
                                   .row = part ? shape->at : 0 };
    snprintf(name, sizeof name, "%s%s.lora_A.weight", prefix, shape->name);
    TRY(weights_tuned_matrix(tuned, name, tuned->lora.rank, shape->in,
                             &pair->a));
    snprintf(name, sizeof name, "%s%s.lora_B.weight", prefix, shape->name);
    TRY(weights_tuned_matrix(tuned, name, shape->out, tuned->lora.rank,
                             &pair->b));
    if ((pair->a == NULL) != (pair->b == NULL))
        return err_set(ERR_CHECKPOINT, "%s%s has one matrix of its adapter",
                       prefix, shape->name);
    if (pair->a == NULL)
        tuned->pair_count--;
    return ERR_OK;
}

/* Those of this tensor, in memory until another one's are read. */
static enum err find_pairs(struct weights_tuned *tuned, int index)
{
    const struct param *param = &tuned->whole->list[index];
    char prefix[48];
    if (tuned->merged == index)
        return ERR_OK;
    weights_pairs_drop(tuned->pairs, &tuned->pair_count);
    tuned->merged = -1;
    snprintf(prefix, sizeof prefix, "transformer.blocks.%d.",
             params_layer(tuned->whole, param->block));
    for (int i = 0; i < LORA_LAYERS && tuned->lora.rank > 0; i++) {
        enum lora_layer layer = (enum lora_layer)i;
        struct lora_shape shape;
        if (param_lora_weight(layer) == param->role &&
            lora_shape(&tuned->config, layer, &shape))
            TRY(read_pair(tuned, prefix, &shape,
                          param->role == PARAM_WQKV_WEIGHT));
    }
    tuned->merged = index;
    return ERR_OK;
}

/* --- reading --- */

/* Reads what the checkpoint has not. */
static enum err read_rest(struct weights_tuned *tuned, int index, int64_t begin,
                          int64_t end, float *out)
{
    const struct param *param = &tuned->whole->list[index];
    if (!is_fresh(tuned, param->name))
        return weights_read(tuned->base, param, begin, end, out);
    params_init(tuned->whole, tuned->seed, param->offset + begin,
                param->offset + end, out);
    return ERR_OK;
}

/* A whole block, whose values must be those of before. */
static enum err read_block(struct weights_tuned *tuned, int index,
                           int64_t block)
{
    const struct param *param = &tuned->whole->list[index];
    int64_t begin = block * WEIGHTS_SUMS_BLOCK;
    int64_t end = begin + WEIGHTS_SUMS_BLOCK;
    int64_t sum = tuned->sums->first[index] + block;
    assert(begin >= 0 && begin < param->numel);
    end = end < param->numel ? end : param->numel;
    if (tuned->block_of == index && tuned->block_at == begin)
        return ERR_OK;
    tuned->block_of = -1;
    TRY(read_rest(tuned, index, begin, end, tuned->block));
    if (crc32c(0, tuned->block, (size_t)(end - begin) * sizeof *tuned->block) !=
        tuned->sums->list[sum])
        return err_set(ERR_CHECKPOINT,
                       "%s: %s has other values than when the run was started "
                       "whose checkpoint has the rest: give the weights back "
                       "that it was started with",
                       tuned->base != NULL ? tuned->lora.base
                                           : "fresh values of the run's seed",
                       param->name);
    tuned->block_of = index;
    tuned->block_at = begin;
    return ERR_OK;
}

static enum err read_checked(struct weights_tuned *tuned, int index,
                             int64_t begin, int64_t end, float *out)
{
    if (!tuned->sums->known[index])
        return read_rest(tuned, index, begin, end, out);
    while (begin < end) {
        int64_t block = begin / WEIGHTS_SUMS_BLOCK;
        int64_t last = (block + 1) * WEIGHTS_SUMS_BLOCK;
        last = last < end ? last : end;
        TRY(read_block(tuned, index, block));
        memcpy(out, tuned->block + (begin - tuned->block_at),
               (size_t)(last - begin) * sizeof *out);
        out += last - begin;
        begin = last;
    }
    return ERR_OK;
}

enum err weights_tuned_read(struct weights_tuned *tuned, int index,
                            int64_t begin, int64_t end, float *out)
{
    const struct param *param = &tuned->whole->list[index];
    int own = find_own(tuned, param->name);
    assert(begin >= 0 && begin <= end && end <= param->numel);
    if (own >= 0)
        TRY(tuned->own.read(tuned->own.arg, own, begin, end, out));
    else
        TRY(read_checked(tuned, index, begin, end, out));
    TRY(find_pairs(tuned, index));
    for (int i = 0; i < tuned->pair_count; i++)
        weights_pairs_add(&tuned->pairs[i], begin, end, out);
    return ERR_OK;
}
