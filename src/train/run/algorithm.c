/* Makes the algorithms of a run from their settings, and calls them. What each
 * does is in its own file.
 *
 * The list is read three times, as it is needed at three moments: settings are
 * judged (algorithm_check), what the list asks of model and replica must be known
 * before these are made (algorithm_needs), and the algorithms themselves need
 * both to be there (algorithms_create). Then they are called in the order of the
 * list, but for the way back from a second gradient (after_again), which undoes
 * what was done last first. An algorithm that has not got a call is passed over,
 * so a run pays for nothing that it did not ask for. */
#include "src/train/run/algorithm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/train/settings/train_settings.h"

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
    TRY(new_memory(&out->settings, 1, table[kind].settings_bytes, true,
                   "settings of an algorithm"));
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

enum err algorithm_check(const struct train_settings *settings)
{
    enum err rc = ERR_OK;
    struct algorithms list;
    struct algorithm_needs needs;
    TRY_OUT(read_list(settings, &list));
    for (int i = 0; i < list.count; i++) {
        const struct algorithm *a = &list.list[i];
        if (a->ops->check != NULL)
            TRY_OUT(algorithm_named(a, a->ops->check(a->settings, settings)));
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
            TRY_OUT(algorithm_named(a, a->ops->needs(a->settings, out)));
    }
out:
    algorithms_destroy(&list);
    return rc;
}

enum err algorithms_create(struct algorithms *algorithms,
                           const struct train_settings *settings,
                           struct run *run)
{
    assert(algorithms->count == 0);
    TRY(read_list(settings, algorithms));
    for (int i = 0; i < algorithms->count; i++) {
        struct algorithm *a = &algorithms->list[i];
        if (a->ops->bytes > 0)
            TRY(new_memory(&a->self, 1, a->ops->bytes, true, a->name));
        if (a->ops->create != NULL)
            TRY(algorithm_named(a, a->ops->create(a->self, a->settings, run)));
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

/* One of each that has it, in order. */
#define CALL(call, ...)                                                        \
    for (int i = 0; i < algorithms->count; i++) {                              \
        const struct algorithm *a = &algorithms->list[i];                      \
        if (a->ops->call != NULL)                                              \
            TRY(algorithm_named(a, a->ops->call(__VA_ARGS__)));                \
    }                                                                          \
    return ERR_OK

enum err algorithms_begin(const struct algorithms *algorithms)
{
    CALL(begin, a->self);
}

enum err algorithms_before_batch(const struct algorithms *algorithms,
                                 struct algorithm_step *step)
{
    CALL(before_batch, a->self, step);
}

enum err algorithms_after_gradient(const struct algorithms *algorithms,
                                   struct algorithm_step *step)
{
    CALL(after_gradient, a->self, step);
}

enum err algorithms_after_again(const struct algorithms *algorithms)
{
    for (int i = algorithms->count - 1; i >= 0; i--) {
        const struct algorithm *a = &algorithms->list[i];
        if (a->ops->after_again != NULL)
            TRY(algorithm_named(a, a->ops->after_again(a->self)));
    }
    return ERR_OK;
}

enum err algorithms_change_gradient(const struct algorithms *algorithms,
                                    struct algorithm_step *step)
{
    CALL(change_gradient, a->self, step);
}

enum err algorithms_after_update(const struct algorithms *algorithms)
{
    CALL(after_update, a->self);
}

enum err algorithms_swap(const struct algorithms *algorithms)
{
    CALL(swap, a->self);
}

/* --- for algorithms --- */

enum err algorithm_named(const struct algorithm *algorithm, enum err rc)
{
    return err_prefix(rc, "algorithms: %s", algorithm->name);
}

enum err algorithm_keep(struct algorithm_needs *needs, const char *name,
                        bool mean)
{
    if (mean && needs->swaps)
        return err_set(ERR_USAGE, "another algorithm has weights for "
                                  "evaluations: leave one of them out");
    needs->swaps = needs->swaps || mean;
    for (int i = 0; i < REPLICA_KEPT; i++)
        if (needs->kept[i].name == NULL) {
            needs->kept[i] = (struct replica_kept){ name, mean };
            return ERR_OK;
        }
    return err_set(ERR_USAGE,
                   "more than %d algorithms keep tensors: leave one out",
                   REPLICA_KEPT);
}

int algorithm_kept(const struct algorithm_needs *needs, const char *name)
{
    int index = 0;
    while (strcmp(needs->kept[index].name, name) != 0) {
        index++;
        assert(index < REPLICA_KEPT && needs->kept[index].name != NULL);
    }
    return index;
}

/* Where several need the norm only the first one sums, unless the gradient has
 * changed between them. */
enum err algorithm_norm(struct replica *replica, struct algorithm_step *step)
{
    if (!step->stale)
        return ERR_OK;
    TRY(replica_gradient_norm(replica, &step->norm));
    step->norm *= step->scale;
    step->stale = false;
    return ERR_OK;
}
