/* A Hugging Face folder as a MODEL: config.json, safetensors, tokenizer files.
 *
 * What is listed follows from config.json: a folder whose tensors are others is
 * one whose list does not match (weights_match). Two habits of published
 * folders are known: names may lack the prefix of the whole model, where only
 * its inner part was saved, and a tied output layer may be there a second time,
 * which then has to be the embedding byte by byte.
 *
 * The digest that a run remembers a folder by covers the configuration and what
 * the headers say, not the numbers: reading all of them would take as long as
 * filling the model. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/formats/hf/hf_config.h"
#include "src/formats/hf/hf_files.h"
#include "src/formats/safetensors/safetensors.h"
#include "src/formats/weights_slices.h"
#include "src/text/tokenizer/sentencepiece.h"
#include "src/text/tokenizer/tokenizer_beside.h"

#define CONFIG_MAX ((size_t)1 << 20)
#define COMPARE_BYTES 65536

struct state {
    struct safetensors *set;
    enum arch arch;
    bool bare;    /* names lack the architecture's prefix (arch.h) */
    bool twice;   /* a tied model's file has the output layer, too */
    char *config; /* text */
    size_t bytes; /* of it */
    struct hf_files files;
    char *generation, *unusable;
    char sha256[65], sha256_files[65];
};

static bool has(const char *folder, const char *name)
{
    char path[FSIO_PATH_MAX];
    bool fits = fsio_path(path, "%s/%s", folder, name) == ERR_OK;
    return fits && fsio_exists(path);
}

static bool is_hf(const char *path)
{
    return has(path, "config.json") || has(path, SAFETENSORS_FILE) ||
           has(path, SAFETENSORS_INDEX);
}

/* --- the tensors, for weights_slices.c --- */

static void at(void *arg, int tensor, struct weights_tensor *out)
{
    const struct state *state = arg;
    const struct safetensors_tensor *t = &state->set->list[tensor];
    *out = (struct weights_tensor){ .dims = 0 };
    snprintf(out->name, sizeof out->name, "%s", t->name);
    if (t->dims < 1 || t->dims > 2)
        return;
    out->dims = t->dims;
    out->shape[0] = t->shape[0];
    out->shape[1] = t->dims == 2 ? t->shape[1] : 0;
}

static int find(void *arg, const char *name)
{
    const struct state *state = arg;
    const char *prefix = arch_rows[state->arch].prefix;
    size_t bytes = strlen(prefix);
    if (state->bare && strncmp(name, prefix, bytes) == 0)
        name += bytes;
    const struct safetensors_tensor *found = safetensors_find(state->set, name);
    return found == NULL ? -1 : (int)(found - state->set->list);
}

static bool is_buffer(void *arg, const char *name)
{
    const struct state *state = arg;
    return hf_names_is_buffer(state->arch, name) ||
           (state->twice && strcmp(name, ARCH_HF_HEAD) == 0);
}

static enum err read_tensor(void *arg, int tensor, int64_t first, int64_t count,
                            float *out)
{
    const struct state *state = arg;
    return safetensors_read_f32(state->set, &state->set->list[tensor], first,
                                count, out);
}

/* --- opening --- */

/* Whether no name begins with what the architecture's begin with. */
static bool is_bare(const struct state *state)
{
    const char *prefix = arch_rows[state->arch].prefix;
    for (int i = 0; i < state->set->count; i++)
        if (strncmp(state->set->list[i].name, prefix, strlen(prefix)) == 0)
            return false;
    return true;
}

static enum err same_bytes(const struct state *state,
                           const struct safetensors_tensor *a,
                           const struct safetensors_tensor *b, bool *same)
{
    char left[COMPARE_BYTES], right[COMPARE_BYTES];
    int64_t size = safetensors_dtype_bytes(a->dtype);
    int64_t step = COMPARE_BYTES / size;
    *same = a->dtype == b->dtype && a->numel == b->numel;
    for (int64_t i = 0; i < a->numel && *same; i += step) {
        int64_t count = a->numel - i < step ? a->numel - i : step;
        TRY(safetensors_read(state->set, a, i, count, left));
        TRY(safetensors_read(state->set, b, i, count, right));
        *same = memcmp(left, right, (size_t)(count * size)) == 0;
    }
    return ERR_OK;
}

/* The output layer of a tied model may be there once more. */
static enum err check_head(struct state *state, const char *path)
{
    bool same = false;
    const struct safetensors_tensor *head =
        safetensors_find(state->set, ARCH_HF_HEAD);
    const struct arch_tensor *tied = arch_rows[state->arch].hf.tensors;
    assert(tied->role == PARAM_WTE); /* the first of every table */
    int embedding = find(state, tied->name);
    if (head == NULL || embedding < 0)
        return ERR_OK;
    const struct safetensors_tensor *first = &state->set->list[embedding];
    TRY(same_bytes(state, head, first, &same));
    if (!same)
        return err_set(ERR_DATA,
                       "%s: config.json says that the output layer is the "
                       "embedding (tie_word_embeddings), but %s differs from "
                       "%s",
                       path, ARCH_HF_HEAD, first->name);
    state->twice = true;
    return ERR_OK;
}

/* "float32", "bfloat16", "float16", or "mixed". */
static const char *dtype_of(const struct safetensors *set)
{
    enum safetensors_dtype first = SAFETENSORS_DTYPES;
    for (int i = 0; i < set->count; i++) {
        enum safetensors_dtype dtype = set->list[i].dtype;
        if (first != SAFETENSORS_DTYPES && first != dtype)
            return "mixed";
        first = dtype;
    }
    return first == SAFETENSORS_F32     ? "float32"
           : first == SAFETENSORS_BF16  ? "bfloat16"
           : first == SAFETENSORS_F16   ? "float16"
           : first < SAFETENSORS_DTYPES ? safetensors_dtype_name(first)
                                        : "none";
}

static enum err update(struct digest *digest, const char *text)
{
    return digest_update(digest, text, strlen(text) + 1);
}

/* The digest of config.json and the headers; `files`: of those beside, too. */
static enum err make_sha256(const struct state *state, bool files,
                            char sha256[65])
{
    enum err rc = ERR_OK;
    struct digest *digest = NULL;
    TRY_OUT(digest_create(&digest));
    TRY_OUT(digest_update(digest, state->config, state->bytes));
    for (int i = 0; i < state->set->count; i++) {
        const struct safetensors_tensor *t = &state->set->list[i];
        TRY_OUT(update(digest, t->name));
        TRY_OUT(update(digest, safetensors_dtype_name(t->dtype)));
        TRY_OUT(digest_update(digest, t->shape,
                              (size_t)t->dims * sizeof t->shape[0]));
        TRY_OUT(digest_update(digest, &t->offset, sizeof t->offset));
    }
    for (int i = 0; i < HF_FILES && files; i++)
        if (state->files.text[i] != NULL)
            TRY_OUT(digest_update(digest, state->files.text[i],
                                  state->files.bytes[i]));
    TRY_OUT(digest_finish(digest, sha256));
out:
    digest_destroy(digest);
    return rc;
}

/* A tokenizer.json, or what a tokenizer.model becomes, with the tokens that files beside
 * it add. */
static enum err read_tokenizer(const char *path, struct hf_files *files)
{
    char name[FSIO_PATH_MAX];
    struct sentencepiece made = { NULL };
    if (files->text[HF_FILE_TOKENIZER] == NULL &&
        has(path, SENTENCEPIECE_FILE)) {
        TRY(fsio_path(name, "%s/" SENTENCEPIECE_FILE, path));
        enum err rc = sentencepiece_load(name, &made);
        if (rc != ERR_OK)
            return rc == ERR_DATA ? ERR_UNSUPPORTED : rc;
        files->text[HF_FILE_TOKENIZER] = made.json;
        files->bytes[HF_FILE_TOKENIZER] = strlen(made.json);
    }
    if (files->text[HF_FILE_TOKENIZER] == NULL)
        return ERR_OK;
    TRY(fsio_path(name, "%s/%s", path, hf_files_name(HF_FILE_TOKENIZER)));
    return tokenizer_beside_add(name, &files->text[HF_FILE_TOKENIZER],
                                &files->bytes[HF_FILE_TOKENIZER], NULL, NULL);
}

/* The tokenizer's files, and what they say of the vocabulary. A model whose tokenizer is
 * of a kind that is not there, another thing by that name (a list of tiktoken's), or
 * lacks a token that is named beside it is one without: its weights are none the worse.
 * Who asks for its tokenizer hears why. */
static enum err open_files(const char *path, struct state *state,
                           struct weights_about *about)
{
    struct hf_files *files = &state->files;
    TRY(hf_files_read(path, files));
    enum err rc = read_tokenizer(path, files);
    if (rc == ERR_OK)
        rc = weights_slices_tokens(files, path, state->config, state->bytes,
                                   about, &state->generation);
    if (rc == ERR_UNSUPPORTED) {
        log_warn("%s", err_text());
        TRY(new_text(&state->unusable, err_text()));
        about->unusable = state->unusable;
        free(files->text[HF_FILE_TOKENIZER]);
        files->text[HF_FILE_TOKENIZER] = NULL;
        rc = weights_slices_tokens(files, path, state->config, state->bytes,
                                   about, &state->generation);
    }
    if (rc == ERR_OK && about->tokenizer == NULL)
        log_warn("%s has no tokenizer.json or tokenizer.model%s: texts can't "
                 "be read or written",
                 path, about->unusable != NULL ? " that can be used" : "");
    return rc;
}

static enum err open_hf(const char *path, struct weights_source *source)
{
    char name[FSIO_PATH_MAX];
    struct weights_about *about = &source->about;
    struct state *state = NULL;
    TRY(new_zeroed(&state, 1));
    source->state = state;
    TRY(fsio_path(name, "%s/config.json", path));
    TRY(fsio_read_file(name, CONFIG_MAX, &state->config, &state->bytes));
    TRY(hf_config_parse(state->config, state->bytes, name, &state->arch,
                        &about->config));
    TRY(safetensors_open(path, &state->set));
    TRY(open_files(path, state, about));
    state->bare = is_bare(state);
    if (has(path, "adapter_config.json"))
        log_warn("%s has an adapter beside its weights, which is not read: for "
                 "a model with it give a folder without config.json",
                 path);
    if (about->config.tied)
        TRY(check_head(state, path));
    const struct weights_slices_file file = {
        .arg = state,
        .count = state->set->count,
        .at = at,
        .find = find,
        .is_buffer = is_buffer,
        .read = read_tensor,
    };
    TRY(weights_slices_create(&file, &arch_rows[state->arch].hf, source));
    TRY(make_sha256(state, false, state->sha256));
    TRY(make_sha256(state, true, state->sha256_files));
    about->dtype = dtype_of(state->set);
    about->sha256 = state->sha256;
    about->sha256_files = state->sha256_files;
    return ERR_OK;
}

static void close_hf(struct weights_source *source)
{
    struct state *state = source->state;
    free(source->list);
    if (state == NULL)
        return;
    weights_slices_destroy(source->slices);
    hf_files_free(&state->files);
    free(state->generation);
    free(state->unusable);
    safetensors_close(state->set);
    free(state->config);
    free(state);
}

const struct weights_ops weights_hf = {
    .kind = WEIGHTS_HF,
    .what = "a Hugging Face folder (config.json, " SAFETENSORS_FILE ")",
    .is = is_hf,
    .open = open_hf,
    .close = close_hf,
    .read = weights_slices_read,
};
