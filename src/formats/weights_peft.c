/* An adapter of Hugging Face's peft (LoRA) as a MODEL: adapter_config.json and
 * adapter_model.safetensors, with the base that they name, merged as they are
 * read.
 *
 * A tensor there belongs to a module, by the name that this has in the base's
 * files, which is one tensor of theirs and some rows of ours (hf_names.h), or of
 * several of ours (Phi-3). An adapter with anything besides, a tensor that trained
 * whole, another kind of adapter, a key that nobody knows, would be another
 * model than its maker's, so it is refused by name.
 *
 * The base is FOLDER/base, which may be a link, or else what the file names, as a
 * path or in the hub's cache on this machine. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/globs.h"
#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/formats/hub_cache.h"
#include "src/formats/hf/hf_config.h"
#include "src/formats/hf/hf_names.h"
#include "src/formats/safetensors/safetensors.h"
#include "src/formats/weights_impl.h"
#include "src/formats/weights_pairs.h"

#define CONFIG_FILE "adapter_config.json"
#define MODEL_FILE "adapter_model.safetensors"
#define CONFIG_MAX ((size_t)1 << 20)
#define PREFIX "base_model.model."
#define RANK_MAX 65536
#define PAIRS 3      /* of a parameter: queries, keys and values */
#define DEPTH_MAX 16 /* a base may be such an adapter; one may be its own */

/* Rows of one of our parameters that have an adapter. */
struct part {
    const struct safetensors_tensor *a, *b;
    int param;
    int64_t row, rows, first; /* of the parameter; the first of B */
    double scale;
};

struct peft {
    char path[FSIO_PATH_MAX], base_path[FSIO_PATH_MAX];
    json_t *config;
    struct weights *base;
    struct params *params;
    struct hf_names *names; /* of the base's architecture */
    struct safetensors *set;
    struct part *parts;
    int count;
    int merged; /* the parameter whose pairs are here; -1: none */
    struct weights_pair pairs[PAIRS];
    int pair_count;
    char sha256[65];
};

static bool has(const char *folder, const char *name)
{
    char path[FSIO_PATH_MAX];
    return fsio_path(path, "%s/%s", folder, name) == ERR_OK &&
           fsio_exists(path);
}

/* With a configuration of its own a folder is a model, beside an adapter. */
static bool is_peft(const char *path)
{
    return has(path, CONFIG_FILE) && !has(path, "config.json");
}

/* --- adapter_config.json --- */

/* Keys that are read here, or that change nothing of an adapter that is there:
 * the tensors say which modules have one, and how the base's weights lie. */
static const char free_keys[] =
    "base_model_name_or_path r lora_alpha rank_pattern alpha_pattern "
    "target_modules exclude_modules layers_to_transform layers_pattern "
    "fan_in_fan_out lora_dropout inference_mode auto_mapping revision "
    "peft_version megatron_core qalora_group_size eva_config "
    "ensure_weight_tying ";

/* What others may be. */
static const struct {
    const char *name, *allowed;
} keys[] = {
    { "peft_type", "[\"LORA\"]" },
    { "task_type", "[\"CAUSAL_LM\", null]" },
    { "use_rslora", "[false, true]" },
    { "bias", "[\"none\"]" },
    { "lora_bias", "[false]" },
    { "use_dora", "[false]" },
    { "use_qalora", "[false]" },
    { "modules_to_save", "[null, []]" },
    { "layer_replication", "[null, []]" },
    { "target_parameters", "[null, []]" },
    { "loftq_config", "[{}, null]" },
    /* these begin with the base as it is, others change it */
    { "init_lora_weights", "[true, false, \"gaussian\", \"eva\", null]" },
};

static enum err check_key(const char *name, const json_t *value)
{
    size_t i = 0, n = sizeof keys / sizeof keys[0];
    bool fits = false;
    while (i < n && strcmp(keys[i].name, name) != 0)
        i++;
    /* what newer versions can do besides is null where it is not asked for */
    if (i == n && (json_is_null(value) || globs_match(free_keys, name)))
        return ERR_OK;
    if (i == n)
        return err_set(ERR_UNSUPPORTED,
                       "%.60s is not known: it may change what the adapter "
                       "does; remove it if it does not",
                       name);
    json_t *allowed = json_loads(keys[i].allowed, 0, NULL);
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    for (size_t k = 0; k < json_array_size(allowed); k++)
        fits = fits || json_equal(json_array_get(allowed, k), value);
    enum err rc = ERR_OK;
    if (!fits)
        rc = err_set(ERR_UNSUPPORTED,
                     "%s is %.60s; of what it can be Tessera has %s", name,
                     text != NULL ? text : "?", keys[i].allowed);
    json_decref(allowed);
    free(text);
    return rc;
}

static enum err read_config(struct peft *peft)
{
    char name[FSIO_PATH_MAX], *text = NULL;
    const char *key;
    json_t *value;
    size_t bytes = 0;
    enum err rc = ERR_OK;
    TRY(fsio_path(name, "%s/" CONFIG_FILE, peft->path));
    TRY(fsio_read_file(name, CONFIG_MAX, &text, &bytes));
    TRY_OUT(err_prefix(
        jsontext_object(text, bytes, JSON_REJECT_DUPLICATES, &peft->config),
        "%s", name));
    json_object_foreach(peft->config, key, value)
        TRY_OUT(err_prefix(check_key(key, value), "%s", name));
    if (json_object_get(peft->config, "peft_type") == NULL)
        TRY_OUT(err_set(ERR_DATA, "%s: no peft_type", name));
    TRY_OUT(digest_bytes(text, bytes, peft->sha256));
out:
    free(text);
    return rc;
}

/* The number that a pattern has for a module, else the key's own. Patterns are
 * regular expressions there: names alone are read, of a module or its end. */
static enum err number_of(const struct peft *peft, const char *pattern,
                          const char *otherwise, const char *module,
                          double most, double *out)
{
    const char *key;
    json_t *value, *found = json_object_get(peft->config, otherwise);
    size_t length = strlen(module);
    bool matched = false;
    json_t *patterns = json_object_get(peft->config, pattern);
    if (patterns != NULL && !json_is_null(patterns) &&
        !json_is_object(patterns))
        return err_set(ERR_DATA, "%s: %s is no object", peft->path, pattern);
    json_object_foreach(patterns, key, value)
    {
        size_t n = strlen(key);
        if (strpbrk(key, "*+?()[]{}|^$\\") != NULL)
            return err_set(ERR_UNSUPPORTED,
                           "%s: %s has the regular expression %.60s; Tessera "
                           "has names of modules",
                           peft->path, pattern, key);
        if (matched || n > length || strcmp(module + length - n, key) != 0 ||
            (n < length && module[length - n - 1] != '.'))
            continue;
        found = value;
        matched = true;
    }
    *out = json_number_value(found);
    if (!json_is_number(found) || !(*out > 0.0 && *out <= most))
        return err_set(ERR_DATA, "%s: %s of %s is no number above 0",
                       peft->path, matched ? pattern : otherwise, module);
    return ERR_OK;
}

/* --- the base --- */

static enum err find_base(struct peft *peft)
{
    const char *name = json_string_value(
        json_object_get(peft->config, "base_model_name_or_path"));
    const char *revision =
        json_string_value(json_object_get(peft->config, "revision"));
    char beside[FSIO_PATH_MAX];
    bool named = revision != NULL && strcmp(revision, "main") != 0;
    TRY(fsio_path(peft->base_path, "%s/base", peft->path));
    if (fsio_exists(peft->base_path))
        return ERR_OK;
    if (name != NULL && name[0] != '\0') {
        TRY(fsio_path(peft->base_path, "%s", name));
        if (fsio_exists(name))
            return ERR_OK;
        TRY(fsio_path(beside, "%s/../%s", peft->path, name));
        if (name[0] != '/' && fsio_exists(beside))
            return fsio_path(peft->base_path, "%s", beside);
        if (hub_cache_find(name, named ? revision : "main", peft->base_path))
            return ERR_OK;
    }
    return err_set(ERR_USAGE,
                   "%s is an adapter of %s%s%s, which is not on this machine: "
                   "put that, or a link to it, at %s/base",
                   peft->path, name != NULL ? name : "a model without a name",
                   named ? " at revision " : "", named ? revision : "",
                   peft->path);
}

/* Its modules have the names of the base's own files. */
static enum err find_arch(const struct peft *peft, enum arch *arch)
{
    const struct weights_about *about = weights_about(peft->base);
    char path[FSIO_PATH_MAX], *text = NULL;
    struct model_config config;
    size_t bytes = 0;
    if (about->kind != WEIGHTS_HF)
        return hf_config_choose(&about->config, arch);
    TRY(fsio_path(path, "%s/config.json", about->path));
    TRY(fsio_read_file(path, CONFIG_MAX, &text, &bytes));
    enum err rc = hf_config_parse(text, bytes, path, arch, &config);
    free(text);
    return rc;
}

static enum err open_base(struct peft *peft)
{
    static _Thread_local int depth;
    enum arch arch = ARCH_LLAMA;
    TRY(find_base(peft));
    if (depth >= DEPTH_MAX)
        return err_set(ERR_DATA, "%s: more than %d bases one behind the other",
                       peft->path, DEPTH_MAX);
    depth++;
    enum err rc = weights_open(peft->base_path, &peft->base);
    depth--;
    if (rc != ERR_OK && depth == 0)
        return err_prefix(rc, "%s is an adapter of %s", peft->path,
                          peft->base_path);
    TRY(rc);
    const struct model_config *config = &weights_about(peft->base)->config;
    TRY(find_arch(peft, &arch));
    TRY(params_create(config, &peft->params));
    return hf_names_create(&arch_rows[arch].hf, config, peft->params,
                           config->vocab_size, &peft->names);
}

/* --- adapter_model.safetensors --- */

static bool is_adapted(enum param_role role)
{
    for (int i = 0; i < LORA_LAYERS; i++)
        if (param_lora_weight((enum lora_layer)i) == role)
            return true;
    return false;
}

static enum err add_part(struct peft *peft, const struct hf_slice *slice,
                         const char *module, struct part part)
{
    const struct param *param = &peft->params->list[slice->param];
    double rank, alpha;
    TRY(number_of(peft, "rank_pattern", "r", module, RANK_MAX, &rank));
    TRY(number_of(peft, "alpha_pattern", "lora_alpha", module, 1e12, &alpha));
    if (part.b == NULL || part.a->dims != 2 || part.b->dims != 2 ||
        (double)part.a->shape[0] != rank ||
        part.b->shape[1] != part.a->shape[0] ||
        part.a->shape[1] != param->shape[1] ||
        part.b->shape[0] != slice->shape[slice->transposed ? 1 : 0])
        return err_set(
            ERR_DATA,
            "%s: the adapter of %s is not of rank %g beside a weight "
            "of [%lld, %lld]",
            peft->path, module, rank,
            (long long)slice->shape[slice->transposed ? 1 : 0],
            (long long)param->shape[1]);
    bool root = json_is_true(json_object_get(peft->config, "use_rslora"));
    part.param = slice->param;
    part.row = slice->row;
    part.rows = slice->rows;
    part.first = slice->begin;
    part.scale = alpha / (root ? sqrt(rank) : rank);
    peft->parts[peft->count++] = part;
    return ERR_OK;
}

/* A tensor of the file: A makes parts of all that its module is here, B is
 * looked for beside it. */
static enum err add_tensor(struct peft *peft,
                           const struct safetensors_tensor *tensor)
{
    static const char end_a[] = ".lora_A.weight", end_b[] = ".lora_B.weight";
    char module[128], weight[160], other[256];
    size_t length = strlen(tensor->name), cut = strlen(end_a);
    bool ours = length > strlen(PREFIX) + cut &&
                strncmp(tensor->name, PREFIX, strlen(PREFIX)) == 0;
    const char *end = ours ? tensor->name + length - cut : "";
    bool is_a = strcmp(end, end_a) == 0, found = false;
    if ((!is_a && strcmp(end, end_b) != 0) || length >= sizeof other)
        return err_set(ERR_UNSUPPORTED,
                       "%s: tensor %.100s is no adapter of a linear layer, and "
                       "would not be read",
                       peft->path, tensor->name);
    snprintf(module, sizeof module, "%.*s",
             (int)(length - strlen(PREFIX) - cut),
             tensor->name + strlen(PREFIX));
    snprintf(weight, sizeof weight, "%s.weight", module);
    snprintf(other, sizeof other, PREFIX "%s%s", module, is_a ? end_b : end_a);
    const struct part part = { .a = tensor,
                               .b = safetensors_find(peft->set, other) };
    for (int i = 0; i < peft->names->count; i++) {
        const struct hf_slice *slice = &peft->names->list[i];
        if (strcmp(slice->name, weight) != 0 ||
            !is_adapted(peft->params->list[slice->param].role))
            continue;
        found = true;
        if (is_a)
            TRY(add_part(peft, slice, module, part));
    }
    if (!found || part.b == NULL)
        return err_set(ERR_UNSUPPORTED, "%s: %s %s", peft->path, tensor->name,
                       !found ? "is of no linear layer of attention or the MLP "
                                "of its base"
                              : "has no other half");
    return ERR_OK;
}

static enum err open_set(struct peft *peft)
{
    char path[FSIO_PATH_MAX], sums[131] = "";
    const struct weights_about *base = weights_about(peft->base);
    TRY(fsio_path(path, "%s/" MODEL_FILE, peft->path));
    if (!fsio_exists(path))
        return err_set(ERR_USAGE, "%s has no " MODEL_FILE "%s", peft->path,
                       has(peft->path, "adapter_model.bin")
                           ? ", but adapter_model.bin, Python's own format: "
                             "save it once more with safe_serialization"
                           : "");
    TRY(safetensors_open(path, &peft->set));
    /* a module is two slices at most */
    TRY(new_zeroed(&peft->parts, 2 * (size_t)peft->set->count + 1));
    for (int i = 0; i < peft->set->count; i++)
        TRY(add_tensor(peft, &peft->set->list[i]));
    if (peft->count == 0)
        return err_set(ERR_DATA, "%s: no tensors", path);
    snprintf(sums, sizeof sums, "%s %s", peft->sha256, base->sha256);
    return digest_bytes(sums, strlen(sums), peft->sha256);
}

/* --- as a MODEL --- */

static void take_about(struct peft *peft, struct weights_about *about)
{
    struct weights_about own = *weights_about(peft->base);
    own.kind = WEIGHTS_PEFT;
    own.path = about->path;
    own.named = about->named;
    own.origin = peft->base_path;
    own.sha256 = peft->sha256;
    own.sha256_files = NULL;
    own.step = own.tokens = -1;
    own.lora = NULL;
    if (strcmp(own.dtype, "float32") != 0)
        own.dtype = "mixed";
    own.imported = false;
    *about = own;
}

static enum err open_peft(const char *path, struct weights_source *source)
{
    struct peft *peft = NULL;
    TRY(new_zeroed(&peft, 1));
    source->state = peft;
    peft->merged = -1;
    TRY(fsio_path(peft->path, "%s", path));
    TRY(read_config(peft));
    TRY(open_base(peft));
    TRY(open_set(peft));
    take_about(peft, &source->about);
    if (has(path, "tokenizer.json"))
        log_info("%s: tokens and chat template are those of its base, %s", path,
                 peft->base_path);
    TRY(new_zeroed(&source->list, (size_t)peft->params->count + 1));
    for (int i = 0; i < peft->params->count; i++) {
        const struct param *param = &peft->params->list[i];
        struct weights_tensor *entry = &source->list[i];
        snprintf(entry->name, sizeof entry->name, "%s", param->name);
        entry->dims = param->dims;
        entry->shape[0] = param->shape[0];
        entry->shape[1] = param->shape[1];
    }
    source->count = peft->params->count;
    return ERR_OK;
}

static void close_peft(struct weights_source *source)
{
    struct peft *peft = source->state;
    free(source->list);
    if (peft == NULL)
        return;
    weights_pairs_drop(peft->pairs, &peft->pair_count);
    hf_names_destroy(peft->names);
    params_destroy(peft->params);
    weights_close(peft->base);
    safetensors_close(peft->set);
    json_decref(peft->config);
    free(peft->parts);
    free(peft);
}

static enum err read_pair(struct peft *peft, const struct part *part)
{
    assert(peft->pair_count < PAIRS);
    struct weights_pair *pair = &peft->pairs[peft->pair_count++];
    *pair = (struct weights_pair){ .rank = part->a->shape[0],
                                   .scale = part->scale,
                                   .in = part->a->shape[1],
                                   .out = part->rows,
                                   .row = part->row };
    TRY(new_room(&pair->a, (size_t)part->a->numel));
    TRY(new_room(&pair->b, (size_t)(part->rows * pair->rank)));
    TRY(safetensors_read_f32(peft->set, part->a, 0, part->a->numel, pair->a));
    return safetensors_read_f32(peft->set, part->b, part->first * pair->rank,
                                part->rows * pair->rank, pair->b);
}

static enum err read_peft(struct weights_source *source, int index,
                          int64_t begin, int64_t end, float *out)
{
    struct peft *peft = source->state;
    TRY(weights_read(peft->base, &peft->params->list[index], begin, end, out));
    if (peft->merged != index) {
        weights_pairs_drop(peft->pairs, &peft->pair_count);
        peft->merged = -1;
        for (int i = 0; i < peft->count; i++)
            if (peft->parts[i].param == index)
                TRY(read_pair(peft, &peft->parts[i]));
        peft->merged = index;
    }
    for (int i = 0; i < peft->pair_count; i++)
        weights_pairs_add(&peft->pairs[i], begin, end, out);
    return ERR_OK;
}

const struct weights_ops weights_peft = {
    .kind = WEIGHTS_PEFT,
    .what = "an adapter of peft (" CONFIG_FILE ", " MODEL_FILE ")",
    .is = is_peft,
    .open = open_peft,
    .close = close_peft,
    .read = read_peft,
};
