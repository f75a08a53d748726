/* The functions that a plug-in may call, and how its failures become ours.
 *
 * A plug-in sees struct tessera_host alone, in plain C and with `bytes` in front,
 * so that it can be older or newer than the program. Ours is the struct around
 * it, found again from the pointer that comes back. A plug-in's function gives an
 * int and no text; the reason is what it told by fail() before, which is used
 * once, so that an old one is never told of a later failure. */
#include "src/train/extend/plugin_host.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/tracking/tracking_record.h"
#include "src/train/run/run.h"

static const struct plugin_host *of(const struct tessera_host *host)
{
    return (const struct plugin_host *)(const void *)host;
}

static void tell_info(const struct tessera_host *host, const char *text)
{
    const struct plugin_host *own = of(host);
    log_info("plug-in %s: %s", own->name, text);
}

static void tell_warn(const struct tessera_host *host, const char *text)
{
    const struct plugin_host *own = of(host);
    log_warn("plug-in %s: %s", own->name, text);
}

static void tell_failure(const struct tessera_host *host, const char *text)
{
    struct plugin_host *own =
        (struct plugin_host *)(uintptr_t)(const void *)host;
    snprintf(own->failure, sizeof own->failure, "%s", text);
}

static void tell_scalar(const struct tessera_host *host, const char *name,
                        double value)
{
    const struct plugin_host *own = of(host);
    tracking_list_add(own->scalars, name, value);
}

void plugin_host_make(const struct run *run, const char *name,
                      struct plugin_host *out)
{
    assert(run->rank >= 0 && run->rank < run->ranks && run->attempt > 0);
    *out = (struct plugin_host){
        .host = { .bytes = sizeof out->host,
                  .rank = run->rank,
                  .ranks = run->ranks,
                  .attempt = run->attempt,
                  .run_dir = run->settings.run.dir,
                  .info = tell_info,
                  .warn = tell_warn,
                  .fail = tell_failure,
                  .scalar = tell_scalar },
        .name = name,
        .scalars = run->now.record.scalars,
    };
}

enum err plugin_host_judge(struct plugin_host *host, const char *part,
                           const char *what, int result)
{
    if (result == 0)
        return ERR_OK;
    enum err rc = err_set(
        ERR_UNSUPPORTED, "plug-in %s: %s: %s failed: %s", host->name, part,
        what, host->failure[0] != '\0' ? host->failure : "it does not say why");
    host->failure[0] = '\0';
    return rc;
}

enum err plugin_host_store(struct plugin_host *host, const char *part,
                           int result, char *text, json_t *state)
{
    enum err rc = plugin_host_judge(host, part, "store", result);
    assert(json_is_object(state));
    if (rc == ERR_OK && text != NULL &&
        json_object_set_new(state, part, json_string(text)) != 0)
        rc = err_set(ERR_UNSUPPORTED,
                     "plug-in %s: %s: store gives a text that is no UTF-8",
                     host->name, part);
    free(text);
    return rc;
}

bool plugin_host_is_name(const char *name)
{
    for (const char *p = name; p != NULL && *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && *p != '_')
            return false;
    return name != NULL && name[0] != '\0' && strlen(name) < 64;
}
