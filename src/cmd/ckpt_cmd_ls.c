/* tessera-ckpt ls, pin and unpin: what checkpoints there are, and which must
 * stay. ls reads manifests and the sizes of files, no contents: it is quick for a
 * thousand of them and says "good" of one with a flipped bit, which verify finds. A
 * checkpoint that cannot be read is a line like any other. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/clean.h"
#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/base/units.h"
#include "src/cmd/ckpt_cmd.h"
#include "src/mirror/home.h"

/* When the checkpoint was written, by its manifest; -1: unknown, as of a copy. */
static double written_at(const char *checkpoint_dir)
{
    char path[FSIO_PATH_MAX];
    struct stat status;
    if (home_where(checkpoint_dir, path) == path ||
        fsio_path(path, "%s/%s", checkpoint_dir, CKPT_MANIFEST_FILE) !=
            ERR_OK ||
        stat(path, &status) != 0)
        return -1;
    return (double)status.st_mtim.tv_sec +
           1e-9 * (double)status.st_mtim.tv_nsec;
}

static json_t *info_json(const struct ckpt_info *info)
{
    double written = written_at(info->path);
    return json_pack("{s:I, s:i, s:I, s:s, s:b, s:o, s:b, s:o, s:o, s:o}",
                     "step", (json_int_t)info->step, "ranks", info->ranks,
                     "bytes", (json_int_t)info->bytes, "state", info->state,
                     "pinned", ckpt_index_pinned(info->path), "eval_loss",
                     jsontext_real(info->eval_loss), "best", info->best,
                     "written", written < 0 ? json_null() : json_real(written),
                     "path", ckpt_cmd_path(info->path), "reason",
                     jsontext_string(info->reason));
}

static enum err print_json(const struct ckpt_info *list, int count)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        jsontext_append(&array, info_json(&list[i]));
    return ckpt_cmd_print(array);
}

/* The reason stands below its line, where there is room for it. */
static void print_list(const char *run_dir, const struct ckpt_info *list,
                       int count)
{
    double now = clock_wall();
    if (count == 0)
        fprintf(stderr, "%s: no checkpoint yet\n", run_dir);
    else
        clean_printf("%-12s %6s %11s %9s %-5s %-6s %-12s %s\n", "step", "ranks",
                     "size", "age", "state", "pinned", "eval loss", "path");
    for (int i = 0; i < count; i++) {
        char age[32] = "?", loss[32] = "-", where[FSIO_PATH_MAX];
        double written = written_at(list[i].path);
        if (written >= 0)
            units_seconds(now > written ? now - written : 0, age, sizeof age);
        if (!isnan(list[i].eval_loss))
            snprintf(loss, sizeof loss, "%.4f%s", list[i].eval_loss,
                     list[i].best ? " best" : "");
        clean_printf("%-12" PRId64 " %6d %11s %9s %-5s %-6s %-12s %s\n",
                     list[i].step, list[i].ranks, UNITS_BYTES(list[i].bytes),
                     age, list[i].state,
                     ckpt_index_pinned(list[i].path) ? "yes" : "-", loss,
                     home_where(list[i].path, where));
        if (list[i].reason[0] != '\0')
            clean_printf("  %s\n", list[i].reason);
    }
}

/* Those of a run, or a single one. */
static enum err ls_find(const char *path, struct ckpt_info **list, int *count)
{
    char root[FSIO_PATH_MAX], manifest[FSIO_PATH_MAX];
    TRY(ckpt_index_root(root, path));
    if (fsio_exists(root))
        return ckpt_list(path, list, count);
    TRY(fsio_path(manifest, "%s/%s", path, CKPT_MANIFEST_FILE));
    if (!fsio_exists(manifest) && ckpt_manifest_step_of(path) < 0)
        return err_set(ERR_USAGE,
                       "%s: no run directory: it has no folder checkpoints; "
                       "give a run directory or one of its checkpoints",
                       path);
    TRY(new_zeroed(list, 1));
    TRY(ckpt_describe(path, *list));
    *count = 1;
    return ERR_OK;
}

enum err ckpt_cmd_ls(struct ckpt_cmd *cmd)
{
    enum err rc = ERR_OK;
    struct ckpt_info *list = NULL;
    int count = 0;
    TRY_OUT(ckpt_cmd_need_run(cmd->paths[0]));
    TRY_OUT(ls_find(cmd->paths[0], &list, &count));
    assert(count >= 0 && (count == 0 || list != NULL));
    if (cmd->json)
        rc = print_json(list, count);
    else
        print_list(cmd->paths[0], list, count);
out:
    free(list);
    return rc;
}

static enum err say_pinned(const struct ckpt_cmd *cmd, bool pinned)
{
    const char *path = cmd->paths[0];
    if (cmd->json)
        return ckpt_cmd_print(json_pack(
            "{s:o, s:b}", "path", jsontext_string(path), "pinned", pinned));
    clean_printf("%s: %s\n", path, pinned ? "pinned" : "not pinned");
    return ERR_OK;
}

enum err ckpt_cmd_pin(struct ckpt_cmd *cmd)
{
    enum err rc =
        ckpt_index_pin(cmd->paths[0], cmd->reason != NULL ? cmd->reason : "");
    return rc == ERR_OK ? say_pinned(cmd, true) : rc;
}

enum err ckpt_cmd_unpin(struct ckpt_cmd *cmd)
{
    enum err rc = ckpt_index_unpin(cmd->paths[0]);
    return rc == ERR_OK ? say_pinned(cmd, false) : rc;
}
