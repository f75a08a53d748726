/* Writes words of random letters, makes a data set of them and has a benchmark
 * measure what training on it takes. */
#include "src/cmd/bench_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/rng.h"
#include "src/data/prepare/tokenize.h"

#define TEXT_BYTES (8 << 20)

/* Words of random letters: the loader does not care what they say. In samples
 * of seq_len tokens. */
static enum err make_text(const char *dir, const char *data, int64_t seq_len)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX] = "";
    char *files[] = { path };
    struct tokenize_result result;
    char *text = malloc(TEXT_BYTES);
    if (text == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < TEXT_BYTES; i++)
        text[i] = " etaoinshrdlu\netaoinshrdlcumwfgypbv"[rng_u64(1, 2, i) % 35];
    TRY_OUT(fsio_path(path, "%s/text", dir));
    TRY_OUT(fsio_write_atomic(path, text, TEXT_BYTES));
    struct tokenize_options options = {
        .out = data,
        .tokenizer = "bytes",
        .seq_len = seq_len,
        .shard_bytes = 1 << 20,
        .replace = true,
    };
    TRY_OUT(tokenize_files(&options, files, 1, &result));
out:
    if (path[0] != '\0')
        (void)unlink(path);
    free(text);
    return rc;
}

enum err bench_text_train(const struct bench_options *options,
                          char *const *overrides, int count,
                          bench_text_measure *measure, json_t **result)
{
    enum err rc = ERR_OK;
    char data[FSIO_PATH_MAX];
    char train[FSIO_PATH_MAX + 32];
    char run[FSIO_PATH_MAX + 32];
    struct comm *comm = NULL;
    struct train_settings *settings = calloc(1, sizeof *settings);
    int own = count + 2, all_count = own + options->override_count;
    char **all = calloc((size_t)all_count, sizeof *all);
    if (settings == NULL || all == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "out of memory"));
    TRY_OUT(fsio_path(data, "%s/data", options->dir));
    snprintf(train, sizeof train, "data.train=%s", data);
    snprintf(run, sizeof run, "run.dir=%s", options->dir);
    all[0] = run;
    all[1] = train;
    for (int i = 2; i < all_count; i++)
        all[i] = i < own ? overrides[i - 2] : options->overrides[i - own];
    TRY_OUT(train_settings_load(NULL, all, all_count, settings));
    TRY_OUT(make_text(options->dir, data, settings->data.seq_len));
    TRY_OUT(comm_create("self", NULL, NULL, 60.0, &comm));
    TRY_OUT(measure(options, comm, settings, result));
out:
    comm_destroy(comm);
    free(settings);
    free(all);
    return rc;
}
