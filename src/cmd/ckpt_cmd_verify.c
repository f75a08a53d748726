/* tessera-ckpt verify: every byte of a checkpoint, or of all checkpoints of a
 * run. Damage is a result, not a failure: it is noted and the search goes on, since
 * whoever has a damaged checkpoint wants to know how much of it. Only what keeps
 * from looking, a file system that is away, ends the command. The exit code tells
 * of damage when everything was looked at. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/files/ckpt_view.h"
#include "checkpoint/tools/ckpt_tools.h"
#include "src/base/clean.h"
#include "src/base/jsontext.h"
#include "src/base/units.h"
#include "src/cmd/ckpt_cmd.h"
#include "src/mirror/home.h"

/* More damage than this per shard is counted, but not listed. */
#define DAMAGE_LISTED 100

struct verify {
    bool json;
    bool progress; /* somebody watches standard error */
    int checkpoints, bad;
    char first[512]; /* the first damage of all */
    json_t *list;
    json_t *damage, *notes; /* of the checkpoint at hand */
    int found;              /* in the shard at hand */
};

static enum err verify_note(struct verify *verify, json_t *list,
                            const char *what, const char *text)
{
    if (!verify->json)
        clean_printf("%s: %s\n", what, text);
    return json_array_append_new(list, jsontext_string(text)) == 0
               ? ERR_OK
               : err_set(ERR_MEMORY, "verify: out of memory");
}

static enum err note_damage(void *arg, const char *text)
{
    struct verify *verify = arg;
    if (verify->first[0] == '\0')
        snprintf(verify->first, sizeof verify->first, "%s", text);
    return verify->found++ >= DAMAGE_LISTED
               ? ERR_OK
               : verify_note(verify, verify->damage, "damaged", text);
}

static enum err note_other(void *arg, const char *text)
{
    struct verify *verify = arg;
    return json_array_size(verify->notes) >= DAMAGE_LISTED
               ? ERR_OK
               : verify_note(verify, verify->notes, "note", text);
}

static void clear_progress(const struct verify *verify)
{
    if (verify->progress)
        fprintf(stderr, "\r\033[K");
}

static enum err verify_shards(struct verify *verify, const char *path,
                              const struct ckpt_manifest *manifest)
{
    enum err rc = ERR_OK;
    char where[FSIO_PATH_MAX];
    struct ckpt_read *reader = NULL;
    TRY_OUT(ckpt_read_create(path, manifest, &reader));
    for (int s = 0; s < manifest->shard_count; s++) {
        const struct ckpt_shard *shard = &manifest->shards[s];
        const char *size = UNITS_BYTES(shard->bytes);
        if (verify->progress)
            fprintf(stderr, "\r\033[K%d/%d %s, %s", s + 1,
                    manifest->shard_count, shard->file, size);
        verify->found = 0;
        TRY_OUT(ckpt_read_all(reader, s, note_damage, verify));
        clear_progress(verify);
        if (!verify->json && verify->found > DAMAGE_LISTED)
            printf("  and %d more\n", verify->found - DAMAGE_LISTED);
        if (!verify->json)
            clean_printf("%s/%s: %s, %s\n", home_where(path, where),
                         shard->file, size,
                         verify->found == 0 ? "good" : "damaged");
    }
out:
    ckpt_read_destroy(reader);
    return rc;
}

/* Damage there costs no step, and can be undone. */
static enum err verify_view(struct verify *verify, const char *path,
                            const struct ckpt_manifest *manifest)
{
    char text[FSIO_PATH_MAX + 256];
    enum err rc = ckpt_view_check(path, manifest);
    if (rc != ERR_CHECKPOINT)
        return rc;
    snprintf(text, sizeof text,
             "%s; training does without it, and `tessera-ckpt view %s` writes "
             "it again",
             err_text(), path);
    verify->found = 0;
    return note_damage(verify, text);
}

static enum err verify_files(struct verify *verify, const char *path,
                             const struct ckpt_manifest *manifest)
{
    TRY(verify_shards(verify, path, manifest));
    TRY(verify_view(verify, path, manifest));
    return ckpt_check_others(path, manifest, note_other, verify);
}

static enum err verify_checkpoint(struct verify *verify, const char *path)
{
    enum err rc = ERR_OK;
    struct ckpt_manifest *manifest = NULL;
    verify->damage = json_array();
    verify->notes = json_array();
    verify->found = 0;
    rc = ckpt_manifest_read(path, NULL, NULL, &manifest);
    if (rc == ERR_CHECKPOINT)
        rc = note_damage(verify, err_text());
    else if (rc == ERR_OK)
        rc = verify_files(verify, path, manifest);
    clear_progress(verify);
    if (rc != ERR_OK)
        goto out;
    bool good = json_array_size(verify->damage) == 0;
    assert(good || verify->first[0] != '\0');
    verify->checkpoints++;
    verify->bad += !good;
    char where[FSIO_PATH_MAX];
    if (!verify->json)
        clean_printf("%s: %s\n", home_where(path, where),
                     good ? "good" : "damaged");
    json_t *entry = json_pack(
        "{s:o, s:o, s:s, s:O, s:O}", "path", ckpt_cmd_path(path), "step",
        manifest != NULL ? json_integer(manifest->step) : json_null(), "state",
        good ? "good" : "bad", "damage", verify->damage, "notes",
        verify->notes);
    if (json_array_append_new(verify->list, entry) != 0)
        rc = err_set(ERR_MEMORY, "verify: out of memory");
out:
    json_decref(verify->notes);
    json_decref(verify->damage);
    ckpt_manifest_destroy(manifest);
    return rc;
}

static enum err verify_run(struct verify *verify, const char *run_dir)
{
    enum err rc = ERR_OK;
    int64_t *steps = NULL;
    int count = 0;
    bool evidence;
    TRY_OUT(ckpt_index_steps(run_dir, &steps, &count, &evidence));
    for (int i = 0; i < count; i++) {
        char path[FSIO_PATH_MAX];
        TRY_OUT(ckpt_index_path(path, run_dir, steps[i]));
        TRY_OUT(verify_checkpoint(verify, path));
    }
    if (count == 0)
        rc = err_set(ERR_CHECKPOINT, "%s: no committed checkpoint", run_dir);
out:
    free(steps);
    return rc;
}

enum err ckpt_cmd_verify(struct ckpt_cmd *cmd)
{
    enum err rc = ERR_OK;
    char root[FSIO_PATH_MAX];
    const char *path = cmd->paths[0];
    struct verify verify = { .json = cmd->json,
                             .progress = isatty(STDERR_FILENO) == 1,
                             .list = json_array() };
    TRY_OUT(ckpt_index_root(root, path));
    if (!fsio_exists(root))
        TRY_OUT(ckpt_cmd_need_checkpoint(path));
    TRY_OUT(fsio_exists(root) ? verify_run(&verify, path)
                              : verify_checkpoint(&verify, path));
    if (cmd->json)
        TRY_OUT(ckpt_cmd_print(json_incref(verify.list)));
    if (verify.bad > 0)
        rc = err_set(ERR_CHECKPOINT, "%d of %d checkpoints damaged; first: %s",
                     verify.bad, verify.checkpoints, verify.first);
out:
    json_decref(verify.list);
    return rc;
}
