/* Models of Hugging Face folders: every element is where arch.h says, whatever
 * interval is read; what does not fit is refused or listed. */
#include "src/formats/hf/hf_config.h"
#include "src/formats/safetensors/safetensors_writer.h"
#include "tests/slices_fixture.h"

/* What a folder has otherwise; zeros: as usual. */
struct other {
    bool bare, twice, head_differs, transposed_shape;
    const char *missing, *extra;
    enum safetensors_dtype dtype;
    int tokens; /* of its tokenizer; 0: as many as the model */
};

static void write_text(const char *path, const char *name, const char *text)
{
    fixture_write_file(fixture_path(path, name), text, strlen(text));
}

static void write_tokenizer(const char *path, int tokens)
{
    char text[8192] = "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0";
    for (int i = 1; i < tokens - 1; i++)
        snprintf(text + strlen(text), 32, ", \"t%d\": %d", i, i);
    snprintf(text + strlen(text), 128,
             "}}, \"added_tokens\": [{\"id\": %d, \"content\": \"<end>\"}]}",
             tokens - 1);
    write_text(path, "tokenizer.json", text);
    write_text(path, "tokenizer_config.json",
               "{\"model_max_length\": 1000000000000000019884624838656, "
               "\"eos_token\": {\"content\": \"<end>\"}, "
               "\"chat_template\": "
               "[{\"name\": \"tools\", \"template\": \"x\"}, {\"name\": "
               "\"default\", \"template\": \"{{ messages }}\"}]}");
    write_text(path, "generation_config.json",
               "{\"bos_token_id\": [3, 4], \"eos_token_id\": [5, 19]}");
}

static void add_tensor(struct safetensors_tensor *list, int *count,
                       const char *name, enum safetensors_dtype dtype,
                       const struct hf_slice *slice)
{
    struct safetensors_tensor *t = &list[(*count)++];
    *t = (struct safetensors_tensor){ .name = name,
                                      .dtype = dtype,
                                      .dims = slice->dims };
    memcpy(t->shape, slice->shape, sizeof slice->shape);
}

/* A folder of the model, with its slices in the order of their names. */
static void write_folder(const char *path, struct model *m, enum arch arch,
                         const struct other *other)
{
    struct safetensors_tensor list[512];
    const struct hf_slice *slices[512];
    struct safetensors_writer *writer = NULL;
    char *config = NULL;
    int count = 0;
    enum safetensors_dtype dtype =
        other->dtype != 0 ? other->dtype : SAFETENSORS_F32;
    size_t prefix = other->bare ? strlen(arch_rows[arch].prefix) : 0;
    fixture_need(fsio_remove_tree(path));
    fixture_need(fsio_mkdirs(path));
    fixture_need(hf_config_text(arch, &m->config, "float32", &config));
    write_text(path, "config.json", config);
    write_tokenizer(path, other->tokens > 0 ? other->tokens : VOCAB);
    for (int i = 0; i < m->names->count; i++) {
        const struct hf_slice *slice = &m->names->list[i];
        if (other->missing != NULL && strcmp(slice->name, other->missing) == 0)
            continue;
        if (slice->begin > 0) /* of the tensor before, as ours follow there */
            continue;
        slices[count] = slice;
        add_tensor(list, &count, slice->name + prefix, dtype, slice);
        if (other->transposed_shape && i == 1) {
            list[1].shape[0] = 1;
            list[1].shape[1] = slice_numel(slice);
            list[1].dims = 2;
        }
    }
    if (other->twice) {
        slices[count] = &m->names->list[0];
        add_tensor(list, &count, ARCH_HF_HEAD, dtype, slices[count]);
    }
    if (other->extra != NULL) {
        slices[count] = &m->names->list[1];
        add_tensor(list, &count, other->extra, dtype, slices[count]);
    }
    fixture_need(safetensors_writer_create(path, list, count, 40000, &writer));
    for (int t = 0; t < count; t++)
        for (int64_t i = 0;
             i < list[t].shape[0] * (list[t].dims == 2 ? list[t].shape[1] : 1);
             i++) {
            float value = theirs(m, slices[t], i);
            value += other->head_differs && t == count - 1 && i == 7;
            fixture_need(safetensors_writer_append_f32(writer, &value, 1));
        }
    fixture_need(safetensors_writer_finish(writer));
    safetensors_writer_destroy(writer);
    free(config);
}

static void hf_model(enum arch arch, struct model *m)
{
    *m = (struct model){ .config = shape(arch) };
    make_model(m, &arch_rows[arch].hf);
}

static void test_folders(void)
{
    static const enum arch archs[] = {
        ARCH_LLAMA, ARCH_MISTRAL, ARCH_PHI3,      ARCH_QWEN2,
        ARCH_OLMO2, ARCH_SMOLLM3, ARCH_QWEN3,     ARCH_GPT2,
        ARCH_MPT,   ARCH_MIXTRAL, ARCH_QWEN3_MOE, ARCH_DBRX
    };
    const struct other other = { .bare = false };
    const char *path = tap_folder();
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        struct model m;
        struct weights *weights = NULL;
        hf_model(archs[i], &m);
        write_folder(path, &m, archs[i], &other);
        const char *name = arch_rows[archs[i]].hf.name;
        if (!tap_ok(weights_open(path, &weights) == ERR_OK, "%s opens", name))
            tap_note("%s", err_text());
        tap_ok(weights != NULL && reads(weights, &m), "%s: any interval", name);
        tap_ok(weights != NULL && cuts(weights, &m), "%s: and back", name);
        weights_close(weights);
        free_model(&m);
    }
}

static void test_about(void)
{
    struct model m;
    struct weights *weights = NULL;
    const struct other other = { .dtype = SAFETENSORS_BF16, .tokens = 20 };
    const char *path = tap_folder();
    hf_model(ARCH_LLAMA, &m);
    write_folder(path, &m, ARCH_LLAMA, &other);
    fixture_need(weights_open(path, &weights));
    const struct weights_about *about = weights_about(weights);
    tap_is_str(about->dtype, "bfloat16", "dtype");
    tap_is_str(about->chat_template, "{{ messages }}",
               "a template within tokenizer_config.json");
    tap_is_int(about->bos, 3, "bos: the first of generation_config.json");
    tap_is_int(about->eos, 19, "eos: of several the one that is named");
    tap_is_int(about->vocab, 20, "tokens of tokenizer.json");
    tap_is_int((long long)strlen(about->sha256), 64, "a digest");
    weights_close(weights);
    free_model(&m);
}

/* Opens and matches, or is refused with this in the text. */
static void refused(enum arch arch, const struct other *other, const char *want,
                    const char *what)
{
    struct model m;
    struct weights *weights = NULL;
    const char *path = tap_folder();
    hf_model(arch, &m);
    write_folder(path, &m, arch, other);
    enum err rc = weights_open(path, &weights);
    if (rc == ERR_OK)
        rc = weights_match(weights, m.params, NULL, "");
    if (want == NULL)
        tap_ok(rc == ERR_OK && reads(weights, &m), "%s", what);
    else if (!tap_ok(rc == ERR_DATA && strstr(err_text(), want) != NULL, "%s",
                     what))
        tap_note("%s: %s", err_name(rc), err_text());
    weights_close(weights);
    free_model(&m);
}

static void test_others(void)
{
    refused(ARCH_GPT2, &(struct other){ .bare = true }, NULL,
            "names without their prefix");
    refused(ARCH_GPT2, &(struct other){ .twice = true }, NULL,
            "a tied output layer once more");
    refused(ARCH_GPT2, &(struct other){ .twice = true, .head_differs = true },
            "lm_head.weight", "... which differs");
    refused(ARCH_GPT2, &(struct other){ .extra = "transformer.h.0.attn.bias" },
            NULL, "a mask of old files");
    refused(ARCH_LLAMA, &(struct other){ .extra = "model.more.weight" },
            "model.more.weight", "a tensor too many");
    refused(
        ARCH_LLAMA,
        &(struct other){ .missing = "model.layers.1.self_attn.k_proj.weight" },
        "transformer.blocks.1.attn.Wqkv.weight", "a tensor too few");
    refused(ARCH_LLAMA, &(struct other){ .transposed_shape = true }, "norm_1",
            "a tensor of another shape");
    refused(ARCH_LLAMA, &(struct other){ .tokens = VOCAB + 1 }, "vocab_size",
            "a tokenizer with more tokens than the model");
}

static void test_our_names(void)
{
    static const char norm[] = "transformer.norm_f.weight";
    static const char wte[] = "transformer.wte.weight";
    const struct other other = { .bare = false };
    const char *path = tap_folder();
    struct model m;
    hf_model(ARCH_LLAMA, &m);
    snprintf(slice_of(&m, "model.norm.weight")->name, sizeof norm, "%s", norm);
    write_folder(path, &m, ARCH_LLAMA, &other);
    is_no_parameter(path, &m, norm, "norm_f.weight is [64] there, [64] in",
                    "a norm of a Llama under our name");
    free_model(&m);
    hf_model(ARCH_MPT, &m);
    slice_of(&m, wte)->shape[0] = VOCAB - 8;
    write_folder(path, &m, ARCH_MPT, &other);
    is_no_parameter(path, &m, wte, "wte.weight is [40, 64] there, [48, 64] in",
                    "an embedding of too few rows");
    free_model(&m);
    refused(ARCH_LLAMA, &(struct other){ .extra = norm },
            "norm_f.weight is there once more, [64]",
            "a norm once more, under our name");
}

int main(void)
{
    test_folders();
    test_about();
    test_others();
    test_our_names();
    return tap_done();
}
