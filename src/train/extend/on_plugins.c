/* Listener: plug-ins (tessera_plugin.h), which hear of the run's events through
 * it, in their order.
 *
 * The ledger's event "plugins" has each one's name, version, path and SHA-256.
 * A checkpoint's state has "plugins": [{name, sha256, state: {LISTENER: text}}];
 * a run that goes on with another file of a name warns, and so does one that
 * lacks a plug-in whose state there is.
 *
 * Plug-ins are one listener of the table, whatever their number, so that a list
 * of them has one place among the others' rows. Its own listeners follow each
 * other in the order of the list, then of each plug-in's. One that wants rank 0
 * alone is never made elsewhere; what fails on one rank is held back as any
 * listener's failure, until the ranks' exchange. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/job/ledger.h"
#include "src/train/extend/plugin_host.h"
#include "src/train/run/run.h"

#define KEY "plugins"

struct plugin;

struct plugin_listening {
    const struct tessera_listener *ops; /* the plug-in's */
    void *self;                         /* its */
    bool created;
};

/* One of the run's, and what it is told of the run. */
struct plugin {
    struct plugin_host of_run;
    const struct tessera_plugin *own;
    char sha256[65];
    struct plugin_settings settings;
    struct plugin_listening *listening;
    int count;
};

struct on_plugins {
    struct plugin *list; /* lent to their hosts: never moved */
    int count;
};

/* What an event is called outside: numbers that stay, whatever is put between
 * ours. */
#define NUMBER(NAME, ...) [EVENT_##NAME] = TESSERA_##NAME,
static const int32_t event_number[EVENT_COUNT] = { EVENTS(NUMBER) };

/* Whom a plug-in asks, and who it is. */
struct plugin_asks {
    struct asks *asks;
    const struct plugin *plugin;
    const char *listener;
};

static void ask(void *arg, int32_t what, int64_t value)
{
    const struct plugin_asks *by = arg;
    static const enum ask of[] = {
        [TESSERA_ASK_FINISH] = ASK_FINISH,     [TESSERA_ASK_SAVE] = ASK_SAVE,
        [TESSERA_ASK_EVALUATE] = ASK_EVALUATE, [TESSERA_ASK_TASKS] = ASK_TASKS,
        [TESSERA_ASK_GENERATE] = ASK_GENERATE,
    };
    if (what < 0 || what >= (int32_t)(sizeof of / sizeof of[0]) || value <= 0)
        return;
    if (of[what] == ASK_FINISH)
        events_ask_finish(by->asks, "plug-in %.96s (%.96s) asked for the end",
                          by->plugin->own->name, by->listener);
    else
        events_ask(by->asks, of[what], value);
}

static struct tessera_step step_of(const struct step_record *record)
{
    return (struct tessera_step){
        .bytes = sizeof(struct tessera_step),
        .step = record->step,
        .max_steps = record->max_steps,
        .samples = record->samples,
        .tokens = record->tokens,
        .elapsed_s = record->elapsed_s,
        .loss = record->loss,
        .balance_loss = record->balance_loss,
        .grad_norm = record->grad_norm,
        .lr = record->lr,
        .loss_tokens = record->loss_tokens,
        .skipped = record->skipped,
        .step_s = record->step_s,
        .loader_s = record->loader_s,
        .tokens_per_s = record->tokens_per_s,
        .mfu = record->mfu,
        .eval_step = record->eval.step,
        .eval_loss = record->eval.loss,
    };
}

static enum err judge(struct plugin *plugin, const struct tessera_listener *ops,
                      const char *what, int result)
{
    return plugin_host_judge(&plugin->of_run, ops->name, what, result);
}

static enum err listen(struct plugin *plugin,
                       const struct tessera_listener *ops)
{
    struct plugin_listening *next = &plugin->listening[plugin->count];
    if (ops->bytes < sizeof *ops || !plugin_host_is_name(ops->name) ||
        ops->handle == NULL)
        return err_set(ERR_USAGE,
                       "plugins: %s: a listener needs its size in `bytes`, a "
                       "name of letters, digits and _, and handle()",
                       plugin->settings.path);
    if (ops->every_rank == 0 && plugin->of_run.host.rank != 0)
        return ERR_OK;
    next->ops = ops;
    plugin->count++;
    if (ops->create != NULL)
        TRY(judge(plugin, ops, "create",
                  ops->create(&plugin->of_run.host, plugin->settings.options,
                              &next->self)));
    next->created = true;
    return ERR_OK;
}

static enum err start(struct plugin *plugin, const struct run *run)
{
    int count = 0;
    assert(plugin->own == NULL && plugin->count == 0);
    TRY(plugin_file_open(plugin->settings.path, plugin->sha256, &plugin->own));
    plugin_host_make(run, plugin->own->name, &plugin->of_run);
    while (plugin->own->listeners != NULL &&
           plugin->own->listeners[count] != NULL)
        count++;
    TRY(new_zeroed(&plugin->listening, (size_t)count + 1));
    for (int i = 0; i < count; i++)
        TRY(listen(plugin, plugin->own->listeners[i]));
    return ERR_OK;
}

/* The first of this name; NULL: none. */
static struct plugin *find(struct on_plugins *on, const char *name)
{
    for (int i = 0; i < on->count && name != NULL; i++)
        if (on->list[i].own != NULL && strcmp(on->list[i].own->name, name) == 0)
            return &on->list[i];
    return NULL;
}

/* Which ones a run has had is in the ledger. */
static enum err record(const struct on_plugins *on, const struct run *run)
{
    json_t *list = json_array();
    assert(run->rank == 0); /* the ledger is rank 0's */
    for (int i = 0; i < on->count && list != NULL; i++) {
        const struct plugin *plugin = &on->list[i];
        const char *version = plugin->own->version;
        json_array_append_new(
            list,
            json_pack("{s:o, s:o, s:o, s:o, s:s}", "name",
                      jsontext_string(plugin->own->name), "version",
                      jsontext_string(version != NULL ? version : ""), "path",
                      jsontext_string(plugin->settings.path), "options",
                      jsontext_string(plugin->settings.options), "sha256",
                      plugin->sha256));
    }
    return ledger_append(run->settings.run.dir, "plugins", run->attempt,
                         json_pack("{s:o}", "plugins", list));
}

static enum err on_plugins_create(void *self, const struct run *run)
{
    struct on_plugins *on = self;
    const struct setting *setting = train_settings_setting(KEY);
    const char *list = run->settings.alone.plugins;
    int count = 0, kind = 0;
    TRY(settings_list_count(setting, list, &count));
    if (count == 0)
        return ERR_OK;
    TRY(new_zeroed(&on->list, (size_t)count));
    for (int i = 0; i < count; i++) {
        struct plugin *plugin = &on->list[i];
        TRY(settings_list_item(setting, list, i, &kind, &plugin->settings));
        on->count = i + 1;
        TRY(start(plugin, run));
        const struct plugin *other = find(on, plugin->own->name);
        if (other != plugin)
            return err_set(ERR_USAGE,
                           "plugins: %s and %s are both named %s: leave one "
                           "out",
                           other->settings.path, plugin->settings.path,
                           plugin->own->name);
        log_info("plug-in %s %s: %s", plugin->own->name,
                 plugin->own->version != NULL ? plugin->own->version : "",
                 plugin->own->about != NULL ? plugin->own->about : "");
    }
    return run->rank == 0 ? record(on, run) : ERR_OK;
}

static void on_plugins_destroy(void *self)
{
    struct on_plugins *on = self;
    for (int i = on->count - 1; i >= 0; i--) {
        struct plugin *plugin = &on->list[i];
        for (int l = plugin->count - 1; l >= 0; l--) {
            const struct plugin_listening *listening = &plugin->listening[l];
            if (listening->created && listening->ops->destroy != NULL)
                listening->ops->destroy(listening->self);
        }
        free(plugin->listening);
    }
    free(on->list);
}

static enum err on_plugins_handle(void *self, enum event event,
                                  const struct step_record *record,
                                  struct asks *asks)
{
    struct on_plugins *on = self;
    assert((int)event >= 0 && event < EVENT_COUNT);
    assert(record->step >= 0 && record->attempt > 0);
    uint64_t bit = TESSERA_EVENT_BIT(event_number[event]);
    struct tessera_step step = step_of(record);
    for (int i = 0; i < on->count; i++) {
        struct plugin *plugin = &on->list[i];
        for (int l = 0; l < plugin->count; l++) {
            const struct plugin_listening *listening = &plugin->listening[l];
            if ((listening->ops->events & bit) == 0)
                continue;
            struct plugin_asks by = { asks, plugin, listening->ops->name };
            int result = listening->ops->handle(
                listening->self, event_number[event], &step, ask, &by);
            TRY(judge(plugin, listening->ops, events_name(event), result));
        }
    }
    return ERR_OK;
}

/* Those of one plug-in: {LISTENER: text}. */
static enum err store_listeners(struct plugin *plugin, json_t *state)
{
    for (int l = 0; l < plugin->count; l++) {
        const struct plugin_listening *listening = &plugin->listening[l];
        char *text = NULL;
        if (listening->ops->store == NULL)
            continue;
        int result = listening->ops->store(listening->self, &text);
        TRY(plugin_host_store(&plugin->of_run, listening->ops->name, result,
                              text, state));
    }
    return ERR_OK;
}

static enum err on_plugins_store(const void *self, json_t *state)
{
    const struct on_plugins *on = self;
    if (on->count == 0)
        return ERR_OK;
    json_t *list = json_array();
    json_object_set_new(state, KEY, list);
    for (int i = 0; i < on->count && list != NULL; i++) {
        struct plugin *plugin = &on->list[i];
        json_t *own = json_object();
        json_array_append_new(
            list, json_pack("{s:o, s:s, s:o}", "name",
                            jsontext_string(plugin->own->name), "sha256",
                            plugin->sha256, "state", own));
        if (own == NULL)
            return err_set(ERR_MEMORY, "out of memory");
        TRY(store_listeners(plugin, own));
    }
    return list != NULL ? ERR_OK : err_set(ERR_MEMORY, "out of memory");
}

static enum err restore_one(struct plugin *plugin, const json_t *then)
{
    const char *sha256 = json_string_value(json_object_get(then, "sha256"));
    if (sha256 != NULL && strcmp(sha256, plugin->sha256) != 0 &&
        plugin->of_run.host.rank == 0)
        log_warn("plug-in %s is another file than the one of the checkpoint: "
                 "%s",
                 plugin->own->name, plugin->settings.path);
    const json_t *state = json_object_get(then, "state");
    for (int l = 0; l < plugin->count; l++) {
        const struct plugin_listening *listening = &plugin->listening[l];
        const char *text =
            json_string_value(json_object_get(state, listening->ops->name));
        if (text == NULL || listening->ops->restore == NULL)
            continue;
        TRY(judge(plugin, listening->ops, "restore",
                  listening->ops->restore(listening->self, text)));
    }
    return ERR_OK;
}

static enum err on_plugins_restore(void *self, const json_t *state)
{
    struct on_plugins *on = self;
    size_t index;
    json_t *then;
    json_array_foreach(json_object_get(state, KEY), index, then)
    {
        const char *name = json_string_value(json_object_get(then, "name"));
        struct plugin *plugin = find(on, name);
        if (plugin != NULL)
            TRY(restore_one(plugin, then));
        else
            log_warn("the checkpoint has the state of plug-in %s, which is not "
                     "loaded: it is dropped",
                     name != NULL ? name : "?");
    }
    return ERR_OK;
}

const struct listener_ops on_plugins_ops = {
    LISTENER_OF(struct on_plugins), .create = on_plugins_create,
    .destroy = on_plugins_destroy,  .handle = on_plugins_handle,
    .store = on_plugins_store,      .restore = on_plugins_restore
};
