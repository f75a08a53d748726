/* Compares arithmetic, data sets and settings between the ranks before
 * training. start_fixed.c compares them with an earlier attempt.
 *
 * A row of short texts and a checksum of each setting says what differs, and not only
 * that something does. Each rank compares its own with rank 0's. */
#include "src/train/start/run_data.h"
#include "src/train/start/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/train/extend/plugin_host.h"

struct facts {
    char arithmetic[256];
    char train_id[72];
    char eval_id[72];
    char plugins[72];
    uint32_t settings[]; /* CRC32C of each one's text; 0: may differ */
};

static enum err collect(const struct run *run, struct facts *facts)
{
    char *text = NULL;
    snprintf(facts->arithmetic, sizeof facts->arithmetic, "%s",
             run->engine.arithmetic);
    snprintf(facts->train_id, sizeof facts->train_id, "%s",
             run->inputs.train_id);
    if (run->inputs.eval_sets != NULL)
        snprintf(facts->eval_id, sizeof facts->eval_id, "%s",
                 run->inputs.eval_sets->id);
    TRY(plugin_file_all(&run->settings, facts->plugins));
    for (int i = 0; i < train_settings_count; i++) {
        const char *key = train_settings_schema[i].key;
        if ((train_settings_schema[i].flags & SETTING_LOCAL) != 0)
            continue;
        TRY(train_settings_print(&run->settings, key, &text));
        facts->settings[i] = crc32c(0, text, strlen(text));
        free(text);
        text = NULL;
    }
    return ERR_OK;
}

static enum err differs(const struct run *run, const char *what)
{
    return err_set(ERR_USAGE,
                   "another %s than rank 0 (%s) has: give all ranks the same "
                   "configuration and data",
                   what, comm_host(run->comm, 0));
}

static enum err compare(const struct run *run, const struct facts *first,
                        const struct facts *own)
{
    if (strcmp(first->arithmetic, own->arithmetic) != 0)
        return err_set(ERR_UNSUPPORTED,
                       "computes with %s, and rank 0 (%s) with %s: give both "
                       "the same version, GPUs and libraries, or set "
                       "hardware.backend to what both have (cpu)",
                       own->arithmetic, comm_host(run->comm, 0),
                       first->arithmetic);
    for (int i = 0; i < train_settings_count; i++)
        if (first->settings[i] != own->settings[i])
            return differs(run, train_settings_schema[i].key);
    if (strcmp(first->train_id, own->train_id) != 0)
        return differs(run, "data set in data.train");
    if (strcmp(first->eval_id, own->eval_id) != 0)
        return differs(run, "data set in data.eval or eval.sets");
    if (strcmp(first->plugins, own->plugins) != 0)
        return differs(run, "file, or list of files, of plug-ins");
    return ERR_OK;
}

enum err start_same(struct run *run)
{
    enum err rc = ERR_OK;
    size_t width =
        sizeof(struct facts) + (size_t)train_settings_count * sizeof(uint32_t);
    struct facts *own = calloc(1, width), *first = calloc(1, width);
    if (own == NULL || first == NULL)
        rc = err_set(ERR_MEMORY, "out of memory");
    else
        rc = collect(run, own);
    TRY_OUT(comm_agree(run->comm, rc));
    memcpy(first, own, width);
    TRY_OUT(comm_broadcast(run->comm, first, width, 0));
    rc = comm_agree(run->comm, compare(run, first, own));
out:
    free(first);
    free(own);
    return rc;
}
