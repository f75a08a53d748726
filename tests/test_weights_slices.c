/* Models of Hugging Face folders and GGUF files: every element is where
 * arch.h says, whatever interval is read; what does not
 * fit is refused or listed. */
#include "src/formats/weights.h"

#include "src/base/rng.h"
#include "src/formats/gguf/gguf_config.h"
#include "src/formats/gguf/gguf_writer.h"
#include "src/formats/safetensors/half.h"
#include "src/formats/hf/hf_config.h"
#include "src/formats/hf/hf_names.h"
#include "src/formats/safetensors/safetensors_writer.h"
#include "tests/data_fixture.h"

#define SEED 5
#define VOCAB 48

/* What a folder has otherwise; zeros: as usual. */
struct other {
    bool bare, twice, head_differs, transposed_shape;
    const char *missing, *extra;
    enum safetensors_dtype dtype;
    int tokens; /* of its tokenizer; 0: as many as the model */
};

struct model {
    struct model_config config;
    struct params *params;
    struct hf_names *names;
    float *flat;
};

static const char *folder;

static struct model_config shape(enum arch arch)
{
    struct model_config c;
    fixture_need(model_config_preset("mpt-tiny", &c));
    c.d_model = 64;
    c.n_heads = 4;
    c.n_kv_heads = 4;
    c.n_layers = 2;
    c.vocab_size = VOCAB;
    c.max_seq_len = 32;
    c.ffn_width = 256;
    c.dropout_attention = c.dropout_residual = c.dropout_embedding = 0;
    c.positions = POSITIONS_LEARNED;
    c.tied = true;
    if (arch == ARCH_GPT2) {
        c.ffn_width = 96;
        return c;
    }
    c.bias = false;
    c.positions = POSITIONS_ALIBI;
    if (arch == ARCH_MPT)
        return c;
    c.positions = POSITIONS_ROPE;
    c.qkv_bias = arch == ARCH_QWEN2;
    c.window = arch == ARCH_MISTRAL || arch == ARCH_OLMO3 ? 8 : 0;
    c.window_interval = arch == ARCH_OLMO3 ? 2 : 0;
    c.no_rope_interval = arch == ARCH_SMOLLM3 ? 2 : 0;
    c.n_kv_heads = 2;
    c.ffn = FFN_GLU;
    c.activation = MODEL_SILU;
    c.ffn_width = 80;
    /* the embedding is the table's first tensor */
    c.tied = arch == ARCH_QWEN2 || arch == ARCH_PHI3 || arch == ARCH_OLMO2 ||
             arch == ARCH_OLMO3 || arch == ARCH_GEMMA3;
    c.norm_place = arch == ARCH_GEMMA3 ? NORM_AROUND : NORM_BEFORE;
    c.norm_plus_one = arch == ARCH_GEMMA3;
    if (arch == ARCH_QWEN3 || arch == ARCH_QWEN3_MOE || arch == ARCH_GEMMA3) {
        c.qk_norm = QK_NORM_HEAD;
        c.head_dim = 24;
    }
    if (arch == ARCH_OLMO2 || arch == ARCH_OLMO3) {
        c.qk_norm = QK_NORM_FULL;
        c.norm_place = NORM_AFTER;
    }
    if (arch == ARCH_MIXTRAL || arch == ARCH_DBRX || arch == ARCH_QWEN3_MOE) {
        c.experts = 4;
        c.experts_top_k = 2;
        c.router_normalize = 1;
    }
    if (arch != ARCH_DBRX)
        c.norm = MODEL_NORM_RMSNORM;
    return c;
}

static void make_values(struct model *m)
{
    fixture_need(params_create(&m->config, &m->params));
    m->flat = calloc((size_t)m->params->elements, sizeof *m->flat);
    for (int p = 0; p < m->params->count; p++) {
        const struct param *param = &m->params->list[p];
        rng_fill_normal(SEED, rng_stream(param->name), 0, param->numel, 1.0f,
                        m->flat + param->offset);
    }
}

static void free_model(struct model *m)
{
    hf_names_destroy(m->names);
    params_destroy(m->params);
    free(m->flat);
    *m = (struct model){ .names = NULL };
}

static int64_t slice_numel(const struct hf_slice *slice)
{
    return slice->dims == 2
               ? slice->rows * slice->shape[slice->transposed ? 0 : 1]
               : slice->rows;
}

/* Element number i of a slice's tensor, one by one from what headers say. */
static float theirs(const struct model *m, const struct hf_slice *slice,
                    int64_t i)
{
    const struct param *param = &m->params->list[slice->param];
    int64_t cols = param->dims == 2 ? param->shape[1] : 1;
    int64_t row = slice->transposed ? i % slice->rows : i / cols;
    int64_t col = slice->transposed ? i / slice->rows : i % cols;
    if (slice->pairs > 0) {
        int64_t half = slice->pairs / 2, in = row % slice->pairs;
        row += in % 2 * half + in / 2 - in;
    }
    return m->flat[param->offset + (slice->row + row) * cols + col];
}

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

/* All of it, and many intervals of it, are the values. */
static bool reads(struct weights *weights, const struct model *m)
{
    float *got = calloc((size_t)m->params->elements, sizeof *got);
    bool same = weights_match(weights, m->params, NULL, "") == ERR_OK;
    for (int i = 0; i < 300 && same; i++) {
        uint64_t n = (uint64_t)m->params->elements;
        int64_t begin = (int64_t)(rng_uniform(1, 2, 2 * i) * (double)n);
        int64_t width = (int64_t)(rng_uniform(1, 2, 2 * i + 1) *
                                  (i % 3 == 0 ? 20.0 : (double)n));
        int64_t end = begin + 1 + width;
        end = end > (int64_t)n || i == 0 ? (int64_t)n : end;
        begin = i == 0 ? 0 : begin;
        same =
            weights_fill(weights, m->params, NULL, begin, end, got) == ERR_OK &&
            memcmp(got, m->flat + begin, (size_t)(end - begin) * sizeof *got) ==
                0;
    }
    free(got);
    return same;
}

struct sunk {
    const struct model *m;
    const struct hf_slice *slice;
    int64_t at;
    bool same;
};

static enum err sink(void *arg, const float *data, int64_t count)
{
    struct sunk *sunk = arg;
    for (int64_t i = 0; i < count; i++)
        sunk->same =
            sunk->same && data[i] == theirs(sunk->m, sunk->slice, sunk->at + i);
    sunk->at += count;
    return ERR_OK;
}

/* Cut again into the slices of `names`. */
static bool cuts(struct weights *weights, const struct model *m)
{
    bool same = true;
    float *buffer = malloc((size_t)WEIGHTS_CUT_FLOATS * sizeof *buffer);
    for (int i = 0; i < m->names->count; i++) {
        struct sunk sunk = { m, &m->names->list[i], 0, true };
        fixture_need(
            weights_cut(weights, m->params, sunk.slice, buffer, sink, &sunk));
        same = same && sunk.same && sunk.at == slice_numel(sunk.slice);
    }
    free(buffer);
    return same;
}

static void hf_model(enum arch arch, struct model *m)
{
    *m = (struct model){ .config = shape(arch) };
    make_values(m);
    fixture_need(hf_names_create(&arch_rows[arch].hf, &m->config, m->params,
                                 VOCAB, &m->names));
}

static void test_folders(void)
{
    static const enum arch archs[] = {
        ARCH_LLAMA, ARCH_MISTRAL, ARCH_PHI3,      ARCH_QWEN2,
        ARCH_OLMO2, ARCH_SMOLLM3, ARCH_QWEN3,     ARCH_GPT2,
        ARCH_MPT,   ARCH_MIXTRAL, ARCH_QWEN3_MOE, ARCH_DBRX
    };
    const struct other other = { .bare = false };
    const char *path = strdup(fixture_path(folder, "hf"));
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
    free((char *)path);
}

static void test_about(void)
{
    struct model m;
    struct weights *weights = NULL;
    const struct other other = { .dtype = SAFETENSORS_BF16, .tokens = 20 };
    const char *path = strdup(fixture_path(folder, "about"));
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
    free((char *)path);
}

/* Opens and matches, or is refused with this in the text. */
static void refused(enum arch arch, const struct other *other, const char *want,
                    const char *what)
{
    struct model m;
    struct weights *weights = NULL;
    const char *path = strdup(fixture_path(folder, "other"));
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
    free((char *)path);
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

/* The slice of this name. */
static struct hf_slice *slice_of(const struct model *m, const char *name)
{
    for (int i = 0; i < m->names->count; i++)
        if (strcmp(m->names->list[i].name, name) == 0)
            return &m->names->list[i];
    abort();
}

/* A tensor that is no parameter of the configuration and has the name of one of
 * ours is neither matched nor read; the error has `want`. */
static void is_no_parameter(const char *path, const struct model *m,
                            const char *name, const char *want,
                            const char *what)
{
    struct weights *weights = NULL;
    float value = 0;
    fixture_need(weights_open(path, &weights));
    enum err rc = weights_match(weights, m->params, NULL, "");
    if (!tap_ok(rc == ERR_DATA && strstr(err_text(), want) != NULL,
                "%s is no match", what))
        tap_note("%s: %s", err_name(rc), err_text());
    tap_ok(weights_match(weights, m->params, name, "") == ERR_OK,
           "... unless it is ignored");
    for (int i = 0; i < m->params->count; i++)
        if (strcmp(m->params->list[i].name, name) == 0)
            tap_ok(weights_read(weights, &m->params->list[i], 0, 1, &value) ==
                       ERR_DATA,
                   "... and is not read: %s", err_text());
    weights_close(weights);
}

static void test_our_names(void)
{
    static const char norm[] = "transformer.norm_f.weight";
    static const char wte[] = "transformer.wte.weight";
    const struct other other = { .bare = false };
    const char *path = strdup(fixture_path(folder, "ours"));
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
    free((char *)path);
    refused(ARCH_LLAMA, &(struct other){ .extra = norm },
            "norm_f.weight is there once more, [64]",
            "a norm once more, under our name");
}

/* --- GGUF --- */

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
    const char *path = strdup(fixture_path(folder, "m.gguf"));
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
        make_values(&m);
        round_values(&m, cases[i].type);
        fixture_need(hf_names_create(arch_rows[cases[i].gguf].gguf, &m.config,
                                     m.params, VOCAB, &m.names));
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
    free((char *)path);
}

static void test_our_names_in_gguf(void)
{
    static const char norm[] = "transformer.norm_f.weight";
    const char *path = strdup(fixture_path(folder, "ours.gguf"));
    struct model m = { .config = shape(ARCH_LLAMA) };
    make_values(&m);
    fixture_need(hf_names_create(arch_rows[ARCH_LLAMA].gguf, &m.config,
                                 m.params, VOCAB, &m.names));
    snprintf(slice_of(&m, "output_norm.weight")->name, sizeof norm, "%s", norm);
    write_gguf(path, ARCH_LLAMA, &m, GGUF_BLOCKS_F32);
    is_no_parameter(path, &m, norm, "norm_f.weight is [64] there, [64] in",
                    "a norm of a GGUF file under our name");
    free_model(&m);
    free((char *)path);
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
    folder = tap_folder();
    test_folders();
    test_about();
    test_others();
    test_our_names();
    test_gguf();
    test_our_names_in_gguf();
    test_not_in_gguf();
    return tap_done();
}
