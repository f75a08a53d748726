/* Keys of GGUF files and the settings of a model: the keys behind the
 * architecture's name are a JSON object for arch_keys.h.
 *
 * So there is one engine for both kinds of files, and a GGUF file is just
 * another source of the same object. What is not in keys there is seen from the
 * tensors: the vocabulary is the embedding's rows, a file without an output
 * layer is of a tied model, and biases are there or not. Numbers lie in files
 * as floats; 1e-5 comes out as 9.99999974e-06 unless the shortest text that
 * gives the float again is taken for what was meant. */
#include "src/formats/gguf/gguf_config.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/formats/arch/arch_keys.h"
#include "src/formats/hf/hf_config.h"

#define KEY_BYTES 128

/* --- reading --- */

static bool is_llama3(const char *name)
{
    return strncmp(name, ARCH_GGUF_LLAMA3, sizeof ARCH_GGUF_LLAMA3 - 1) == 0;
}

static enum err find_arch(const struct gguf *gguf, enum arch *arch)
{
    const char *name = NULL;
    char titles[ARCH_TITLES_BYTES];
    size_t bytes = 0;
    TRY(gguf_get_string(gguf, GGUF_CONFIG_ARCH_KEY, &name, &bytes));
    for (int i = 0; i < ARCHS; i++) {
        const struct arch_form *form = arch_rows[i].gguf;
        if (form != NULL && strlen(form->name) == bytes &&
            memcmp(form->name, name, bytes) == 0) {
            *arch = (enum arch)i;
            return ERR_OK;
        }
    }
    return err_set(ERR_UNSUPPORTED,
                   "%s: architecture '%.*s'; " ARCH_KNOWN("reads"), gguf->path,
                   (int)(bytes < 64 ? bytes : 64), name,
                   arch_titles(true, titles));
}

double gguf_config_shortest(double value)
{
    char text[32];
    float single = (float)value;
    for (int digits = 1; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtof(text, NULL) == single)
            return strtod(text, NULL);
    }
    return value;
}

/* A value; an array where it is one, or nothing that JSON has. */
static json_t *json_of(const struct gguf *gguf, size_t i)
{
    const struct gguf_value *value = &gguf->key[i].value;
    const char *text = (const char *)value->data;
    json_t *made = NULL;
    int64_t whole = 0;
    double real = NAN;
    errno = 0;
    if (value->kind == GGUF_BOOL)
        made = json_boolean(value->data[0] != 0);
    else if (value->kind == GGUF_STRING &&
             memchr(text, 0, value->count) == NULL)
        made = json_stringn(text, value->count);
    else if (gguf_value_whole(value, &whole))
        made = json_integer(whole);
    else if ((value->kind == GGUF_F32 || value->kind == GGUF_F64) &&
             gguf_get_real(gguf, gguf->key[i].name, &real) == ERR_OK &&
             isfinite(real))
        made = json_real(gguf_config_shortest(real));
    return made != NULL || errno == ENOMEM ? made : json_array();
}

static bool is_ours(const char *name)
{
    return strcmp(name, ARCH_GGUF_ACTIVATION) == 0 || is_llama3(name);
}

/* The keys of the architecture, and ours. */
static enum err read_keys(const struct gguf *gguf, const char *arch,
                          json_t *root)
{
    size_t prefix = strlen(arch);
    for (size_t i = 0; i < gguf->keys; i++) {
        const char *name = gguf->key[i].name;
        /* "llama.block_count" is block_count; general.* and tokenizer.* are
         * others' matter */
        if (strncmp(name, arch, prefix) == 0 && name[prefix] == '.')
            name += prefix + 1;
        else if (!is_ours(name))
            continue;
        if (json_object_set_new_nocheck(root, name, json_of(gguf, i)) != 0)
            return err_set(ERR_MEMORY, "out of memory: keys of a GGUF file");
    }
    return ERR_OK;
}

static bool has(const struct gguf *gguf, const char *tensor)
{
    return gguf_find_tensor(gguf, tensor) != NULL;
}

int64_t gguf_config_freqs(const struct model_config *model,
                          float freqs[MODEL_ROPE_PAIRS_MAX])
{
    double divisors[MODEL_ROPE_PAIRS_MAX];
    int64_t pairs = model_config_head_dim(model) / 2;
    if (model->rope_scaling != ROPE_SCALING_LLAMA3)
        return 0;
    model_config_rope_divisors(model, divisors);
    for (int64_t j = 0; j < pairs; j++)
        freqs[j] = (float)divisors[j];
    return pairs;
}

/* The table of divisors, if it is one that llama3's angles make: of our keys,
 * or, without them, of what Meta's models have. Only the largest one, the
 * factor, can be seen in it. */
static enum err look_at_freqs(const struct gguf *gguf,
                              struct model_config *model)
{
    float freqs[MODEL_ROPE_PAIRS_MAX], ours[MODEL_ROPE_PAIRS_MAX];
    char scratch[sizeof freqs];
    const struct gguf_tensor *tensor = gguf_find_tensor(gguf, ARCH_GGUF_FREQS);
    int64_t head_dim = model_config_head_dim(model);
    float most = 1.0f;
    bool same = tensor != NULL && tensor->type == GGUF_BLOCKS_F32 &&
                tensor->dims == 1 && head_dim % 2 == 0 &&
                head_dim <= 2 * MODEL_ROPE_PAIRS_MAX &&
                tensor->numbers == (uint64_t)head_dim / 2 &&
                model->rope_scaling == ROPE_SCALING_NONE;
    if (tensor == NULL)
        return ERR_OK;
    if (same)
        TRY(gguf_read_floats(gguf, tensor, 0, (size_t)tensor->blocks, scratch,
                             freqs));
    for (int64_t j = 0; same && j < head_dim / 2; j++)
        most = freqs[j] > most ? freqs[j] : most;
    if (model->rope_low_freq_factor == 0.0) {
        model->rope_low_freq_factor = 1.0;
        model->rope_high_freq_factor = 4.0;
        model->rope_original_len = 8192;
    }
    model->rope_scaling = ROPE_SCALING_LLAMA3;
    model->rope_factor = gguf_config_shortest((double)most);
    same = same && model_config_rope_check(model) == ERR_OK;
    if (same)
        (void)gguf_config_freqs(model, ours);
    for (int64_t j = 0; same && j < head_dim / 2; j++)
        same = fabsf(freqs[j] - ours[j]) <= 1e-5f * ours[j];
    if (!same)
        return err_set(ERR_UNSUPPORTED,
                       "%s: " ARCH_GGUF_FREQS " divides angles otherwise than "
                       "model.rope_scaling = \"llama3\" with the factors of "
                       "Llama 3 does",
                       gguf->path);
    return ERR_OK;
}

/* What only the tensors say. */
static enum err look_at_tensors(const struct gguf *gguf,
                                struct arch_values *values)
{
    struct model_config *model = &values->model;
    int64_t named = model->vocab_size;
    const struct gguf_tensor *embedding =
        gguf_find_tensor(gguf, GGUF_CONFIG_EMBEDDING);
    if (embedding == NULL || embedding->dims != 2)
        return err_set(ERR_DATA, "%s: no matrix " GGUF_CONFIG_EMBEDDING,
                       gguf->path);
    if (embedding->dim[1] > 16777216)
        return err_set(ERR_DATA, "%s: %" PRIu64 " tokens; at most 16777216",
                       gguf->path, embedding->dim[1]);
    model->vocab_size = (int64_t)embedding->dim[1];
    if (named != 0 && named != model->vocab_size)
        return err_set(ERR_UNSUPPORTED,
                       "%s: vocab_size is %" PRId64 "; Tessera has %" PRId64
                       " there, the rows of " GGUF_CONFIG_EMBEDDING,
                       gguf->path, named, model->vocab_size);
    model->tied = !has(gguf, "output.weight");
    /* what the first block has of biases all of them have */
    model->bias = model->bias || has(gguf, "blk.0.attn_qkv.bias");
    model->qkv_bias = has(gguf, "blk.0.attn_q.bias");
    model->out_bias = !model->bias && has(gguf, "blk.0.attn_output.bias");
    model->mlp_bias = !model->bias && has(gguf, "blk.0.ffn_up.bias");
    if (model->positions != POSITIONS_ROPE)
        return ERR_OK;
    if (values->head_dim * model->n_heads != model->d_model)
        model->head_dim = values->head_dim;
    return look_at_freqs(gguf, model);
}

static enum err read_model(const struct gguf *gguf, const struct arch_row *row,
                           struct arch_values *values)
{
    enum err rc = ERR_OK;
    json_t *root = json_object();
    TRY_OUT(read_keys(gguf, row->gguf->name, root));
    TRY_OUT(arch_keys_read(row, row->gguf->keys, "", root, values));
    /* a factor alone is linear there, and with "none" it has no effect */
    if (values->model.rope_factor > 0 &&
        json_object_get(root, "rope.scaling.type") == NULL)
        values->model.rope_scaling = ROPE_SCALING_LINEAR;
    if (values->model.rope_scaling == ROPE_SCALING_NONE)
        values->model.rope_factor = 0;
    if (values->model.rope_scaling != ROPE_SCALING_YARN &&
        values->model.rope_low_freq_factor == 0.0)
        values->model.rope_original_len = 0;
out:
    json_decref(root);
    return rc == ERR_OK ? ERR_OK : err_prefix(rc, "%s", gguf->path);
}

enum err gguf_config_read(const struct gguf *gguf, enum arch *arch,
                          struct model_config *model)
{
    assert(arch != NULL && model != NULL);
    uint64_t parts = 1;
    struct arch_values values;
    TRY(find_arch(gguf, arch));
    if (gguf_find(gguf, "split.count") != NULL)
        TRY(gguf_get_count(gguf, "split.count", &parts));
    if (parts > 1)
        return err_set(ERR_UNSUPPORTED,
                       "%s: one of %" PRIu64 " files of a model: merge them "
                       "first (llama-gguf-split --merge)",
                       gguf->path, parts);
    TRY(read_model(gguf, &arch_rows[*arch], &values));
    TRY(look_at_tensors(gguf, &values));
    TRY(err_prefix(arch_keys_end(&values), "%s", gguf->path));
    *model = values.model;
    return ERR_OK;
}

/* --- writing --- */

/* Files have no key for it: programs that run them have one for each
 * architecture, and take one form of GELU for the other. */
static enum err check_activation(const struct model_config *model,
                                 const struct arch_row *row)
{
    bool gated = row->activation == MODEL_SILU;
    if (gated ? model->activation == MODEL_SILU
              : model->activation == MODEL_GELU ||
                    model->activation == MODEL_GELU_TANH)
        return ERR_OK;
    return err_set(ERR_UNSUPPORTED,
                   "model.activation = \"%s\" is not written as GGUF, where %s "
                   "always has %s: export --format hf",
                   model_activation_names[model->activation], row->gguf->name,
                   model_activation_names[row->activation]);
}

/* A table of divisors is read for Llama alone; and of yarn's numbers files have
 * the factor and the length. */
static enum err check_scaling(const struct model_config *model, enum arch arch)
{
    const struct model_config *m = model;
    const char *scaling = model_rope_scaling_names[m->rope_scaling];
    if (m->rope_scaling == ROPE_SCALING_LLAMA3 && arch != ARCH_LLAMA)
        return err_set(ERR_UNSUPPORTED,
                       "model.rope_scaling = \"%s\" of %s is not written as "
                       "GGUF, where llama alone has it: export --format hf",
                       scaling, arch_rows[arch].title);
    if (m->rope_scaling == ROPE_SCALING_YARN &&
        ((m->rope_beta_fast != 0.0 && m->rope_beta_fast != 32.0) ||
         (m->rope_beta_slow != 0.0 && m->rope_beta_slow != 1.0) ||
         m->rope_attention_factor != 0.0))
        return err_set(ERR_UNSUPPORTED,
                       "model.rope_scaling = \"%s\" is written as GGUF only "
                       "with model.rope_beta_fast 32, model.rope_beta_slow 1 "
                       "and model.rope_attention_factor 0: export --format hf",
                       scaling);
    return ERR_OK;
}

enum err gguf_config_choose(const struct model_config *model, enum arch *arch)
{
    assert(model != NULL && arch != NULL);
    char titles[ARCH_TITLES_BYTES];
    TRY(hf_config_choose(model, arch));
    const struct arch_row *row = &arch_rows[*arch];
    TRY(check_scaling(model, *arch));
    /* programs compute these architectures without one */
    if (model->window > 0)
        return err_set(ERR_UNSUPPORTED,
                       "model.window is not written as GGUF, where a model of "
                       "%s has none: export --format hf",
                       row->title);
    if (row->gguf == NULL)
        return err_set(ERR_UNSUPPORTED,
                       "%s is not written as GGUF; those of %s are",
                       row->hf.name, arch_titles(true, titles));
    return check_activation(model, row);
}

static enum err write_value(struct gguf_writer *writer, const char *name,
                            const json_t *value)
{
    uint32_t count = (uint32_t)json_integer_value(value);
    float real = (float)json_real_value(value);
    if (json_is_string(value))
        return gguf_writer_text(writer, name, json_string_value(value));
    if (json_is_integer(value))
        return gguf_writer_number(writer, name, GGUF_U32, &count);
    if (json_is_real(value))
        return gguf_writer_number(writer, name, GGUF_F32, &real);
    return err_set(ERR_MEMORY, "out of memory: %s", name);
}

enum err gguf_config_write(struct gguf_writer *writer, enum arch arch,
                           const struct model_config *model)
{
    struct arch_values values;
    const struct arch_form *form = arch_rows[arch].gguf;
    assert(form != NULL);
    arch_keys_begin(model, &values);
    bool llama3 = model->rope_scaling == ROPE_SCALING_LLAMA3;
    if (llama3) {
        values.model.rope_scaling = ROPE_SCALING_NONE;
        values.model.rope_factor = 0.0;
    }
    TRY(gguf_writer_text(writer, GGUF_CONFIG_ARCH_KEY, form->name));
    for (const struct arch_key *key = form->keys; key->name != NULL; key++) {
        char name[KEY_BYTES];
        if (key->kind >= ARCH_MUST || !arch_keys_given(key, &values))
            continue;
        /* one length under two names */
        if (key->offset ==
                offsetof(struct arch_values, model.rope_original_len) &&
            is_llama3(key->name) != llama3)
            continue;
        if (is_ours(key->name))
            snprintf(name, sizeof name, "%s", key->name);
        else
            snprintf(name, sizeof name, "%s.%s", form->name, key->name);
        json_t *value = arch_keys_value(key, &values);
        enum err rc = write_value(writer, name, value);
        json_decref(value);
        if (rc != ERR_OK)
            return rc;
    }
    return ERR_OK;
}
