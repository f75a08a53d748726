/* Puts a model together of a checkpoint and its base. */
#include "src/weights/weights_tuned.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A base may be such a checkpoint itself; one that is its own base has no end.
 */
#define DEPTH_MAX 16
#define RANK_MAX 65536

/* A pair of matrices. */
struct pair {
    float *a, *b;
    int64_t in, out;
    int64_t row; /* of the tensor that its first row belongs to */
};

#define PAIRS 3 /* of a tensor at most: queries, keys and values */

struct weights_tuned {
    struct model_config config;
    struct params *whole;
    struct weights_tuned_own own;
    struct weights *base; /* NULL: fresh weights */
    char *ignore;         /* what is fresh although there is a base */
    uint64_t seed;
    struct weights_lora lora; /* rank 0: there are no adapters */
    int merged;               /* the tensor whose pairs are here; -1: none */
    struct pair pairs[PAIRS];
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

/* --- opening --- */

static enum err read_lora(struct weights_tuned *tuned, const json_t *base,
                          const char *where)
{
    const json_t *lora = json_object_get(base, "lora");
    if (lora == NULL)
        return ERR_OK;
    struct weights_lora *out = &tuned->lora;
    out->rank = json_integer_value(json_object_get(lora, "rank"));
    out->alpha = json_number_value(json_object_get(lora, "alpha"));
    out->dropout = json_number_value(json_object_get(lora, "dropout"));
    if (out->rank < 1 || out->rank > RANK_MAX || !(out->alpha > 0.0) ||
        !(out->dropout >= 0.0 && out->dropout < 1.0))
        return err_set(ERR_CHECKPOINT,
                       "%s: its state has adapters of rank %lld, alpha %g and "
                       "dropout %g",
                       where, (long long)out->rank, out->alpha, out->dropout);
    for (int i = 0; i < tuned->own.count; i++)
        if (!weights_ignored("*.lora_[AB].weight", tuned->own.list[i].name)) {
            out->others++;
            out->other = tuned->own.list[i].name;
        }
    return ERR_OK;
}

const struct weights_lora *weights_tuned_lora(const struct weights_tuned *tuned)
{
    return tuned->lora.rank > 0 ? &tuned->lora : NULL;
}

bool weights_tuned_moved(const json_t *base, const char *run_dir,
                         char out[FSIO_PATH_MAX])
{
    const char *path = json_string_value(json_object_get(base, "path"));
    const char *way = json_string_value(json_object_get(base, "from_run"));
    return path != NULL && way != NULL && !fsio_exists(path) &&
           fsio_path(out, "%s/%s", run_dir, way) == ERR_OK && fsio_exists(out);
}

/* What trained is of this model: a name or shape of another would leave a
 * parameter fresh without a word. */
static enum err check_own(const struct weights_tuned *tuned, const char *where)
{
    for (int i = 0; i < tuned->own.count; i++) {
        const struct weights_tensor *own = &tuned->own.list[i];
        const struct param *param = NULL;
        if (weights_ignored("*.lora_[AB].weight", own->name))
            continue;
        for (int p = 0; p < tuned->whole->count && param == NULL; p++)
            if (strcmp(tuned->whole->list[p].name, own->name) == 0)
                param = &tuned->whole->list[p];
        if (param == NULL)
            return err_set(ERR_CHECKPOINT, "%s: its model has no %s", where,
                           own->name);
        if (own->dims != param->dims || own->shape[0] != param->shape[0] ||
            (own->dims == 2 && own->shape[1] != param->shape[1]))
            return err_set(ERR_CHECKPOINT,
                           "%s: %s is not of the type and shape that it has "
                           "in its model",
                           where, own->name);
    }
    return ERR_OK;
}

static enum err open_base(struct weights_tuned *tuned, const json_t *base,
                          const char *where)
{
    static _Thread_local int depth;
    char moved[FSIO_PATH_MAX], run_dir[FSIO_PATH_MAX];
    const char *path = json_string_value(json_object_get(base, "path"));
    const char *was = json_string_value(json_object_get(base, "sha256"));
    if (path == NULL)
        return json_is_integer(json_object_get(base, "seed"))
                   ? ERR_OK
                   : err_set(ERR_CHECKPOINT,
                             "%s has a part of its model, and its state does "
                             "not say what the rest is",
                             where);
    TRY(fsio_path(run_dir, "%s/../..", where));
    if (weights_tuned_moved(base, run_dir, moved))
        path = moved;
    if (depth >= DEPTH_MAX)
        return err_set(ERR_CHECKPOINT,
                       "%s: more than %d bases one behind the "
                       "other",
                       where, DEPTH_MAX);
    depth++;
    enum err rc = weights_open(path, &tuned->base);
    depth--;
    if (rc != ERR_OK)
        return err_prefix(rc, "%s has a part of its model, the rest is in %s",
                          where, path);
    const char *is = weights_about(tuned->base)->sha256;
    tuned->lora.base = weights_about(tuned->base)->path;
    if (was == NULL || is == NULL || strcmp(is, was) != 0)
        return err_set(ERR_CHECKPOINT,
                       "%s has a part of its model, and %s is not what the "
                       "rest was (SHA-256 %.12s, it has %.12s)",
                       where, path, was != NULL ? was : "?",
                       is != NULL ? is : "?");
    return ERR_OK;
}

enum err weights_tuned_open(const json_t *state, const char *where,
                            const struct model_config *config,
                            const struct weights_tuned_own *own,
                            struct weights_tuned **out)
{
    enum err rc = ERR_OK;
    const json_t *base = json_object_get(state, "base");
    const json_t *fixed = json_object_get(state, "fixed");
    const char *ignore = json_string_value(json_object_get(base, "ignore"));
    struct weights_tuned *tuned = calloc(1, sizeof *tuned);
    if (tuned == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", where);
    tuned->config = *config;
    tuned->own = *own;
    tuned->merged = -1;
    const json_t *seed = json_object_get(base, "seed");
    tuned->seed = (uint64_t)json_integer_value(
        seed != NULL ? seed : json_object_get(fixed, "train.seed"));
    tuned->ignore = strdup(ignore != NULL ? ignore : "");
    if (tuned->ignore == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "%s: out of memory", where));
    TRY_OUT(params_create(config, &tuned->whole));
    TRY_OUT(check_own(tuned, where));
    TRY_OUT(read_lora(tuned, base, where));
    TRY_OUT(open_base(tuned, base, where));
    *out = tuned;
    tuned = NULL;
out:
    weights_tuned_close(tuned);
    return rc;
}

static void drop_pairs(struct weights_tuned *tuned)
{
    for (int i = 0; i < tuned->pair_count; i++) {
        free(tuned->pairs[i].a);
        free(tuned->pairs[i].b);
    }
    tuned->pair_count = 0;
    tuned->merged = -1;
}

void weights_tuned_close(struct weights_tuned *tuned)
{
    if (tuned == NULL)
        return;
    drop_pairs(tuned);
    params_destroy(tuned->whole);
    weights_close(tuned->base);
    free(tuned->ignore);
    free(tuned);
}

enum err weights_tuned_list(const struct weights_tuned *tuned,
                            struct weights_tensor **list, int *count)
{
    const struct params *whole = tuned->whole;
    *list = calloc((size_t)whole->count + 1, sizeof **list);
    if (*list == NULL)
        return err_set(ERR_MEMORY, "out of memory");
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
    *out = malloc((size_t)(rows * cols) * sizeof **out);
    if (*out == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", name);
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
    char name[WEIGHTS_NAME_BYTES];
    struct pair *pair = &tuned->pairs[tuned->pair_count++];
    *pair = (struct pair){ .in = shape->in,
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
    drop_pairs(tuned);
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

/* w[in] += scale b A, of columns [first, last). */
static void add_row(const struct weights_tuned *tuned, const struct pair *pair,
                    const float *b, int64_t first, int64_t last, float *w)
{
    for (int64_t i = first; i < last; i++) {
        double sum = 0.0;
        for (int64_t r = 0; r < tuned->lora.rank; r++)
            sum += (double)b[r] * (double)pair->a[r * pair->in + i];
        w[i - first] =
            (float)((double)w[i - first] +
                    tuned->lora.alpha / (double)tuned->lora.rank * sum);
    }
}

static void add_pair(const struct weights_tuned *tuned, const struct pair *pair,
                     int64_t begin, int64_t end, float *out)
{
    int64_t in = pair->in;
    int64_t from = pair->row * in;
    int64_t to = (pair->row + pair->out) * in;
    int64_t at = begin > from ? begin : from;
    int64_t last = end < to ? end : to;
    while (at < last) {
        int64_t row = at / in;
        int64_t next = (row + 1) * in < last ? (row + 1) * in : last;
        add_row(tuned, pair, pair->b + (row - pair->row) * tuned->lora.rank,
                at - row * in, next - row * in, out + (at - begin));
        at = next;
    }
}

/* --- reading --- */

enum err weights_tuned_read(struct weights_tuned *tuned, int index,
                            int64_t begin, int64_t end, float *out)
{
    const struct param *param = &tuned->whole->list[index];
    int own = find_own(tuned, param->name);
    assert(begin >= 0 && begin <= end && end <= param->numel);
    if (own >= 0)
        TRY(tuned->own.read(tuned->own.arg, own, begin, end, out));
    else if (tuned->base == NULL || weights_ignored(tuned->ignore, param->name))
        params_init(tuned->whole, tuned->seed, param->offset + begin,
                    param->offset + end, out);
    else
        TRY(weights_read(tuned->base, param, begin, end, out));
    TRY(find_pairs(tuned, index));
    for (int i = 0; i < tuned->pair_count; i++)
        add_pair(tuned, &tuned->pairs[i], begin, end, out);
    return ERR_OK;
}
