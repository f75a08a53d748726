/* The algorithms of a plug-in (tessera_plugin.h): each gets this rank's partitions
 * tensor by tensor. All ranks agree after its calls, for it may fail on one.
 *
 * A partition of the replica is cut where ranks and strategy cut the flat space of
 * parameters; the plug-in gets the part of it that lies in each tensor, with the
 * place of its first element there. What it does to an element may depend on
 * value, tensor and place, so its bits are the same however the space was cut.
 * That all ranks have loaded the same file is compared at the start
 * (start_same.c).
 *
 * Its part of the state: "sha256", of the file, and "state", {ALGORITHM: text}. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/base/new.h"
#include "src/train/extend/plugin_host.h"
#include "src/train/run/run.h"

struct member {
    const struct tessera_algorithm *ops; /* the plug-in's, as the next */
    void *self;
    bool created;
};

struct plugin_algorithms {
    struct run *run;
    struct plugin_host host;
    char sha256[65];
    struct member *list;
    int count;
};

static enum err add_member(struct plugin_algorithms *plugin,
                           const struct algorithm_plugin *settings,
                           const struct tessera_algorithm *ops)
{
    struct member *member = &plugin->list[plugin->count];
    if (ops->bytes < sizeof *ops || !plugin_host_is_name(ops->name))
        return err_set(ERR_USAGE,
                       "%s: an algorithm needs its size in `bytes` and a name "
                       "of letters, digits and _",
                       settings->path);
    member->ops = ops;
    plugin->count++;
    if (ops->create != NULL)
        TRY(plugin_host_judge(
            &plugin->host, ops->name, "create",
            ops->create(&plugin->host.host, settings->options, &member->self)));
    member->created = true;
    return ERR_OK;
}

static enum err plugin_create(void *self, const void *settings, struct run *run)
{
    struct plugin_algorithms *plugin = self;
    const struct algorithm_plugin *s = settings;
    const struct tessera_plugin *own = NULL;
    const struct tessera_algorithm *const *list;
    size_t count = 0;
    plugin->run = run;
    if (run->engine.kernels->memory->device)
        return err_set(ERR_USAGE, "it computes on the processor only: use "
                                  "hardware.backend = cpu, or leave it out");
    TRY(plugin_file_open(s->path, plugin->sha256, &own));
    list = plugin_file_algorithms(own);
    while (list != NULL && list[count] != NULL)
        count++;
    if (count == 0)
        return err_set(ERR_USAGE,
                       "%s has no algorithms: if it listens, name it in "
                       "`plugins`",
                       s->path);
    plugin_host_make(run, own->name, &plugin->host);
    TRY(new_zeroed(&plugin->list, count));
    for (size_t i = 0; i < count; i++)
        TRY(add_member(plugin, s, list[i]));
    return ERR_OK;
}

static void plugin_destroy(void *self)
{
    struct plugin_algorithms *plugin = self;
    for (int i = plugin->count - 1; i >= 0; i--)
        if (plugin->list[i].created && plugin->list[i].ops->destroy != NULL)
            plugin->list[i].ops->destroy(plugin->list[i].self);
    free(plugin->list);
}

static struct tessera_batch batch_of(const struct plugin_algorithms *plugin,
                                     double scale)
{
    return (struct tessera_batch){ .bytes = sizeof(struct tessera_batch),
                                   .step = plugin->run->position.step,
                                   .max_steps = plugin->run->plan.max_steps,
                                   .scale = scale };
}

/* --- its calls --- */

typedef int (*span_call)(void *self, const struct tessera_batch *batch,
                         const struct tessera_span *span);

struct visit {
    struct plugin_algorithms *plugin;
    struct member *member;
    span_call call;
    const char *what;
    bool gradient;
    struct tessera_batch batch;
};

static enum err visit_partition(void *arg,
                                const struct replica_partition *partition)
{
    struct visit *visit = arg;
    for (int p = 0; p < partition->params->count; p++) {
        const struct param *param = &partition->params->list[p];
        int64_t last = partition->begin + partition->elements;
        int64_t begin =
            param->offset > partition->begin ? param->offset : partition->begin;
        int64_t end = param->offset + param->numel;
        end = end < last ? end : last;
        if (begin >= end)
            continue;
        struct tessera_span span = {
            .bytes = sizeof span,
            .tensor = param->name,
            .dims = param->dims,
            .shape = { param->shape[0], param->dims > 1 ? param->shape[1] : 1 },
            .first = begin - param->offset,
            .elements = end - begin,
            .weights = partition->weights + (begin - partition->begin),
        };
        if (visit->gradient)
            span.gradient = partition->gradient + (begin - partition->begin);
        assert(!visit->gradient || span.gradient != NULL);
        int result = visit->call(visit->member->self, &visit->batch, &span);
        TRY(plugin_host_judge(&visit->plugin->host, visit->member->ops->name,
                              visit->what, result));
    }
    return ERR_OK;
}

enum moment { AFTER_GRADIENT, CHANGE_GRADIENT, AFTER_UPDATE };
static const char *const moment_names[] = { "after_gradient", "change_gradient",
                                            "after_update" };

/* Ranks agree in replica_visit(). A gradient is stale when a member has been
 * called. */
static enum err visit_all(struct plugin_algorithms *plugin, enum moment moment,
                          struct algorithm_step *step)
{
    assert((size_t)moment < sizeof moment_names / sizeof moment_names[0]);
    for (int i = 0; i < plugin->count; i++) {
        const struct tessera_algorithm *ops = plugin->list[i].ops;
        const span_call calls[] = { ops->after_gradient, ops->change_gradient,
                                    ops->after_update };
        struct visit visit = { .plugin = plugin,
                               .member = &plugin->list[i],
                               .call = calls[moment],
                               .what = moment_names[moment],
                               .gradient = moment != AFTER_UPDATE,
                               .batch = batch_of(plugin, step->scale) };
        if (visit.call == NULL)
            continue;
        step->stale = true;
        TRY(replica_visit(plugin->run->engine.replica, visit_partition,
                          &visit));
    }
    return ERR_OK;
}

static enum err plugin_before_batch(void *self, struct algorithm_step *step)
{
    struct plugin_algorithms *plugin = self;
    const struct tessera_batch batch = batch_of(plugin, 0.0);
    enum err rc = ERR_OK;
    (void)step;
    for (int i = 0; i < plugin->count && rc == ERR_OK; i++) {
        const struct member *member = &plugin->list[i];
        if (member->ops->before_batch != NULL)
            rc = plugin_host_judge(
                &plugin->host, member->ops->name, "before_batch",
                member->ops->before_batch(member->self, &batch));
    }
    return comm_agree(plugin->run->comm, rc);
}

static enum err plugin_after_gradient(void *self, struct algorithm_step *step)
{
    return visit_all(self, AFTER_GRADIENT, step);
}

static enum err plugin_change_gradient(void *self, struct algorithm_step *step)
{
    return visit_all(self, CHANGE_GRADIENT, step);
}

static enum err plugin_after_update(void *self)
{
    bool any = false;
    struct algorithm_step none = { .scale = 0.0 };
    struct plugin_algorithms *plugin = self;
    const struct run *run = plugin->run;
    for (int i = 0; i < plugin->count; i++)
        any |= plugin->list[i].ops->after_update != NULL;
    if (!any)
        return ERR_OK;
    /* ranks of a node may have the weights in common */
    TRY(comm_barrier(run->comm));
    TRY(visit_all(plugin, AFTER_UPDATE, &none));
    return replica_publish(run->engine.replica);
}

/* --- a checkpoint's state --- */

static enum err plugin_store(const void *self, json_t *state)
{
    const struct plugin_algorithms *plugin = self;
    struct plugin_host host = plugin->host;
    json_t *texts = json_object();
    TRY(run_put(state, "sha256", json_string(plugin->sha256)));
    TRY(run_put(state, "state", texts));
    for (int i = 0; i < plugin->count; i++) {
        const struct tessera_algorithm *ops = plugin->list[i].ops;
        char *text = NULL;
        if (ops->store == NULL)
            continue;
        int result = ops->store(plugin->list[i].self, &text);
        TRY(plugin_host_store(&host, ops->name, result, text, texts));
    }
    return ERR_OK;
}

static enum err plugin_restore(void *self, const json_t *state)
{
    struct plugin_algorithms *plugin = self;
    const json_t *texts = json_object_get(state, "state");
    const char *then = json_string_value(json_object_get(state, "sha256"));
    if (then != NULL && strcmp(then, plugin->sha256) != 0 &&
        plugin->run->rank == 0)
        log_warn("plug-in %s is another file than the one of the checkpoint",
                 plugin->host.name);
    for (int i = 0; i < plugin->count; i++) {
        const struct member *member = &plugin->list[i];
        const char *text =
            json_string_value(json_object_get(texts, member->ops->name));
        if (text != NULL && member->ops->restore != NULL)
            TRY(plugin_host_judge(&plugin->host, member->ops->name, "restore",
                                  member->ops->restore(member->self, text)));
    }
    return ERR_OK;
}

const struct algorithm_ops algorithm_plugin_ops = {
    ALGORITHM_OF(struct plugin_algorithms),
    .create = plugin_create,
    .destroy = plugin_destroy,
    .before_batch = plugin_before_batch,
    .after_gradient = plugin_after_gradient,
    .change_gradient = plugin_change_gradient,
    .after_update = plugin_after_update,
    .store = plugin_store,
    .restore = plugin_restore
};
