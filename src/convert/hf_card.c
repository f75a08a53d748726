/* The model card, README.md: what the model is and where it comes from, as far
 * as the checkpoint says. It is written from what was recorded while training, not
 * from what somebody remembers: the data sets of all parts of the run with the
 * steps they began at, the settings that stayed, the model that it began with, and
 * the SHA-256 by which each of them can be found again. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/units.h"
#include "src/convert/hf_cmd.h"
#include "src/formats/weights.h"

static void put_shape(FILE *out, const struct hf_model *model, const char *what,
                      enum hf_cmd_dtype dtype)
{
    const struct model_config *config = &model->about->config;
    fprintf(out, "| | |\n|---|---|\n");
    if (what != NULL)
        fprintf(out, "| architecture | %s |\n", what);
    fprintf(out,
            "| parameters | %" PRId64 " (%s) |\n| layers | %" PRId64
            " |\n| width | %" PRId64 " |\n| heads | %" PRId64 ", %" PRId64
            " of keys and values |\n| longest sequence | %" PRId64
            " |\n| vocabulary | %" PRId64 " |\n| weights | %s |\n",
            model->params->numel, UNITS_COUNT(model->params->numel),
            config->n_layers, config->d_model, config->n_heads,
            config->n_kv_heads, config->max_seq_len, config->vocab_size,
            hf_cmd_dtypes[dtype]);
    if (config->experts > 0)
        fprintf(out, "| experts | %" PRId64 ", %" PRId64 " of each token |\n",
                config->experts, config->experts_top_k);
}

static enum err put_plain(FILE *out, const json_t *state, const char *key,
                          const char *title)
{
    char *text = NULL;
    const json_t *value = json_object_get(state, key);
    if (value == NULL)
        return ERR_OK;
    if (!json_is_string(value))
        TRY(jsontext_make(value, 0, &text));
    fprintf(out, "| %s | %s |\n", title,
            text != NULL ? text : json_string_value(value));
    free(text);
    return ERR_OK;
}

/* The data sets of all parts of the run. */
static void put_data(FILE *out, const json_t *state)
{
    const json_t *parts = json_object_get(state, "data");
    for (size_t p = 0; p < json_array_size(parts); p++) {
        const json_t *part = json_array_get(parts, p);
        const json_t *streams = json_object_get(part, "streams");
        for (size_t i = 0; i < json_array_size(streams); i++) {
            const json_t *stream = json_array_get(streams, i);
            const char *name =
                json_string_value(json_object_get(stream, "name"));
            const char *id = json_string_value(json_object_get(stream, "id"));
            fprintf(
                out, "| data from step %lld | %s%s`%s` |\n",
                (long long)json_integer_value(json_object_get(part, "from")),
                name != NULL ? name : "",
                name != NULL && name[0] != '\0' ? " " : "",
                id != NULL ? id : "");
        }
    }
}

static enum err put_settings(FILE *out, const json_t *fixed)
{
    const char *key;
    json_t *value;
    fprintf(out, "\n## Settings that stayed the same\n\n```\n");
    json_object_foreach((json_t *)fixed, key, value)
    {
        char *text = NULL;
        TRY(jsontext_make(value, 0, &text));
        fprintf(out, "%s = %s\n", key, text);
        free(text);
    }
    fprintf(out, "```\n");
    return ERR_OK;
}

static enum err put_checkpoint(FILE *out, const struct weights_about *about)
{
    enum err rc = ERR_OK;
    struct ckpt_manifest *manifest = NULL;
    TRY(ckpt_manifest_read(about->path, NULL, NULL, &manifest));
    const json_t *state = manifest->state;
    const json_t *source =
        json_object_get(state, about->imported ? "source" : "base");
    char name[WEIGHTS_NAME_MAX];
    fprintf(out, "\n## Training\n\n| | |\n|---|---|\n| step | %" PRId64 " |\n",
            about->step);
    TRY_OUT(put_plain(out, state, "tokens", "tokens"));
    TRY_OUT(put_plain(out, state, "samples", "samples"));
    TRY_OUT(put_plain(out, state, "run_uuid", "run"));
    TRY_OUT(put_plain(out, state, "code_version", "Tessera"));
    TRY_OUT(put_plain(out, state, "config_sha256", "settings, SHA-256"));
    TRY_OUT(put_plain(out, state, "arithmetic", "arithmetic"));
    put_data(out, state);
    if (about->origin != NULL) {
        weights_name(about->origin, name);
        fprintf(out, "| began with | %s |\n", name);
        TRY_OUT(put_plain(out, source, "sha256", "began with, SHA-256"));
    }
    TRY_OUT(put_settings(out, json_object_get(state, "fixed")));
out:
    ckpt_manifest_destroy(manifest);
    return rc;
}

enum err hf_card_write(const struct hf_model *model, const char *what,
                       enum hf_cmd_dtype dtype, const char *folder)
{
    char path[FSIO_PATH_MAX], name[WEIGHTS_NAME_MAX];
    char *text = NULL;
    size_t bytes = 0;
    const struct weights_about *about = model->about;
    TRY(fsio_path(path, "%s/README.md", folder));
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    fprintf(out, "---\n%s", what != NULL ? "library_name: transformers\n" : "");
    if (about->origin != NULL) {
        weights_name(about->origin, name);
        fprintf(out, "base_model: \"%s\"\n", name);
    }
    fprintf(out, "tags:\n- tessera\n---\n# Model card\n\n");
    put_shape(out, model, what, dtype);
    fprintf(out,
            "\nExported by tessera-hf " TESSERA_VERSION " from a %s whose %s "
            "has the SHA-256\n`%s`.\n",
            weights_kind_names[about->kind],
            about->kind == WEIGHTS_CHECKPOINT ? "manifest" : "head",
            about->sha256);
    enum err rc =
        about->kind == WEIGHTS_CHECKPOINT ? put_checkpoint(out, about) : ERR_OK;
    bool failed = ferror(out) != 0;
    failed = fclose(out) != 0 || text == NULL || failed;
    if (rc == ERR_OK && failed)
        rc = err_set(ERR_MEMORY, "out of memory");
    if (rc == ERR_OK)
        rc = fsio_write_atomic(path, text, bytes);
    free(text);
    return rc;
}
