/* tessera-hf import: a checkpoint of weights alone, in full, of a Hugging Face
 * folder or a GGUF file; tessera-ckpt average: of the mean of several MODELs. It
 * asks for what it writes as it writes it, so that some blocks are in memory.
 *
 * What comes out is a checkpoint like any other, of step 0: with the model's
 * settings as a run has them, the tokenizer as a tensor of bytes, and where it
 * came from under "source". So everything that takes a MODEL or loads a checkpoint
 * takes it without knowing that it was imported. There is no optimizer's state in
 * it; who trains on begins with moments of 0. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/tools/ckpt_tools.h"
#include "src/base/clean.h"
#include "src/base/digest.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/base/units.h"
#include "src/convert/hf_cmd.h"
#include "src/data/prepare/publish.h"
#include "src/train/state/state_parts.h"
#include "src/formats/weights_ckpt_config.h"
#include "src/formats/weights.h"

#define STEP 0
#define ATTEMPT "import"

struct import {
    struct hf_model model;
    struct hf_model *others; /* [other_count] whose mean with it is written */
    int other_count;
    struct ckpt_item *items;
    int count;
};

/* What was read of the first becomes the mean of all, summed in fp64. */
static enum err average(const struct import *import, int item, int64_t begin,
                        int64_t end, float *out)
{
    double sum[4096];
    float read[sizeof sum / sizeof sum[0]];
    for (int64_t at = begin, count; at < end; at += count, out += count) {
        count = end - at < 4096 ? end - at : 4096;
        for (int64_t i = 0; i < count; i++)
            sum[i] = (double)out[i];
        for (int k = 0; k < import->other_count; k++) {
            const struct hf_model *other = &import->others[k];
            TRY(weights_read(other->weights, &other->params->list[item], at,
                             at + count, read));
            for (int64_t i = 0; i < count; i++)
                sum[i] += (double)read[i];
        }
        for (int64_t i = 0; i < count; i++)
            out[i] = (float)(sum[i] / (import->other_count + 1));
    }
    return ERR_OK;
}

static enum err feed(void *arg, int item, int64_t at, int64_t bytes, void *out)
{
    struct import *import = arg;
    const struct params *params = import->model.params;
    const int64_t size = (int64_t)sizeof(float);
    assert(item < import->count);
    TRY(hf_poll());
    if (item < params->count) {
        assert(at % size == 0 && bytes % size == 0);
        TRY(weights_read(import->model.weights, &params->list[item], at / size,
                         (at + bytes) / size, out));
        return average(import, item, at / size, (at + bytes) / size, out);
    }
    assert(item == params->count && at >= 0 &&
           (size_t)(at + bytes) <= import->model.about->tokenizer_bytes);
    memcpy(out, import->model.about->tokenizer + at, (size_t)bytes);
    return ERR_OK;
}

static enum err make_items(struct import *import)
{
    const struct params *params = import->model.params;
    const struct weights_about *about = import->model.about;
    TRY(new_zeroed(&import->items, (size_t)params->count + 1));
    for (int i = 0; i < params->count; i++) {
        struct ckpt_item *item = &import->items[import->count++];
        item->dtype = DTYPE_F32;
        item->dims = params->list[i].dims;
        memcpy(item->shape, params->list[i].shape,
               sizeof params->list[i].shape);
        item->part.end = params->list[i].numel;
        snprintf(item->name, sizeof item->name, "%s", params->list[i].name);
    }
    if (about->tokenizer == NULL)
        return ERR_OK;
    import->items[import->count++] = (struct ckpt_item){
        .name = WEIGHTS_CKPT_TOKENIZER,
        .dtype = DTYPE_U8,
        .dims = 1,
        .shape = { (int64_t)about->tokenizer_bytes },
        .part.end = (int64_t)about->tokenizer_bytes,
    };
    return ERR_OK;
}

/* As a run's (src/train/state/state_parts.c), as far as weights have it. */
static enum err make_state(const struct import *import, json_t **out)
{
    char sha256[65] = "";
    const struct weights_about *about = import->model.about;
    json_t *fixed = weights_ckpt_config_fixed(&about->config);
    if (about->tokenizer != NULL)
        TRY(digest_bytes(about->tokenizer, about->tokenizer_bytes, sha256));
    if (fixed != NULL && sha256[0] != '\0')
        jsontext_set(&fixed, "tokenizer", json_string(sha256));
    *out = json_pack(
        "{s:s, s:I, s:o, s:o, s:{s:o, s:s, s:s, s:s}, s:{s:{s:{s:s}}, s:o}}",
        "code_version", TESSERA_VERSION, "step", (json_int_t)STEP, "fixed",
        fixed, "text",
        weights_ckpt_config_text(about->vocab, about->bos, about->eos, about),
        "source", "path", jsontext_string(about->place), "kind",
        weights_kind_names[about->kind], "dtype", about->dtype, "sha256",
        about->sha256, "about", "kinds", "", "kind", "weight", "tensors",
        on_checkpoint_about_params(&about->config, import->model.params));
    return *out != NULL ? ERR_OK : err_set(ERR_MEMORY, "out of memory");
}

/* Where the checkpoint itself is: `out`, if it is named like one, or in the run
 * directory `out`. */
static enum err checkpoint_path(const char *out, char path[FSIO_PATH_MAX])
{
    int64_t step = ckpt_manifest_step_of(out);
    if (step > STEP)
        return err_set(ERR_USAGE,
                       "%s: what is imported is step %d: name it "
                       "step-000000000, or name a run directory",
                       out, STEP);
    return step == STEP ? fsio_path(path, "%s", out)
                        : ckpt_index_path(path, out, STEP);
}

/* Built beside its place and renamed; a run directory has the folders above the
 * checkpoint, too. */
static enum err write_checkpoint(struct import *import, const char *out)
{
    enum err rc = ERR_OK;
    char within[FSIO_PATH_MAX];
    struct publish publish = { .building = "" };
    json_t *state = NULL;
    TRY(checkpoint_path(out, within));
    if (fsio_exists(out))
        return err_set(ERR_USAGE, "%s exists: name a new folder", out);
    TRY_OUT(make_items(import));
    TRY_OUT(make_state(import, &state));
    TRY_OUT(publish_begin(&publish, out, false));
    if (ckpt_manifest_step_of(out) != STEP) {
        TRY_OUT(ckpt_index_path(within, publish.building, STEP));
        TRY_OUT(fsio_mkdirs(within));
    } else {
        TRY_OUT(fsio_path(within, "%s", publish.building));
    }
    TRY_OUT(ckpt_write(within, STEP, ATTEMPT, state, import->items,
                       import->count, feed, import));
    TRY_OUT(publish_commit(&publish));
out:
    publish_end(&publish);
    json_decref(state);
    return rc;
}

enum err hf_import(struct hf_cmd *cmd)
{
    enum err rc = ERR_OK;
    struct import import = { .items = NULL };
    TRY_OUT(hf_verify_open(cmd->paths[0], &import.model));
    if (import.model.about->kind == WEIGHTS_CHECKPOINT)
        TRY_OUT(
            err_set(ERR_USAGE, "%s is a checkpoint already", cmd->paths[0]));
    weights_tokenizer_warn_names(import.model.about);
    TRY_OUT(write_checkpoint(&import, cmd->out));
    if (cmd->verify)
        TRY_OUT(hf_verify_written(&import.model, cmd->out, HF_CMD_F32));
    clean_printf("%s: %s parameters of %s%s\n", cmd->said,
                 UNITS_COUNT(import.model.params->numel),
                 import.model.about->dtype, cmd->verify ? ", verified" : "");
out:
    free(import.items);
    hf_verify_close(&import.model);
    return rc;
}

/* Shapes follow from these settings, and what else the model computes. */
static enum err check_alike(const struct hf_model *a, const struct hf_model *b)
{
    enum err rc = ERR_OK;
    const char *key;
    json_t *value, *first = weights_ckpt_config_fixed(&a->about->config);
    json_t *second = weights_ckpt_config_fixed(&b->about->config);
    json_object_foreach(first, key, value)
    {
        if (!json_equal(value, json_object_get(second, key)))
            rc = err_set(ERR_USAGE, "%s has another %s than %s", b->about->path,
                         key, a->about->path);
    }
    json_decref(first);
    json_decref(second);
    return rc;
}

enum err hf_average(const char *out, char *const *paths, int count)
{
    enum err rc = ERR_OK;
    struct import import = { .items = NULL };
    TRY(new_zeroed(&import.others, (size_t)count));
    TRY_OUT(hf_verify_open(paths[0], &import.model));
    for (; import.other_count < count - 1; import.other_count++) {
        struct hf_model *other = &import.others[import.other_count];
        TRY_OUT(hf_verify_open(paths[import.other_count + 1], other));
        TRY_OUT(check_alike(&import.model, other));
    }
    TRY_OUT(write_checkpoint(&import, out));
out:
    for (int k = 0; k < count; k++)
        hf_verify_close(&import.others[k]);
    free(import.others);
    free(import.items);
    hf_verify_close(&import.model);
    return rc;
}
