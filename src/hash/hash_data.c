/* Makes and removes the data set that tessera-hash trains on: a real one in a
 * folder, by the library's own writer, so that its reader takes part in what is
 * hashed. */
#include "src/hash/hash_style.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/base/new.h"
#include "src/data/mds/mds_writer.h"
#include "src/data/set/sidecar.h"

#define SHARD_BYTES (1 << 20)

static enum err write_samples(const char *folder, const int32_t *tokens,
                              int64_t samples, int64_t seq_len)
{
    enum err rc = ERR_OK;
    struct mds_writer *writer = NULL;
    TRY_OUT(mds_writer_create_tokens(folder, SHARD_BYTES, true, &writer));
    for (int64_t s = 0; s < samples; s++)
        TRY_OUT(mds_writer_add(writer, tokens + s * seq_len, seq_len));
    TRY_OUT(mds_writer_finish(writer));
out:
    mds_writer_destroy(writer);
    return rc;
}

static enum err write_sidecar(const char *folder, int64_t samples,
                              int64_t seq_len)
{
    struct sidecar sidecar = { .vocab_size = HASH_TEXT_VOCAB,
                               .tokenizer = "bytes",
                               .samples = samples,
                               .tokens = samples * seq_len,
                               .eos_token = HASH_TEXT_EOS,
                               .bos_token = -1,
                               .longest = seq_len };
    memset(sidecar.tokenizer_sha256, '0', 64);
    return sidecar_write(folder, &sidecar);
}

enum err hash_data_create(int64_t samples, int64_t seq_len,
                          char folder[FSIO_PATH_MAX])
{
    assert(samples > 0 && seq_len > 0);
    enum err rc = ERR_OK;
    char prefix[FSIO_PATH_MAX];
    const char *parent = getenv("TMPDIR");
    size_t count = (size_t)(samples * seq_len);
    int32_t *tokens = NULL;
    folder[0] = '\0';
    TRY(new_room(&tokens, count));
    if (parent == NULL || parent[0] == '\0')
        parent = "/tmp";
    TRY_OUT(fsio_path(prefix, "%s/tessera-hash", parent));
    TRY_OUT(fsio_mkdir_new(prefix, folder));
    hash_text_fill(tokens, samples * seq_len);
    TRY_OUT(write_samples(folder, tokens, samples, seq_len));
    TRY_OUT(write_sidecar(folder, samples, seq_len));
out:
    free(tokens);
    return rc;
}

void hash_data_remove(const char *folder)
{
    if (folder[0] != '\0' && fsio_remove_tree(folder) != ERR_OK)
        log_error("%s stays: it cannot be removed", folder);
}
