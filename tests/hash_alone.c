/* tessera-hash for a processor whose libraries are not here: linked in place of
 * src/data's files and what else needs jansson, libconfig or libcrypto, so that
 * nothing but the C library is left. The data set of hash_style.h is in memory;
 * all that computes is what users run. */
#include <string.h>

#include "src/base/settings/settings_private.h"
#include "src/hash/hash_style.h"
#include "src/data/set/dataset.h"
#include "src/train/start/run_data.h"
#include "src/train/start/start.h"

#define TOKENS_MAX 16384

static int32_t tokens[TOKENS_MAX];
static int64_t samples, seq_len;

enum err hash_data_create(int64_t sample_count, int64_t length,
                          char folder[FSIO_PATH_MAX])
{
    if (sample_count * length > TOKENS_MAX)
        return err_set(ERR_MEMORY, "%lld tokens are more than %d",
                       (long long)(sample_count * length), TOKENS_MAX);
    samples = sample_count;
    seq_len = length;
    strcpy(folder, "memory");
    hash_text_fill(tokens, samples * seq_len);
    return ERR_OK;
}

void hash_data_remove(const char *folder)
{
    (void)folder;
}

enum err dataset_open_as(const char *path, const struct sidecar *given,
                         bool look, const struct cache_options *options,
                         struct dataset **out)
{
    (void)path;
    (void)given;
    (void)look;
    (void)options;
    *out = (struct dataset *)(void *)tokens;
    return ERR_OK;
}

enum err dataset_open_image(const void *images, const char *path,
                            const struct cache_options *options,
                            struct dataset **out)
{
    (void)images;
    return dataset_open_as(path, NULL, false, options, out);
}

void dataset_close(struct dataset *dataset)
{
    (void)dataset;
}

enum err dataset_read(struct dataset *dataset, int64_t index, int32_t *out,
                      int64_t capacity, int64_t *length)
{
    int64_t count = seq_len < capacity ? seq_len : capacity;
    (void)dataset;
    memcpy(out, tokens + index * seq_len, (size_t)count * sizeof *out);
    *length = seq_len;
    return ERR_OK;
}

int64_t dataset_contents(const struct dataset *dataset)->samples
{
    (void)dataset;
    return samples;
}

int64_t dataset_shard_samples(const struct dataset *dataset, int64_t index)
{
    (void)dataset;
    (void)index;
    return samples;
}

const struct dataset_contents *dataset_contents(const struct dataset *dataset)
{
    static struct dataset_contents contents = { .shards = 1 };
    (void)dataset;
    contents.samples = samples;
    return &contents;
}

enum err run_data_mixture(const struct train_settings *s, bool held_out,
                          const void *images, struct run_data *data)
{
    (void)s;
    (void)held_out;
    (void)images;
    (void)data;
    return err_set(ERR_UNSUPPORTED, "there is one data set, in memory");
}

int64_t dataset_sidecar(const struct dataset *dataset)->vocab_size
{
    (void)dataset;
    return HASH_TEXT_VOCAB;
}

int64_t dataset_sidecar(const struct dataset *dataset)->eos_token
{
    (void)dataset;
    return HASH_TEXT_EOS;
}

int64_t dataset_sidecar(const struct dataset *dataset)->bos_token
{
    (void)dataset;
    return -1;
}

int64_t dataset_longest(const struct dataset *dataset)
{
    (void)dataset;
    return seq_len;
}

const char *dataset_id(const struct dataset *dataset)
{
    (void)dataset;
    return "memory";
}

const char *dataset_sidecar(const struct dataset *dataset)->tokenizer_sha256
{
    (void)dataset;
    return "bytes";
}

const char *dataset_tokenizer_file(const struct dataset *dataset)
{
    (void)dataset;
    return "";
}

const char *dataset_path(const struct dataset *dataset)
{
    (void)dataset;
    return "memory";
}

/* There are no files whose bytes could be checked. */
enum err start_files(struct run *run)
{
    (void)run;
    return ERR_OK;
}

/* Settings come from the command line alone. */
enum err settings_file_read(const char *path, struct settings_table *table)
{
    (void)table;
    return err_set(ERR_UNSUPPORTED, "%s: no files are read here", path);
}
