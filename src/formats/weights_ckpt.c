/* A checkpoint of ours, or a run directory, which is its newest good one. One
 * process reads any interval of any tensor from the shards, whatever strategy
 * and number of ranks has written them; every byte is checked against its CRC
 * (checkpoint/tools/ckpt_tensor.h).
 *
 * A checkpoint has more than weights: moments of the optimizer, and what
 * algorithms keep, under names with a prefix. PATH#NAME means the weights that
 * an algorithm keeps (an average, say), which have the model's names behind
 * that prefix. One that has only a part of its model, as after tuning with
 * adapters, is completed by weights_tuned.c, and then looks like any other. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "checkpoint/ckpt_place.h"
#include "checkpoint/tools/ckpt_tensor.h"
#include "src/base/digest.h"
#include "src/base/new.h"
#include "src/formats/hf/hf_files.h"
#include "src/text/tokenizer/tokenizer.h"
#include "src/formats/weights_ckpt_config.h"
#include "src/formats/weights_impl.h"
#include "src/formats/weights_tuned.h"

#define GENERATION_BYTES_MAX ((size_t)1 << 20)
#define TOKENIZER_BYTES_MAX ((int64_t)1 << 28)
#define CONVERT_ELEMENTS ((int64_t)1 << 16)
/* Bytes of the name of an algorithm. */
#define MEAN_BYTES 48

struct ckpt_source {
    char path[FSIO_PATH_MAX]; /* of the checkpoint itself */
    char mean[MEAN_BYTES];    /* whose weights are read; "": the model's own */
    char named[FSIO_PATH_MAX + MEAN_BYTES]; /* both, as it can be opened */
    char sha256[65];
    struct ckpt_manifest *manifest;
    struct ckpt_tensor_reader *reader;
    int *tensor_of; /* the manifest's number of each tensor of the list */
    struct weights_tuned *tuned; /* NULL: it has all of its model */
    struct weights_tensor *own;  /* then what it has, by tensor_of */
    char *tokenizer;
    char *generation; /* of a file in its folder */
    char *convert;    /* room for CONVERT_ELEMENTS, as stored */
};

static bool is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* PATH#NAME, unless that is there: the checkpoint's path, and `mean`; the path may
 * be RUN#best or RUN#STEP. */
static void split_path(const char *named, char path[FSIO_PATH_MAX],
                       char mean[MEAN_BYTES])
{
    const char *mark = strrchr(named, '#');
    bool whole = mark == NULL || ckpt_index_is_named(named) ||
                 strlen(mark) > MEAN_BYTES || strchr(mark, '/') != NULL ||
                 fsio_exists(named);
    size_t bytes = whole ? strlen(named) : (size_t)(mark - named);
    snprintf(path, FSIO_PATH_MAX, "%.*s",
             (int)(bytes < FSIO_PATH_MAX ? bytes : FSIO_PATH_MAX - 1), named);
    snprintf(mean, MEAN_BYTES, "%s", whole ? "" : mark + 1);
}

static bool ckpt_is(const char *named)
{
    char inner[FSIO_PATH_MAX];
    char path[FSIO_PATH_MAX];
    char mean[MEAN_BYTES];
    split_path(named, path, mean);
    if (ckpt_index_is_named(path))
        *strrchr(path, '#') = '\0';
    return (fsio_path(inner, "%s/%s", path, CKPT_MANIFEST_FILE) == ERR_OK &&
            fsio_exists(inner)) ||
           (fsio_path(inner, "%s/checkpoints", path) == ERR_OK &&
            is_folder(inner));
}

/* --- which one --- */

static enum err read_manifest(struct ckpt_source *source)
{
    enum err rc = ERR_OK;
    char *text = NULL;
    size_t bytes = 0;
    TRY_OUT(ckpt_manifest_read(source->path, &text, &bytes, &source->manifest));
    TRY_OUT(ckpt_manifest_check_sizes(source->manifest, source->path));
    TRY_OUT(digest_bytes(text, bytes, source->sha256));
out:
    free(text);
    return rc;
}

static enum err find_checkpoint(struct ckpt_source *source, const char *path)
{
    char manifest[FSIO_PATH_MAX], place[FSIO_PATH_MAX];
    TRY(ckpt_index_named(path, place));
    TRY(fsio_path(manifest, "%s/%s", place, CKPT_MANIFEST_FILE));
    TRY(fsio_exists(manifest) ? fsio_path(source->path, "%s", place)
                              : ckpt_index_newest(source->path, place));
    return read_manifest(source);
}

/* --- what is in it --- */

/* The optimizer's moments and what lies beside the model are no weights. */
static bool is_weight(const char *name)
{
    return strncmp(name, "optimizer/", 10) != 0 &&  /* moments */
           strncmp(name, "algorithms/", 11) != 0 && /* averages and such */
           strncmp(name, "data/", 5) != 0;
}

/* A tensor's name as a weight; NULL: it is none. */
static const char *weight_name(const struct ckpt_source *checkpoint,
                               const struct ckpt_tensor *tensor)
{
    size_t bytes = strlen(checkpoint->mean);
    const char *name = tensor->name + strlen("algorithms/");
    if (bytes == 0)
        return is_weight(tensor->name) ? tensor->name : NULL;
    if (strncmp(tensor->name, "algorithms/", strlen("algorithms/")) != 0 ||
        strncmp(name, checkpoint->mean, bytes) != 0 || name[bytes] != '/')
        return NULL;
    return name + bytes + 1;
}

/* Whether the algorithm has weights by now. */
static enum err check_mean(const struct ckpt_source *checkpoint)
{
    size_t i;
    const json_t *item;
    const json_t *list =
        json_object_get(checkpoint->manifest->state, "algorithms");
    json_array_foreach(list, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name == NULL || strcmp(name, checkpoint->mean) != 0)
            continue;
        return json_is_true(json_object_get(item, "weights"))
                   ? ERR_OK
                   : err_set(ERR_CHECKPOINT,
                             "%s: at step %lld the algorithm %s has no weights "
                             "of its own: leave #%s out",
                             checkpoint->path,
                             (long long)checkpoint->manifest->step, name, name);
    }
    return err_set(ERR_CHECKPOINT,
                   "%s: its run has no algorithm %s: leave #%s out",
                   checkpoint->path, checkpoint->mean, checkpoint->mean);
}

static enum err list_tensors(struct ckpt_source *checkpoint,
                             struct weights_source *source)
{
    const struct ckpt_manifest *manifest = checkpoint->manifest;
    size_t count = (size_t)manifest->tensor_count;
    _Static_assert(WEIGHTS_NAME_BYTES >= CKPT_NAME_BYTES, "names fit");
    TRY(new_zeroed(&source->list, count + 1));
    TRY(new_zeroed(&checkpoint->tensor_of, count + 1));
    for (int t = 0; t < manifest->tensor_count; t++) {
        const struct ckpt_tensor *tensor = &manifest->tensors[t];
        struct weights_tensor *entry = &source->list[source->count];
        const char *name = weight_name(checkpoint, tensor);
        if (name == NULL)
            continue;
        snprintf(entry->name, sizeof entry->name, "%s", name);
        if (dtype_is_real(tensor->dtype) && tensor->dims >= 1 &&
            tensor->dims <= 2) {
            entry->dims = tensor->dims;
            memcpy(entry->shape, tensor->shape,
                   (size_t)tensor->dims * sizeof entry->shape[0]);
        }
        checkpoint->tensor_of[source->count++] = t;
    }
    return ERR_OK;
}

static const char *stored_dtype(const struct ckpt_source *checkpoint,
                                const struct weights_source *source)
{
    static const char *const names[] = { [DTYPE_F32] = "float32",
                                         [DTYPE_BF16] = "bfloat16",
                                         [DTYPE_I32] = "int32",
                                         [DTYPE_F64] = "float64",
                                         [DTYPE_U8] = "uint8" };
    const struct ckpt_tensor *tensors = checkpoint->manifest->tensors;
    for (int i = 1; i < source->count; i++)
        if (tensors[checkpoint->tensor_of[i]].dtype !=
            tensors[checkpoint->tensor_of[0]].dtype)
            return "mixed";
    return source->count > 0 ? names[tensors[checkpoint->tensor_of[0]].dtype]
                             : "none";
}

static enum err read_tokenizer(struct ckpt_source *checkpoint,
                               struct weights_about *about)
{
    const struct ckpt_manifest *manifest = checkpoint->manifest;
    for (int t = 0; t < manifest->tensor_count; t++) {
        const struct ckpt_tensor *tensor = &manifest->tensors[t];
        if (strcmp(tensor->name, WEIGHTS_CKPT_TOKENIZER) != 0)
            continue;
        if (tensor->dtype != DTYPE_U8 || tensor->dims != 1 ||
            tensor->elements > TOKENIZER_BYTES_MAX)
            return err_set(ERR_CHECKPOINT, "%s: %s is no file of a tokenizer",
                           checkpoint->path, tensor->name);
        TRY(new_room(&checkpoint->tokenizer, (size_t)tensor->elements + 1));
        TRY(ckpt_tensor_read(checkpoint->reader, t, 0, tensor->elements,
                             checkpoint->tokenizer));
        checkpoint->tokenizer[tensor->elements] = '\0';
        about->tokenizer = checkpoint->tokenizer;
        about->tokenizer_bytes = (size_t)tensor->elements;
    }
    return ERR_OK;
}

/* A run on data of the built-in tokenizer has its digest alone. */
static enum err find_builtin(const json_t *state, struct weights_about *about)
{
    enum err rc = ERR_OK;
    struct tokenizer *tokenizer = NULL;
    const char *sha256 = json_string_value(
        json_object_get(json_object_get(state, "fixed"), "tokenizer"));
    /* nothing to look for: it has a file, or it is older than that record */
    if (about->tokenizer != NULL || sha256 == NULL)
        return ERR_OK;
    TRY_OUT(tokenizer_create(TOKENIZER_DEFAULT, &tokenizer));
    if (strcmp(sha256, tokenizer_sha256(tokenizer)) == 0) {
        about->builtin_tokenizer = TOKENIZER_DEFAULT;
        about->eos = tokenizer_eos(tokenizer);
        about->vocab = tokenizer_vocab_size(tokenizer);
    }
out:
    tokenizer_destroy(tokenizer);
    return rc;
}

/* A token that is not in the vocabulary means none. */
static int32_t token_of(const json_t *text, const char *name, int64_t vocab)
{
    const json_t *value = json_object_get(text, name);
    int64_t token = json_is_integer(value) ? json_integer_value(value) : -1;
    return token >= 0 && token < vocab ? (int32_t)token : -1;
}

static void read_text(const json_t *state, struct weights_about *about)
{
    const json_t *text = json_object_get(state, "text");
    int64_t rows = about->config.vocab_size;
    int64_t vocab = json_integer_value(json_object_get(text, "vocab_size"));
    if (vocab > 0)
        about->vocab = vocab;
    if (about->vocab < 1 || about->vocab > rows)
        about->vocab = rows;
    if (text == NULL)
        return;
    about->bos = token_of(text, "bos", rows);
    about->eos = token_of(text, "eos", rows);
    about->pad = token_of(text, "pad", rows);
    about->generation = json_string_value(json_object_get(text, "generation"));
    about->chat_template =
        json_string_value(json_object_get(text, "chat_template"));
}

/* A file that lies there counts before what is within. */
static enum err read_generation(struct ckpt_source *checkpoint,
                                struct weights_about *about)
{
    char path[FSIO_PATH_MAX];
    size_t bytes = 0;
    TRY(fsio_path(path, "%s/%s", checkpoint->path,
                  hf_files_name(HF_FILE_GENERATION_CONFIG)));
    if (!fsio_exists(path))
        return ERR_OK;
    TRY(fsio_read_file(path, GENERATION_BYTES_MAX, &checkpoint->generation,
                       &bytes));
    about->generation = checkpoint->generation;
    return ERR_OK;
}

/* --- what is read of it --- */

static enum err read_own(void *arg, int index, int64_t begin, int64_t end,
                         float *out)
{
    struct ckpt_source *checkpoint = arg;
    int number = checkpoint->tensor_of[index];
    enum dtype dtype = checkpoint->manifest->tensors[number].dtype;
    if (dtype == DTYPE_F32)
        return ckpt_tensor_read(checkpoint->reader, number, begin, end, out);
    while (begin < end) {
        int64_t count =
            end - begin < CONVERT_ELEMENTS ? end - begin : CONVERT_ELEMENTS;
        TRY(ckpt_tensor_read(checkpoint->reader, number, begin, begin + count,
                             checkpoint->convert));
        ckpt_place_convert(dtype, checkpoint->convert, DTYPE_F32, out, count);
        begin += count;
        out += count;
    }
    return ERR_OK;
}

/* Where it has a part of its model: all tensors of that. */
static enum err complete(struct ckpt_source *checkpoint,
                         struct weights_source *source, const json_t *state)
{
    struct weights_tuned_own own = { .arg = checkpoint,
                                     .list = source->list,
                                     .count = source->count,
                                     .read = read_own };
    if (!weights_tuned_is(state))
        return ERR_OK;
    checkpoint->own = source->list;
    source->list = NULL;
    source->count = 0;
    TRY(weights_tuned_open(state, checkpoint->path, &source->about.config, &own,
                           &checkpoint->tuned));
    weights_tuned_about(checkpoint->tuned, &source->about);
    return weights_tuned_list(checkpoint->tuned, &source->list, &source->count);
}

static enum err ckpt_open(const char *path, struct weights_source *source)
{
    struct weights_about *about = &source->about;
    struct ckpt_source *checkpoint = NULL;
    TRY(new_zeroed(&checkpoint, 1));
    source->state = checkpoint;
    char place[FSIO_PATH_MAX];
    split_path(path, place, checkpoint->mean);
    TRY(find_checkpoint(checkpoint, place));
    if (checkpoint->mean[0] != '\0')
        TRY(check_mean(checkpoint));
    snprintf(checkpoint->named, sizeof checkpoint->named, "%s%s%s",
             checkpoint->path, checkpoint->mean[0] != '\0' ? "#" : "",
             checkpoint->mean);
    const json_t *state = checkpoint->manifest->state;
    const json_t *tokens = json_object_get(state, "tokens");
    TRY(new_room(&checkpoint->convert,
                 (size_t)CONVERT_ELEMENTS * sizeof(double)));
    TRY(weights_ckpt_config_read(state, checkpoint->path, &about->config));
    TRY(ckpt_tensor_create(checkpoint->path, checkpoint->manifest,
                           &checkpoint->reader));
    TRY(list_tensors(checkpoint, source));
    about->dtype = stored_dtype(checkpoint, source);
    about->origin = json_string_value(
        json_object_get(json_object_get(state, "source"), "path"));
    about->imported = about->origin != NULL;
    TRY(complete(checkpoint, source, state));
    TRY(read_tokenizer(checkpoint, about));
    TRY(find_builtin(state, about));
    read_text(state, about);
    TRY(read_generation(checkpoint, about));
    about->path = checkpoint->path;
    about->named = checkpoint->named;
    about->step = checkpoint->manifest->step;
    if (json_is_integer(tokens))
        about->tokens = json_integer_value(tokens);
    about->sha256 = checkpoint->sha256;
    return ERR_OK;
}

static void ckpt_close(struct weights_source *source)
{
    struct ckpt_source *checkpoint = source->state;
    free(source->list);
    if (checkpoint == NULL)
        return;
    weights_tuned_close(checkpoint->tuned);
    free(checkpoint->own);
    ckpt_tensor_destroy(checkpoint->reader);
    ckpt_manifest_destroy(checkpoint->manifest);
    free(checkpoint->tensor_of);
    free(checkpoint->tokenizer);
    free(checkpoint->generation);
    free(checkpoint->convert);
    free(checkpoint);
}

/* --- reading --- */

static enum err ckpt_read_floats(struct weights_source *source, int index,
                                 int64_t begin, int64_t end, float *out)
{
    struct ckpt_source *checkpoint = source->state;
    return checkpoint->tuned != NULL
               ? weights_tuned_read(checkpoint->tuned, index, begin, end, out)
               : read_own(checkpoint, index, begin, end, out);
}

static enum err ckpt_read_lora(struct weights_source *source, const char *name,
                               int64_t rows, int64_t cols, float **out)
{
    struct ckpt_source *checkpoint = source->state;
    return weights_tuned_matrix(checkpoint->tuned, name, rows, cols, out);
}

const struct weights_ops weights_ckpt = {
    .kind = WEIGHTS_CHECKPOINT,
    .what = "a checkpoint (a folder with MANIFEST.json), a run directory (with "
            "checkpoints/)",
    .is = ckpt_is,
    .open = ckpt_open,
    .close = ckpt_close,
    .read = ckpt_read_floats,
    .read_lora = ckpt_read_lora,
};
