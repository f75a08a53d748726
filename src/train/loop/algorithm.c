/* Makes the algorithms of a run from their settings, and calls them. What each
 * does is in its own file. */
#include "src/train/loop/algorithm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/parallel/norms.h"
#include "src/train/settings/algorithm_settings.h"
#include "src/train/loop/trainer.h"

#define DECLARE(name, settings, help)                                          \
    extern const struct algorithm_ops algorithm_##name##_ops;
#define ENTRY(name, settings, help)                                            \
    { &algorithm_##name##_ops, sizeof(struct algorithm_##name) },

ALGORITHMS(DECLARE)

/* In the order of algorithm_kinds. */
static const struct {
    const struct algorithm_ops *ops;
    size_t settings_bytes;
} table[] = { ALGORITHMS(ENTRY) };

/* Item `index` of the list, with its settings. */
static enum err read_item(const struct train_settings *settings, int index,
                          struct algorithm *out)
{
    int kind = 0;
    const char *text = settings->alone.algorithms;
    const struct setting *setting = train_settings_setting("algorithms");
    TRY(settings_list_item(setting, text, index, &kind, NULL));
    out->name = algorithm_kinds[kind].name;
    out->ops = table[kind].ops;
    out->settings = calloc(1, table[kind].settings_bytes);
    if (out->settings == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    return settings_list_item(setting, text, index, &kind, out->settings);
}

/* All of them without what they are when the run is there. */
static enum err read_list(const struct train_settings *settings,
                          struct algorithms *out)
{
    int count = 0;
    const char *text = settings->alone.algorithms;
    *out = (struct algorithms){ 0 };
    if (text[0] != '\0')
        TRY(settings_list_count(train_settings_setting("algorithms"), text,
                                &count));
    if (count > ALGORITHMS_MAX)
        return err_set(ERR_USAGE, "algorithms: %d of them, more than %d", count,
                       ALGORITHMS_MAX);
    for (int i = 0; i < count; i++) {
        out->count++;
        TRY(read_item(settings, i, &out->list[i]));
        for (int j = 0; j < i; j++)
            if (out->list[j].ops == out->list[i].ops)
                return err_set(ERR_USAGE, "algorithms: %s is there twice",
                               out->list[i].name);
    }
    return ERR_OK;
}

static enum err named(const struct algorithm *algorithm, enum err rc)
{
    if (rc != ERR_OK)
        err_prefix(rc, "algorithms: %s", algorithm->name);
    return rc;
}

enum err algorithm_check(const struct train_settings *settings)
{
    enum err rc = ERR_OK;
    struct algorithms list;
    struct algorithm_needs needs;
    TRY_OUT(read_list(settings, &list));
    for (int i = 0; i < list.count; i++) {
        const struct algorithm *a = &list.list[i];
        if (a->ops->check != NULL)
            TRY_OUT(named(a, a->ops->check(a->settings, settings)));
    }
    TRY_OUT(algorithm_needs(settings, &needs));
    double preset =
        strtod(train_settings_setting("train.clip_norm")->preset, NULL);
    if (needs.clips && settings->train.clip_norm > 0.0 &&
        settings->train.clip_norm != preset)
        rc = err_set(ERR_USAGE, "train.clip_norm and the algorithm "
                                "gradient_clipping both clip: leave one of "
                                "them out");
out:
    algorithms_destroy(&list);
    return rc;
}

enum err algorithm_needs(const struct train_settings *settings,
                         struct algorithm_needs *out)
{
    enum err rc = ERR_OK;
    struct algorithms list;
    *out = (struct algorithm_needs){ 0 };
    TRY_OUT(read_list(settings, &list));
    for (int i = 0; i < list.count; i++) {
        const struct algorithm *a = &list.list[i];
        if (a->ops->needs != NULL)
            TRY_OUT(named(a, a->ops->needs(a->settings, out)));
    }
out:
    algorithms_destroy(&list);
    return rc;
}

size_t algorithm_norms_bytes(const struct params *params)
{
    /* the fragments' sums, and of weights and gradient the units' */
    return 3 * norms_bytes(params, true);
}

enum err algorithms_create(struct trainer *trainer)
{
    struct algorithms *algorithms = &trainer->algorithms;
    TRY(read_list(&trainer->settings, algorithms));
    for (int i = 0; i < algorithms->count; i++) {
        struct algorithm *a = &algorithms->list[i];
        if (a->ops->bytes > 0)
            a->self = calloc(1, a->ops->bytes);
        if (a->ops->bytes > 0 && a->self == NULL)
            return err_set(ERR_MEMORY, "out of memory");
        if (a->ops->create != NULL)
            TRY(named(a, a->ops->create(a->self, a->settings, trainer)));
    }
    return ERR_OK;
}

enum err algorithms_begin(const struct algorithms *algorithms)
{
    for (int i = 0; i < algorithms->count; i++) {
        const struct algorithm *a = &algorithms->list[i];
        if (a->ops->begin != NULL)
            TRY(named(a, a->ops->begin(a->self)));
    }
    return ERR_OK;
}

void algorithms_destroy(struct algorithms *algorithms)
{
    while (algorithms->count > 0) {
        struct algorithm *a = &algorithms->list[--algorithms->count];
        if (a->self != NULL && a->ops->destroy != NULL)
            a->ops->destroy(a->self);
        free(a->self);
        free(a->settings);
        *a = (struct algorithm){ 0 };
    }
}

/* --- the calls --- */

enum err algorithms_before_batch(struct algorithms *algorithms,
                                 struct algorithm_step *step)
{
    for (int i = 0; i < algorithms->count; i++) {
        struct algorithm *a = &algorithms->list[i];
        if (a->ops->before_batch != NULL)
            TRY(named(a, a->ops->before_batch(a->self, step)));
    }
    return ERR_OK;
}

enum err algorithms_after_gradient(struct algorithms *algorithms,
                                   struct algorithm_step *step)
{
    for (int i = 0; i < algorithms->count; i++) {
        struct algorithm *a = &algorithms->list[i];
        if (a->ops->after_gradient != NULL)
            TRY(named(a, a->ops->after_gradient(a->self, step)));
    }
    return ERR_OK;
}

enum err algorithms_after_again(struct algorithms *algorithms)
{
    for (int i = algorithms->count - 1; i >= 0; i--) {
        struct algorithm *a = &algorithms->list[i];
        if (a->ops->after_again != NULL)
            TRY(named(a, a->ops->after_again(a->self)));
    }
    return ERR_OK;
}

enum err algorithms_change_gradient(struct algorithms *algorithms,
                                    struct algorithm_step *step)
{
    for (int i = 0; i < algorithms->count; i++) {
        struct algorithm *a = &algorithms->list[i];
        if (a->ops->change_gradient != NULL)
            TRY(named(a, a->ops->change_gradient(a->self, step)));
    }
    return ERR_OK;
}

enum err algorithms_after_update(struct algorithms *algorithms)
{
    for (int i = 0; i < algorithms->count; i++) {
        struct algorithm *a = &algorithms->list[i];
        if (a->ops->after_update != NULL)
            TRY(named(a, a->ops->after_update(a->self)));
    }
    return ERR_OK;
}

enum err algorithms_swap(const struct trainer *trainer)
{
    const struct algorithms *algorithms = &trainer->algorithms;
    if (!trainer->settings.needs.swaps)
        return ERR_OK;
    /* ranks of a node may have the weights in common */
    TRY(comm_barrier(trainer->comm));
    for (int i = 0; i < algorithms->count; i++) {
        const struct algorithm *a = &algorithms->list[i];
        if (a->ops->swap == NULL)
            continue;
        /* a checkpoint may still be copying the weights */
        TRY(trainer->kernels->memory->event_await(trainer->copied,
                                                  trainer->stream));
        TRY(named(a, a->ops->swap(a->self)));
    }
    return ERR_OK;
}

/* --- for algorithms --- */

enum err algorithm_keep(struct algorithm_needs *needs, const char *name,
                        bool saved)
{
    for (int i = 0; i < REPLICA_KEPT; i++)
        if (needs->kept[i].name == NULL) {
            needs->kept[i] = (struct replica_kept){ name, saved };
            return ERR_OK;
        }
    return err_set(ERR_USAGE,
                   "more than %d algorithms keep tensors: leave one out",
                   REPLICA_KEPT);
}

int algorithm_kept(const struct trainer *trainer, const char *name)
{
    const struct algorithm_needs *needs = &trainer->settings.needs;
    int index = 0;
    while (strcmp(needs->kept[index].name, name) != 0)
        index++;
    return index;
}

enum err algorithm_steps(struct trainer *trainer, const void *self,
                         const char *key, struct duration duration,
                         int64_t *steps)
{
    struct algorithm *a = trainer->algorithms.list;
    TRY(trainer_steps(trainer, key, duration, steps));
    while (a->self != self)
        a++;
    assert(a->time_count < ALGORITHM_TIMES);
    a->times[a->time_count++] = (struct algorithm_time){ key, duration, steps };
    return ERR_OK;
}

enum err algorithm_norm(const struct trainer *trainer,
                        struct algorithm_step *step)
{
    if (!step->stale)
        return ERR_OK;
    TRY(replica_gradient_norm(trainer->replica, &step->norm));
    step->norm *= step->scale;
    step->stale = false;
    return ERR_OK;
}

struct average {
    struct trainer *trainer;
    int kept;
    float keep;
};

/* weights + keep * (kept - weights): two additions of the op table. */
static enum err average_piece(void *arg, const struct replica_piece *piece)
{
    const struct average *average = arg;
    const struct trainer *trainer = average->trainer;
    const struct kernels *kernels = trainer->kernels;
    float *mean = piece->kept[average->kept];
    TRY(kernels->add(&trainer->ctx, DTYPE_F32, piece->elements, mean, -1.0f,
                     piece->weights, mean));
    return kernels->add(&trainer->ctx, DTYPE_F32, piece->elements,
                        piece->weights, average->keep, mean, mean);
}

enum err algorithm_average(struct trainer *trainer, int kept, double keep)
{
    struct average average = { trainer, kept, (float)keep };
    return replica_visit(trainer->replica, average_piece, &average);
}
