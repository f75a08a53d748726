/* Models of GGUF files: every element is where arch.h says, whatever interval is read
 * and whatever its type; what such a file cannot say is refused. */
#include "src/formats/gguf/gguf_config.h"
#include "src/formats/gguf/gguf_writer.h"
#include "src/formats/hf/hf_config.h"
#include "src/formats/safetensors/half.h"
#include "tests/slices_fixture.h"

static void write_keys(struct gguf_writer *writer, enum arch arch,
                       const struct model *m)
{
    fixture_need(gguf_config_write(writer, arch, &m->config));
    fixture_need(gguf_writer_text(writer, "tokenizer.ggml.model", "gpt2"));
    fixture_need(gguf_writer_text(writer, "tokenizer.ggml.pre", "gpt-2"));
    fixture_need(gguf_writer_strings(writer, "tokenizer.ggml.tokens", VOCAB));
    for (int i = 0; i < VOCAB; i++) {
        char text[16];
        int bytes = snprintf(text, sizeof text, "t%d", i);
        fixture_need(gguf_writer_item(writer, text, (size_t)bytes));
    }
    fixture_need(gguf_writer_strings(writer, "tokenizer.ggml.merges", 0));
}

static enum gguf_blocks_type type_of(const struct hf_slice *slice,
                                     enum gguf_blocks_type type)
{
    return slice->dims == 1 ? GGUF_BLOCKS_F32 : type;
}

/* Values become what the type can hold. */
static void write_gguf(const char *path, enum arch arch, struct model *m,
                       enum gguf_blocks_type type)
{
    struct gguf_writer *writer = NULL;
    fixture_need(fsio_remove_tree(path)); /* of the model before */
    fixture_need(gguf_writer_create(path, &writer));
    float freqs[MODEL_ROPE_PAIRS_MAX];
    uint64_t pairs = (uint64_t)gguf_config_freqs(&m->config, freqs);
    write_keys(writer, arch, m);
    if (pairs > 0)
        fixture_need(gguf_writer_tensor(writer, ARCH_GGUF_FREQS,
                                        GGUF_BLOCKS_F32, &pairs, 1));
    for (int i = 0; i < m->names->count; i++) {
        const struct hf_slice *slice = &m->names->list[i];
        uint64_t dim[2] = { (uint64_t)slice->shape[slice->dims - 1],
                            (uint64_t)slice->shape[0] };
        fixture_need(gguf_writer_tensor(writer, slice->name,
                                        type_of(slice, type), dim,
                                        (unsigned)slice->dims));
    }
    fixture_need(gguf_writer_data(writer, freqs, pairs * sizeof *freqs));
    for (int i = 0; i < m->names->count; i++) {
        const struct hf_slice *slice = &m->names->list[i];
        const struct gguf_blocks_layout *layout =
            gguf_blocks_layout(type_of(slice, type));
        for (int64_t at = 0; at < slice_numel(slice); at += layout->numbers) {
            float numbers[GGUF_BLOCKS_NUMBERS_MAX];
            char block[4 * GGUF_BLOCKS_NUMBERS_MAX];
            for (unsigned n = 0; n < layout->numbers; n++)
                numbers[n] = theirs(m, slice, at + n);
            gguf_blocks_write(type_of(slice, type), numbers, 1, block);
            fixture_need(gguf_writer_data(writer, block, layout->bytes));
        }
    }
    fixture_need(gguf_writer_finish(writer));
    gguf_writer_destroy(writer);
}

/* Numbers that are exact in the type: with Q8_0 small whole ones, of which each
 * block has one of 127. */
static void round_values(struct model *m, enum gguf_blocks_type type)
{
    for (int p = 0; p < m->params->count; p++) {
        float *value = m->flat + m->params->list[p].offset;
        for (int64_t i = 0; i < m->params->list[p].numel; i++)
            value[i] = type == GGUF_BLOCKS_Q8_0
                           ? (i % 32 == 0 ? 127.0f : (float)(int)value[i])
                           : half_from_bf16(half_to_bf16(value[i]));
    }
}

static void scale(struct model_config *c, enum model_rope_scaling how)
{
    bool llama3 = how == ROPE_SCALING_LLAMA3;
    c->rope_scaling = how;
    c->rope_factor = 8;
    c->rope_low_freq_factor = llama3 ? 1 : 0;
    c->rope_high_freq_factor = llama3 ? 4 : 0;
    c->rope_original_len = 32;
}

static void test_gguf(void)
{
    static const struct {
        enum arch gguf;
        enum arch hf;
        enum gguf_blocks_type type;
    } cases[] = {
        { ARCH_LLAMA, ARCH_LLAMA, GGUF_BLOCKS_F32 },
        { ARCH_LLAMA, ARCH_LLAMA, GGUF_BLOCKS_BF16 },
        { ARCH_LLAMA, ARCH_LLAMA, GGUF_BLOCKS_Q8_0 },
        { ARCH_QWEN2, ARCH_LLAMA, GGUF_BLOCKS_BF16 },
        { ARCH_QWEN3, ARCH_QWEN3, GGUF_BLOCKS_BF16 },
        { ARCH_OLMO2, ARCH_OLMO2, GGUF_BLOCKS_BF16 },
        { ARCH_GPT2, ARCH_GPT2, GGUF_BLOCKS_F32 },
        { ARCH_MPT, ARCH_MPT, GGUF_BLOCKS_BF16 },
    };
    const char *path = fixture_path(tap_folder(), "m.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weights *weights = NULL;
        struct model m = { .config = shape(cases[i].hf) };
        if (cases[i].gguf == ARCH_LLAMA)
            m.config.ffn_width = 96; /* whole blocks */
        if (i == 1) {
            m.config.rope_scaling = ROPE_SCALING_LINEAR;
            m.config.rope_factor = 4;
            m.config.out_bias = m.config.mlp_bias = true;
        }
        m.config.qkv_bias = i == 1 || cases[i].gguf == ARCH_QWEN2;
        if (i == 0)
            scale(&m.config, ROPE_SCALING_LLAMA3);
        if (cases[i].gguf == ARCH_OLMO2)
            scale(&m.config, ROPE_SCALING_YARN);
        make_model(&m, arch_rows[cases[i].gguf].gguf);
        round_values(&m, cases[i].type);
        write_gguf(path, cases[i].gguf, &m, cases[i].type);
        const char *name = arch_rows[cases[i].gguf].gguf->name;
        const char *type = gguf_blocks_name(cases[i].type);
        if (!tap_ok(weights_open(path, &weights) == ERR_OK, "%s of %s opens",
                    name, type))
            tap_note("%s", err_text());
        tap_ok(weights != NULL && reads(weights, &m), "... any interval");
        tap_ok(weights != NULL && cuts(weights, &m), "... and back");
        tap_ok(weights != NULL &&
                   hf_config_difference(
                       &m.config, &weights_about(weights)->config) == NULL,
               "... the same model");
        weights_close(weights);
        free_model(&m);
    }
}

static void test_our_names_in_gguf(void)
{
    static const char norm[] = "transformer.norm_f.weight";
    const char *path = fixture_path(tap_folder(), "ours.gguf");
    struct model m = { .config = shape(ARCH_LLAMA) };
    make_model(&m, arch_rows[ARCH_LLAMA].gguf);
    snprintf(slice_of(&m, "output_norm.weight")->name, sizeof norm, "%s", norm);
    write_gguf(path, ARCH_LLAMA, &m, GGUF_BLOCKS_F32);
    is_no_parameter(path, &m, norm, "norm_f.weight is [64] there, [64] in",
                    "a norm of a GGUF file under our name");
    free_model(&m);
}

static void test_not_in_gguf(void)
{
    enum arch arch = ARCHS;
    struct model_config config = shape(ARCH_LLAMA);
    tap_ok(gguf_config_choose(&config, &arch) == ERR_OK && arch == ARCH_LLAMA,
           "a Llama is one");
    scale(&config, ROPE_SCALING_LLAMA3);
    config.qkv_bias = true;
    tap_ok(gguf_config_choose(&config, &arch) == ERR_UNSUPPORTED &&
               strstr(err_text(), "of Qwen2 is not written") != NULL,
           "a table of angles that programs do not read is refused");
    config.qkv_bias = false;
    scale(&config, ROPE_SCALING_YARN);
    config.rope_attention_factor = 1.5;
    tap_ok(gguf_config_choose(&config, &arch) == ERR_UNSUPPORTED &&
               strstr(err_text(), "rope_attention_factor 0") != NULL,
           "so is a number of yarn that files have not");
    config = shape(ARCH_MISTRAL);
    tap_ok(gguf_config_choose(&config, &arch) == ERR_UNSUPPORTED &&
               strstr(err_text(), "model.window is not written") != NULL,
           "so is a window");
    config = shape(ARCH_DBRX);
    tap_ok(gguf_config_choose(&config, &arch) == ERR_UNSUPPORTED &&
               strstr(err_text(), "Dbrx") != NULL,
           "so are experts");
}

int main(void)
{
    test_gguf();
    test_our_names_in_gguf();
    test_not_in_gguf();
    return tap_done();
}
