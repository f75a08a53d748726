/* A model as a GGUF file: keys, tokenizer, and tensors in the order of layers.
 * Matrices are of the type that was asked for, vectors and tables of positions
 * in full, as other programs write them.
 *
 * The file has a head with all keys and the name, type and shape of each tensor,
 * and then the numbers, aligned. Tensors are declared in a first walk and filled
 * in a second one in the same order. A shape is written with the fastest dimension
 * first, the other way round than ours, and is the same memory. */
#include <assert.h>
#include <stdlib.h>

#include "src/base/log.h"
#include "src/base/new.h"
#include "src/convert/hf_cmd.h"
#include "src/formats/gguf/gguf_config.h"
#include "src/formats/hf/hf_names.h"
#include "src/formats/gguf/gguf_tokenizer.h"
#include "src/formats/weights.h"

#define QUANTIZATION_VERSION 2
#define WRITE_NUMBERS ((int64_t)1 << 16)

static const struct {
    enum gguf_blocks_type type;
    uint32_t file_type; /* general.file_type */
} gguf_types[] = {
    [HF_CMD_F32] = { GGUF_BLOCKS_F32, 0 },
    [HF_CMD_BF16] = { GGUF_BLOCKS_BF16, 32 },
    [HF_CMD_F16] = { GGUF_BLOCKS_F16, 1 },
    [HF_CMD_Q8_0] = { GGUF_BLOCKS_Q8_0, 7 },
};

struct gguf_out {
    struct gguf_writer *writer;
    enum gguf_blocks_type type; /* of the tensor at hand */
    const char *name;
    char *blocks; /* room for WRITE_NUMBERS */
};

/* Slices come in whole rows, and rows are whole blocks. */
static enum err append(void *arg, const float *data, int64_t count)
{
    struct gguf_out *out = arg;
    const struct gguf_blocks_layout *layout = gguf_blocks_layout(out->type);
    assert(count % layout->numbers == 0 &&
           WRITE_NUMBERS % layout->numbers == 0);
    TRY(hf_poll());
    while (count > 0) {
        int64_t numbers = count < WRITE_NUMBERS ? count : WRITE_NUMBERS;
        size_t blocks = (size_t)numbers / layout->numbers;
        if (gguf_blocks_write(out->type, data, blocks, out->blocks) > 0)
            return err_set(ERR_NUMERIC,
                           "%s has numbers that %s cannot hold: choose "
                           "another --dtype",
                           out->name, gguf_blocks_name(out->type));
        TRY(gguf_writer_data(out->writer, out->blocks, blocks * layout->bytes));
        data += numbers;
        count -= numbers;
    }
    return ERR_OK;
}

static enum gguf_blocks_type type_of(const struct hf_model *model,
                                     const struct hf_slice *slice,
                                     enum hf_cmd_dtype dtype)
{
    const struct param *param = &model->params->list[slice->param];
    return param_multiplies(param) ? gguf_types[dtype].type : GGUF_BLOCKS_F32;
}

static enum err write_tokenizer(struct gguf_writer *writer,
                                const struct weights_about *about)
{
    char *text = NULL;
    size_t bytes = 0;
    TRY(hf_bytes_tokenizer(about, &text, &bytes));
    if (text == NULL) {
        log_warn("%s has no tokenizer: programs that run GGUF files need one",
                 about->path);
        return ERR_OK;
    }
    const struct gguf_tokenizer_texts texts = {
        .tokenizer = text,
        .bytes = bytes,
        .chat = about->chat_template,
        .generation = about->generation,
        .bos = about->bos,
        .eos = about->eos,
        .pad = about->pad,
        .rows = about->config.vocab_size,
    };
    enum err rc = gguf_tokenizer_write(writer, &texts);
    free(text);
    return rc;
}

/* Keys that say what the file is, beside those of the architecture. */
static enum err write_keys(struct gguf_writer *writer, enum arch arch,
                           const struct weights_about *about,
                           enum hf_cmd_dtype dtype)
{
    uint32_t version = QUANTIZATION_VERSION;
    TRY(gguf_config_write(writer, arch, &about->config));
    TRY(gguf_writer_text(writer, "general.type", "model"));
    TRY(gguf_writer_text(writer, "general.description",
                         "exported by tessera-hf " TESSERA_VERSION));
    TRY(gguf_writer_text(writer, "tessera.source.sha256", about->sha256));
    TRY(gguf_writer_number(writer, "general.file_type", GGUF_U32,
                           &gguf_types[dtype].file_type));
    TRY(gguf_writer_number(writer, "general.quantization_version", GGUF_U32,
                           &version));
    return write_tokenizer(writer, about);
}

static enum err write_tensors(struct hf_model *model,
                              const struct hf_names *names,
                              enum hf_cmd_dtype dtype,
                              struct gguf_writer *writer)
{
    enum err rc = ERR_OK;
    float *buffer = NULL;
    struct gguf_out out = { .writer = writer };
    float freqs[MODEL_ROPE_PAIRS_MAX];
    const uint64_t pairs =
        (uint64_t)gguf_config_freqs(&model->about->config, freqs);
    TRY_OUT(new_room(&buffer, WEIGHTS_CUT_FLOATS));
    TRY_OUT(new_room(&out.blocks, (size_t)WRITE_NUMBERS * 4));
    if (pairs > 0)
        TRY_OUT(gguf_writer_tensor(writer, ARCH_GGUF_FREQS, GGUF_BLOCKS_F32,
                                   &pairs, 1));
    for (int i = 0; i < names->count; i++) {
        const struct hf_slice *slice = &names->list[i];
        assert(slice->dims == 1 || slice->dims == 2);
        const uint64_t dim[2] = { (uint64_t)slice->shape[slice->dims - 1],
                                  (uint64_t)slice->shape[0] };
        TRY_OUT(gguf_writer_tensor(writer, slice->name,
                                   type_of(model, slice, dtype), dim,
                                   (unsigned)slice->dims));
    }
    if (pairs > 0) {
        out.type = GGUF_BLOCKS_F32;
        out.name = ARCH_GGUF_FREQS;
        TRY_OUT(append(&out, freqs, (int64_t)pairs));
    }
    for (int i = 0; i < names->count; i++) {
        out.type = type_of(model, &names->list[i], dtype);
        out.name = names->list[i].name;
        TRY_OUT(weights_cut(model->weights, model->params, &names->list[i],
                            buffer, append, &out));
    }
out:
    free(out.blocks);
    free(buffer);
    return rc;
}

/* Programs that run GGUF files compute the GELU of both by its tanh form. */
static void tell_activation(const struct model_config *config)
{
    if (config->activation == MODEL_GELU)
        log_warn("model.activation is gelu; programs that run GGUF files take "
                 "gelu_tanh for it, which differs by up to 5e-4");
}

enum err hf_gguf_write(struct hf_model *model, enum hf_cmd_dtype dtype,
                       const char *path)
{
    enum err rc = ERR_OK;
    enum arch arch = ARCHS;
    struct hf_names *names = NULL;
    struct gguf_writer *writer = NULL;
    const struct model_config *config = &model->about->config;
    TRY_OUT(gguf_config_choose(config, &arch));
    TRY_OUT(hf_names_create(arch_rows[arch].gguf, config, model->params,
                            config->vocab_size, &names));
    tell_activation(config);
    TRY_OUT(gguf_writer_create(path, &writer));
    TRY_OUT(write_keys(writer, arch, model->about, dtype));
    TRY_OUT(write_tensors(model, names, dtype, writer));
    TRY_OUT(gguf_writer_finish(writer));
out:
    gguf_writer_destroy(writer);
    hf_names_destroy(names);
    return rc;
}
