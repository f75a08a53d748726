/* tessera-ckpt show and digest: what a checkpoint holds. Without --stats show reads
 * the manifest alone, whatever the size of the checkpoint. With it
 * every tensor is put together from all shards and checked on the way;
 * statistics are of finite values, and counts tell of the others. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/tools/ckpt_tools.h"
#include "src/base/clean.h"
#include "src/base/jsontext.h"
#include "src/base/units.h"
#include "src/cmd/ckpt_cmd.h"

static json_t *tensor_json(const struct ckpt_tensor *tensor,
                           const struct ckpt_stats *stats)
{
    json_t *shape = json_array();
    assert(tensor->dims >= 0 && tensor->dims <= CKPT_DIMS_MAX);
    for (int d = 0; d < tensor->dims; d++)
        json_array_append_new(shape, json_integer(tensor->shape[d]));
    json_t *object = json_pack("{s:s, s:s, s:o}", "name", tensor->name, "dtype",
                               dtype_name(tensor->dtype), "shape", shape);
    if (stats == NULL)
        return object;
    json_t *numbers = json_pack(
        "{s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "elements",
        (json_int_t)stats->elements, "nan", (json_int_t)stats->nan, "inf",
        (json_int_t)stats->inf, "zero", (json_int_t)stats->zero, "min",
        jsontext_real(stats->min), "max", jsontext_real(stats->max), "mean",
        jsontext_real(stats->mean), "std", jsontext_real(stats->std), "l2",
        jsontext_real(stats->l2));
    jsontext_set(&object, "stats", numbers);
    return object;
}

static void print_tensor(const struct ckpt_tensor *tensor,
                         const struct ckpt_stats *stats)
{
    char form[128];
    ckpt_cmd_form(tensor, form, sizeof form);
    clean_printf("  %s %s\n", tensor->name, form);
    if (stats == NULL)
        return;
    if (isnan(stats->mean))
        printf("    no finite values");
    else
        printf("    min %.9g max %.9g mean %.9g std %.9g l2 %.9g", stats->min,
               stats->max, stats->mean, stats->std, stats->l2);
    printf(" nan %" PRId64 " inf %" PRId64 " zero %" PRId64 "\n", stats->nan,
           stats->inf, stats->zero);
}

/* Every tensor as text, or into the array. Text comes tensor by tensor, for
 * statistics of a large checkpoint take minutes. */
static enum err show_tensors(const struct ckpt_cmd *cmd,
                             const struct ckpt_manifest *manifest,
                             json_t *array)
{
    enum err rc = ERR_OK;
    struct ckpt_tensor_reader *reader = NULL;
    if (cmd->stats)
        TRY_OUT(ckpt_tensor_create(cmd->paths[0], manifest, &reader));
    for (int t = 0; t < manifest->tensor_count; t++) {
        const struct ckpt_tensor *tensor = &manifest->tensors[t];
        struct ckpt_stats stats;
        if (cmd->stats)
            TRY_OUT(ckpt_stats_tensor(reader, manifest, t, &stats));
        const struct ckpt_stats *given = cmd->stats ? &stats : NULL;
        if (array == NULL)
            print_tensor(tensor, given);
        else if (json_array_append_new(array, tensor_json(tensor, given)) != 0)
            TRY_OUT(err_set(ERR_MEMORY, "%s: out of memory", cmd->paths[0]));
    }
out:
    ckpt_tensor_destroy(reader);
    return rc;
}

/* A line for every number, text, true or false and list of those. Objects in it
 * are left out: they are the parts of the state, which only --json has whole. */
static enum err print_members(const char *title, json_t *object)
{
    const char *name;
    json_t *value;
    if (json_object_size(object) > 0)
        clean_printf("%s\n", title);
    json_object_foreach(object, name, value)
    {
        char *text = NULL;
        if (json_is_object(value))
            continue;
        TRY(jsontext_make(value, 0, &text));
        clean_printf("  %s %s\n", name, text);
        free(text);
    }
    return ERR_OK;
}

/* All in one document, which is printed when it is whole: what fails on the way
 * leaves no half of one. */
static enum err show_json(const struct ckpt_cmd *cmd,
                          const struct ckpt_manifest *manifest)
{
    json_t *tensors = json_array();
    enum err rc = show_tensors(cmd, manifest, tensors);
    if (rc != ERR_OK) {
        json_decref(tensors);
        return rc;
    }
    return ckpt_cmd_print(json_pack(
        "{s:o, s:I, s:i, s:i, s:I, s:b, s:O, s:o}", "path",
        ckpt_cmd_path(cmd->paths[0]), "step", (json_int_t)manifest->step,
        "ranks", manifest->ranks, "shards", manifest->shard_count, "bytes",
        (json_int_t)manifest->bytes, "pinned", ckpt_index_pinned(cmd->paths[0]),
        "state", manifest->state, "tensors", tensors));
}

enum err ckpt_cmd_show(struct ckpt_cmd *cmd)
{
    enum err rc = ERR_OK;
    struct ckpt_manifest *manifest = NULL;
    TRY_OUT(ckpt_manifest_read(cmd->paths[0], NULL, NULL, &manifest));
    TRY_OUT(ckpt_manifest_check_sizes(manifest, cmd->paths[0]));
    if (cmd->json) {
        rc = show_json(cmd, manifest);
        goto out;
    }
    clean_printf("step    %" PRId64 "\nranks   %d\nshards  %d\nsize    %s\n",
                 manifest->step, manifest->ranks, manifest->shard_count,
                 UNITS_BYTES(manifest->bytes));
    TRY_OUT(print_members("state", manifest->state));
    TRY_OUT(print_members("config", json_object_get(manifest->state, "fixed")));
    printf("tensors %d\n", manifest->tensor_count);
    TRY_OUT(show_tensors(cmd, manifest, NULL));
out:
    ckpt_manifest_destroy(manifest);
    return rc;
}

enum err ckpt_cmd_digest(struct ckpt_cmd *cmd)
{
    char hex[65];
    enum err rc = ckpt_digest(cmd->paths[0], hex);
    if (rc == ERR_OK && cmd->json)
        return ckpt_cmd_print(json_pack(
            "{s:o, s:s}", "path", ckpt_cmd_path(cmd->paths[0]), "digest", hex));
    if (rc == ERR_OK)
        puts(hex);
    return rc;
}
