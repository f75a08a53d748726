/* Writes words of random letters and makes a data set of them, for the
 * benchmarks that train from one. */
#include "src/cmd/bench_text.h"

#include <stdlib.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/rng.h"
#include "src/data/tokenize.h"

#define TEXT_BYTES (8 << 20)

/* Words of random letters: the loader does not care what they say. */
enum err bench_text(const char *dir, const char *data, int64_t seq_len)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX] = "";
    char *files[] = { path };
    struct tokenize_result result;
    char *text = malloc(TEXT_BYTES);
    if (text == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < TEXT_BYTES; i++)
        text[i] = " etaoinshrdlu\netaoinshrdlcumwfgypbv"[rng_u64(1, 2, i) % 36];
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
