/* Compares arithmetic, data sets and settings between the ranks before
 * training. start_fixed.c compares them with an earlier attempt.
 *
 * Each rank brings a row of short texts and a checksum of each setting, so that
 * what differs can be named and not only that something does. All ranks compare
 * all rows with rank 0's and come to the same error. */
#include "src/train/start/start.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/data/set/dataset.h"
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
    if (run->inputs.eval_data != NULL)
        snprintf(facts->eval_id, sizeof facts->eval_id, "%s",
                 dataset_id(run->inputs.eval_data));
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

static enum err differs(const struct run *run, int rank, const char *what)
{
    return err_set(ERR_USAGE,
                   "rank %d (%s) has another %s than rank 0 (%s): give all "
                   "ranks the same configuration and data",
                   rank, comm_host(run->comm, rank), what,
                   comm_host(run->comm, 0));
}

static enum err compare(const struct run *run, int rank,
                        const struct facts *first, const struct facts *other)
{
    assert(rank > 0 && rank < run->ranks);
    if (strcmp(first->arithmetic, other->arithmetic) != 0)
        return err_set(ERR_UNSUPPORTED,
                       "%s computes with %s, %s with %s: give both the same "
                       "version, GPUs and libraries, or set hardware.backend "
                       "to what both have (cpu)",
                       comm_host(run->comm, 0), first->arithmetic,
                       comm_host(run->comm, rank), other->arithmetic);
    for (int i = 0; i < train_settings_count; i++)
        if (first->settings[i] != other->settings[i])
            return differs(run, rank, train_settings_schema[i].key);
    if (strcmp(first->train_id, other->train_id) != 0)
        return differs(run, rank, "data set in data.train");
    if (strcmp(first->eval_id, other->eval_id) != 0)
        return differs(run, rank, "data set in data.eval");
    if (strcmp(first->plugins, other->plugins) != 0)
        return differs(run, rank, "file, or list of files, of plug-ins");
    return ERR_OK;
}

static struct facts *facts_at(char *all, size_t width, int rank)
{
    return (struct facts *)(void *)(all + (size_t)rank * width);
}

enum err start_same(struct run *run)
{
    enum err rc = ERR_OK;
    size_t width =
        sizeof(struct facts) + (size_t)train_settings_count * sizeof(uint32_t);
    char *all = calloc((size_t)run->ranks, width);
    if (all == NULL)
        rc = err_set(ERR_MEMORY, "out of memory");
    else
        rc = collect(run, facts_at(all, width, run->rank));
    TRY_OUT(comm_agree(run->comm, rc));
    TRY_OUT(comm_gather_rows(run->comm, all, width));
    for (int r = 1; r < run->ranks && rc == ERR_OK; r++)
        rc = compare(run, r, facts_at(all, width, 0), facts_at(all, width, r));
out:
    free(all);
    return rc;
}
