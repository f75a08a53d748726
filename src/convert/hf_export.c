/* tessera-hf export: a Hugging Face folder, or a GGUF file. Tensors go from the
 * model to the file through one buffer: sizes are known beforehand, so the head of
 * a file is written first and then the numbers in the order of the file, each read
 * from wherever the checkpoint has it. No tensor is ever whole in memory.
 *
 * A folder is built beside its place under another name and renamed when
 * it is whole, so a crash leaves no folder that looks like a model. With --verify
 * it is then opened again, as anybody would, and every number is compared with the
 * checkpoint's, rounded as it was to be (hf_verify.c): that finds what a check of
 * the writer's own sums cannot, a wrong name, shape or order. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/fsio.h"
#include "src/base/globs.h"
#include "src/base/new.h"
#include "src/base/units.h"
#include "src/convert/hf_cmd.h"
#include "src/data/prepare/publish.h"
#include "src/formats/safetensors/safetensors_writer.h"
#include "src/formats/weights.h"
#include "src/formats/hf/hf_names.h"

static enum err append(void *arg, const float *data, int64_t count)
{
    TRY(hf_poll());
    return safetensors_writer_append_f32(arg, data, count);
}

static enum err write_slices(struct hf_model *model,
                             const struct hf_names *names,
                             struct safetensors_writer *writer)
{
    enum err rc = ERR_OK;
    float *buffer = NULL;
    TRY(new_room(&buffer, (size_t)WEIGHTS_CUT_FLOATS));
    for (int i = 0; i < names->count; i++)
        TRY_OUT(weights_cut(model->weights, model->params, &names->list[i],
                            buffer, append, writer));
out:
    free(buffer);
    return rc;
}

static enum err make_list(const struct hf_names *names, enum hf_cmd_dtype dtype,
                          struct safetensors_tensor **out)
{
    static const enum safetensors_dtype dtypes[] = {
        [HF_CMD_F32] = SAFETENSORS_F32,
        [HF_CMD_BF16] = SAFETENSORS_BF16,
        [HF_CMD_F16] = SAFETENSORS_F16,
    };
    assert(dtype == HF_CMD_F32 || dtype == HF_CMD_BF16 || dtype == HF_CMD_F16);
    TRY(new_zeroed(out, (size_t)names->count));
    for (int i = 0; i < names->count; i++) {
        const struct hf_slice *slice = &names->list[i];
        (*out)[i] = (struct safetensors_tensor){
            .name = slice->name,
            .dtype = dtypes[dtype],
            .dims = slice->dims,
            .shape = { slice->shape[0], slice->shape[1] },
        };
    }
    return ERR_OK;
}

/* Which architecture of other programs the model is, if it is any, decides names
 * of tensors and keys of config.json (src/formats/arch). Small files go first, so
 * that what cannot be told of the model fails before gigabytes are written. */
static enum err write_folder(struct hf_model *model, const struct hf_cmd *cmd,
                             const char *folder)
{
    enum err rc = ERR_OK;
    enum arch arch = ARCHS;
    struct hf_names *names = NULL;
    struct safetensors_tensor *list = NULL;
    struct safetensors_writer *writer = NULL;
    const struct model_config *config = &model->about->config;
    TRY_OUT(hf_config_choose(config, &arch));
    TRY_OUT(hf_names_create(&arch_rows[arch].hf, config, model->params,
                            config->vocab_size, &names));
    TRY_OUT(make_list(names, cmd->dtype, &list));
    TRY_OUT(hf_beside_write(model, arch, cmd->dtype, folder));
    TRY_OUT(hf_card_write(model, arch_rows[arch].hf.name, cmd->dtype, folder));
    TRY_OUT(safetensors_writer_create(folder, list, names->count,
                                      cmd->shard_bytes_max, &writer));
    TRY_OUT(write_slices(model, names, writer));
    TRY_OUT(safetensors_writer_finish(writer));
out:
    safetensors_writer_destroy(writer);
    free(list);
    hf_names_destroy(names);
    return rc;
}

static bool names_gguf(const char *path)
{
    return globs_match("?*.gguf", path);
}

/* What is written lies beside its place until it is whole, and where to look
 * when it is there. */
static enum err write_out(struct hf_model *model, const struct hf_cmd *cmd,
                          char *written)
{
    enum err rc = ERR_OK;
    char file[FSIO_PATH_MAX];
    struct publish publish = { .building = "" };
    assert(model->params != NULL && !cmd->adapter);
    if (cmd->format == HF_CMD_GGUF && names_gguf(cmd->out)) {
        TRY(fsio_path(written, "%s", cmd->out));
        return hf_gguf_write(model, cmd->dtype, cmd->out);
    }
    TRY_OUT(publish_begin(&publish, cmd->out, false));
    if (cmd->format == HF_CMD_GGUF) {
        TRY_OUT(fsio_path(file, "%s/model.gguf", publish.building));
        TRY_OUT(hf_card_write(model, NULL, cmd->dtype, publish.building));
        TRY_OUT(hf_gguf_write(model, cmd->dtype, file));
    } else {
        TRY_OUT(write_folder(model, cmd, publish.building));
    }
    TRY_OUT(publish_commit(&publish));
    rc = fsio_path(written, "%s%s", cmd->out,
                   cmd->format == HF_CMD_GGUF ? "/model.gguf" : "");
out:
    publish_end(&publish);
    return rc;
}

/* The adapters alone, for peft. */
static enum err export_adapter(const struct hf_cmd *cmd)
{
    enum err rc = ERR_OK;
    struct publish publish = { .building = "" };
    struct weights *weights = NULL;
    if (cmd->format != HF_CMD_FOLDER || cmd->dtype != HF_CMD_F32 ||
        cmd->verify || cmd->shard_bytes_max != SAFETENSORS_SHARD_BYTES)
        return err_set(ERR_USAGE, "--adapter goes with none of --format, "
                                  "--dtype, --max-shard-size and --verify");
    TRY_OUT(weights_open(cmd->paths[0], &weights));
    TRY_OUT(publish_begin(&publish, cmd->out, false));
    TRY_OUT(weights_adapter_export(weights, publish.building));
    TRY_OUT(publish_commit(&publish));
    clean_printf("%s: adapters of rank %lld\n", cmd->said,
                 (long long)weights_about(weights)->lora->rank);
out:
    publish_end(&publish);
    weights_close(weights);
    return rc;
}

enum err hf_export(struct hf_cmd *cmd)
{
    enum err rc = ERR_OK;
    char written[FSIO_PATH_MAX];
    struct hf_model model = { .weights = NULL };
    if (cmd->dtype == HF_CMD_Q8_0 && cmd->format != HF_CMD_GGUF)
        return err_set(ERR_USAGE, "--dtype q8_0 needs --format gguf");
    if (cmd->format != HF_CMD_GGUF && names_gguf(cmd->out))
        return err_set(ERR_USAGE, "--out %s needs --format gguf", cmd->out);
    if (fsio_exists(cmd->out))
        return err_set(ERR_USAGE, "%s exists: name a new one", cmd->out);
    if (cmd->adapter)
        return export_adapter(cmd);
    TRY_OUT(hf_verify_open(cmd->paths[0], &model));
    TRY_OUT(write_out(&model, cmd, written));
    if (cmd->verify)
        TRY_OUT(hf_verify_written(&model, written, cmd->dtype));
    clean_printf("%s: %s parameters as %s%s\n", cmd->said,
                 UNITS_COUNT(model.params->numel), hf_cmd_dtypes[cmd->dtype],
                 cmd->verify ? ", verified" : "");
out:
    hf_verify_close(&model);
    return rc;
}
