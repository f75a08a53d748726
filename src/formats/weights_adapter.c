/* Writes a checkpoint's adapters as files of peft. How they are read is
 * weights_tuned.c, what tensors are called there src/formats/hf/hf_names.c.
 *
 * An adapter adds (alpha / rank) B A to a layer's weight. Where a module of
 * theirs is several layers of ours (Wqkv, c_attn), its adapter is theirs
 * together: A one below the other, B in blocks along the diagonal, so that each
 * part of the rows meets its own A alone. That is an adapter of as many times
 * the rank, and with alpha as many times as large the factor stays what it was;
 * rank_pattern and alpha_pattern say so of these modules.
 *
 * Peft loads an adapter beside any base of that shape. So it is written only
 * where the base is known to be what it was trained beside: every number of the
 * model is read once before, which compares it with the checkpoint's sums. */

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/formats/hf/hf_config.h"
#include "src/formats/hf/hf_names.h"
#include "src/formats/safetensors/safetensors_writer.h"
#include "src/formats/weights.h"

#define ADAPTER_FILE "adapter_model.safetensors"
#define ADAPTER_CONFIG "adapter_config.json"
#define CONFIG_MAX ((size_t)1 << 20)
#define PARTS 3 /* layers of ours that are a module of theirs, at most */
#define NAME_BYTES 192

/* A module of theirs. */
struct module {
    const struct hf_slice *slice;
    char name[128];
    struct {
        char prefix[96]; /* of our names */
        int64_t row, rows;
    } parts[PARTS];
    int count;
};

struct adapter_export {
    struct weights *weights;
    const struct weights_lora *lora;
    enum arch arch;
    struct params *params;
    struct hf_names *names;
    struct module *modules;
    int count;
    char (*texts)[NAME_BYTES]; /* names of tensors, two of a module */
    struct safetensors_tensor *list;
};

/* --- which modules --- */

/* The adapter of a layer of ours, if there is one and the slice has its rows.
 */
static enum err add_part(struct adapter_export *e, const struct param *param,
                         enum lora_layer layer, struct module *module)
{
    struct lora_shape shape;
    float *a = NULL;
    char name[NAME_BYTES];
    const struct hf_slice *slice = module->slice;
    if (!lora_shape(&weights_about(e->weights)->config, layer, &shape))
        return ERR_OK;
    int64_t row = param->role == PARAM_WQKV_WEIGHT ? shape.at : 0;
    char prefix[96];
    snprintf(prefix, sizeof prefix, "transformer.blocks.%d.%s",
             params_layer(e->params, param->block), shape.name);
    if (row < slice->row || row + shape.out > slice->row + slice->rows)
        return ERR_OK;
    snprintf(name, sizeof name, "%s.lora_A.weight", prefix);
    TRY(weights_read_lora(e->weights, name, e->lora->rank, shape.in, &a));
    if (a == NULL)
        return ERR_OK;
    free(a);
    assert(module->count < PARTS);
    int part = module->count++;
    snprintf(module->parts[part].prefix, sizeof prefix, "%s", prefix);
    module->parts[part].row = row - slice->row;
    module->parts[part].rows = shape.out;
    return ERR_OK;
}

static enum err find_modules(struct adapter_export *e)
{
    /* a module of theirs is a slice of a weight of ours that can have adapters
     */
    for (int i = 0; i < e->names->count; i++) {
        const struct hf_slice *slice = &e->names->list[i];
        const struct param *param = &e->params->list[slice->param];
        struct module *module = &e->modules[e->count];
        *module = (struct module){ .slice = slice };
        for (int layer = 0; layer < LORA_LAYERS; layer++)
            if (param_lora_weight((enum lora_layer)layer) == param->role)
                TRY(add_part(e, param, (enum lora_layer)layer, module));
        if (module->count == 0)
            continue;
        size_t length = strlen(slice->name) - strlen(".weight");
        snprintf(module->name, sizeof module->name, "%.*s", (int)length,
                 slice->name);
        e->count++;
    }
    return ERR_OK;
}

/* --- adapter_config.json --- */

static json_t *number(double value)
{
    return value == floor(value) && fabs(value) < 1e15
               ? json_integer((json_int_t)value)
               : json_real(value);
}

static void list_modules(const struct adapter_export *e, json_t **targets,
                         json_t **ranks, json_t **alphas)
{
    for (int i = 0; i < e->count; i++) {
        const struct module *module = &e->modules[i];
        jsontext_append(targets, json_string(module->name));
        if (module->count == 1)
            continue;
        jsontext_set(ranks, module->name,
                     json_integer(module->count * e->lora->rank));
        jsontext_set(alphas, module->name,
                     number(module->count * e->lora->alpha));
    }
}

static enum err write_config(const struct adapter_export *e, const char *folder)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX], name[WEIGHTS_NAME_MAX];
    char *text = NULL;
    const char *origin = weights_about(e->weights)->origin;
    bool turned = e->count > 0 && e->modules[0].slice->transposed;
    json_t *targets = json_array(), *ranks = json_object();
    json_t *alphas = json_object();
    list_modules(e, &targets, &ranks, &alphas);
    weights_name(origin != NULL ? origin : "", name);
    json_t *config = json_pack(
        "{s:s, s:s, s:o, s:I, s:o, s:f, s:o, s:s, s:b, s:b, s:o, s:o}",
        "peft_type", "LORA", "task_type", "CAUSAL_LM",
        "base_model_name_or_path",
        origin != NULL ? jsontext_string(name) : json_null(), "r",
        (json_int_t)e->lora->rank, "lora_alpha", number(e->lora->alpha),
        "lora_dropout", e->lora->dropout, "target_modules", targets, "bias",
        "none", "fan_in_fan_out", turned, "inference_mode", true,
        "rank_pattern", ranks, "alpha_pattern", alphas);
    if (config != NULL)
        text = json_dumps(config, JSON_INDENT(2));
    if (text == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "%s: out of memory", folder));
    TRY_OUT(fsio_path(path, "%s/" ADAPTER_CONFIG, folder));
    TRY_OUT(fsio_write_atomic(path, text, strlen(text)));
out:
    free(text);
    json_decref(config);
    return rc;
}

/* --- adapter_model.safetensors --- */

static void list_tensors(struct adapter_export *e)
{
    for (int i = 0; i < e->count; i++) {
        const struct module *module = &e->modules[i];
        int64_t rank = module->count * e->lora->rank;
        int64_t in = e->params->list[module->slice->param].shape[1];
        for (int m = 0; m < 2; m++) {
            char *text = e->texts[2 * i + m];
            snprintf(text, NAME_BYTES, "base_model.model.%s.lora_%c.weight",
                     module->name, "AB"[m]);
            e->list[2 * i + m] = (struct safetensors_tensor){
                .name = text, .dtype = SAFETENSORS_F32, .dims = 2
            };
            e->list[2 * i + m].shape[0] = m == 0 ? rank : module->slice->rows;
            e->list[2 * i + m].shape[1] = m == 0 ? in : rank;
        }
    }
}

static enum err read_part(struct adapter_export *e, const char *prefix,
                          char matrix, int64_t rows, int64_t cols, float **out)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.lora_%c.weight", prefix, matrix);
    TRY(weights_read_lora(e->weights, name, rows, cols, out));
    return *out != NULL ? ERR_OK
                        : err_set(ERR_CHECKPOINT, "%s is missing", name);
}

static enum err append_a(struct adapter_export *e, const struct module *module,
                         struct safetensors_writer *writer)
{
    int64_t in = e->params->list[module->slice->param].shape[1];
    for (int i = 0; i < module->count; i++) {
        float *a = NULL;
        enum err rc =
            read_part(e, module->parts[i].prefix, 'A', e->lora->rank, in, &a);
        if (rc == ERR_OK)
            rc = safetensors_writer_append_f32(writer, a, e->lora->rank * in);
        free(a);
        if (rc != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

static enum err append_b(struct adapter_export *e, const struct module *module,
                         struct safetensors_writer *writer)
{
    enum err rc = ERR_OK;
    int64_t rank = e->lora->rank;
    int64_t cols = module->count * rank;
    float *b = NULL;
    float *whole = NULL;
    TRY(new_zeroed(&whole, (size_t)(module->slice->rows * cols)));
    for (int i = 0; i < module->count; i++) {
        int64_t rows = module->parts[i].rows;
        TRY_OUT(read_part(e, module->parts[i].prefix, 'B', rows, rank, &b));
        for (int64_t row = 0; row < rows; row++)
            memcpy(whole + (module->parts[i].row + row) * cols + i * rank,
                   b + row * rank, (size_t)rank * sizeof *b);
        free(b);
        b = NULL;
    }
    TRY_OUT(safetensors_writer_append_f32(writer, whole,
                                          module->slice->rows * cols));
out:
    free(b);
    free(whole);
    return rc;
}

static enum err write_tensors(struct adapter_export *e, const char *folder)
{
    enum err rc = ERR_OK;
    char from[FSIO_PATH_MAX], to[FSIO_PATH_MAX];
    struct safetensors_writer *writer = NULL;
    list_tensors(e);
    TRY_OUT(fsio_path(from, "%s/" SAFETENSORS_FILE, folder));
    TRY_OUT(fsio_path(to, "%s/" ADAPTER_FILE, folder));
    TRY_OUT(safetensors_writer_create(folder, e->list, 2 * e->count, INT64_MAX,
                                      &writer));
    for (int i = 0; i < e->count; i++) {
        TRY_OUT(append_a(e, &e->modules[i], writer));
        TRY_OUT(append_b(e, &e->modules[i], writer));
    }
    TRY_OUT(safetensors_writer_finish(writer));
    if (rename(from, to) != 0)
        TRY_OUT(err_errno("%s: rename", to));
out:
    safetensors_writer_destroy(writer);
    return rc;
}

/* --- the whole --- */

static enum err check(const struct weights_about *about)
{
    if (about->lora == NULL)
        return err_set(ERR_USAGE,
                       "%s has no adapters: export all of it, or give the "
                       "checkpoint of a run with lora.rank",
                       about->path);
    if (about->lora->others > 0)
        return err_set(ERR_USAGE,
                       "%s: %d tensors beside the adapters have trained, such "
                       "as %s, which an adapter's file cannot hold: export "
                       "all of it",
                       about->path, about->lora->others, about->lora->other);
    if (about->lora->base != NULL && about->lora->fresh > 0)
        return err_set(ERR_USAGE,
                       "%s: %d tensors that did not train, such as %s, had "
                       "fresh values instead of those of %s "
                       "(model.weights_ignore), so the adapter does not fit "
                       "that: export all of it",
                       about->path, about->lora->fresh, about->lora->fresh_one,
                       about->lora->base);
    return ERR_OK;
}

/* What is read as another architecture has other modules (Phi-3). */
static enum err check_modules(const struct weights_about *about)
{
    char path[FSIO_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    struct model_config config;
    enum arch arch = ARCH_LLAMA;
    if (about->origin != NULL &&
        fsio_path(path, "%s/config.json", about->origin) == ERR_OK &&
        fsio_read_file(path, CONFIG_MAX, &text, &bytes) == ERR_OK)
        (void)hf_config_parse(text, bytes, path, &arch, &config);
    free(text);
    if (arch != ARCH_PHI3)
        return ERR_OK;
    return err_set(ERR_UNSUPPORTED,
                   "%s: a module of %s is several of those that have "
                   "adapters: export all of it",
                   about->path, arch_rows[arch].title);
}

/* Room for a module of each slice. */
static enum err open_tables(struct adapter_export *e)
{
    size_t slices = (size_t)e->names->count;
    TRY(new_zeroed(&e->modules, slices + 1));
    TRY(find_modules(e));
    TRY(new_zeroed(&e->texts, 2 * (size_t)e->count + 1));
    return new_zeroed(&e->list, 2 * (size_t)e->count + 1);
}

/* Every number once, by which the base's are compared with what they were. */
static enum err check_base(struct adapter_export *e)
{
    float *values = NULL;
    enum err rc = new_room(&values, WEIGHTS_CUT_FLOATS);
    for (int p = 0; p < e->params->count && rc == ERR_OK; p++) {
        const struct param *param = &e->params->list[p];
        for (int64_t at = 0; at < param->numel && rc == ERR_OK;
             at += WEIGHTS_CUT_FLOATS) {
            int64_t left = param->numel - at;
            rc = weights_read(e->weights, param, at,
                              left < WEIGHTS_CUT_FLOATS
                                  ? param->numel
                                  : at + WEIGHTS_CUT_FLOATS,
                              values);
        }
    }
    free(values);
    return rc;
}

enum err weights_adapter_export(struct weights *weights, const char *folder)
{
    assert(weights != NULL && folder != NULL);
    enum err rc = ERR_OK;
    const struct weights_about *about = weights_about(weights);
    struct adapter_export e = { .weights = weights, .lora = about->lora };
    TRY(check(about));
    TRY(check_modules(about));
    TRY_OUT(hf_config_choose(&about->config, &e.arch));
    TRY_OUT(params_create(&about->config, &e.params));
    TRY_OUT(check_base(&e));
    TRY_OUT(hf_names_create(&arch_rows[e.arch].hf, &about->config, e.params,
                            about->config.vocab_size, &e.names));
    TRY_OUT(open_tables(&e));
    TRY_OUT(write_tensors(&e, folder));
    TRY_OUT(write_config(&e, folder));
out:
    free(e.modules);
    free(e.texts);
    free(e.list);
    hf_names_destroy(e.names);
    params_destroy(e.params);
    return rc;
}
