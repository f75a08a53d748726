/* Writes and checks the copy of a tokenizer's file.
 *
 * Numbers of tokens mean nothing without the file that they were made with, and
 * a path or a name does not keep it. So a set carries it, and the digest in
 * tessera.json, which is part of the set's identity, says whether it still is
 * that one. */
#include "src/data/set/sidecar.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/regular.h"
#include "src/text/tokenizer/tokenizer.h"

#define COPY_BYTES_MAX ((size_t)1 << 30)

enum err tokenizer_copy_write(const char *folder,
                              const struct tokenizer *tokenizer)
{
    assert(folder != NULL && tokenizer != NULL);
    char path[FSIO_PATH_MAX];
    size_t bytes = 0;
    const char *file = tokenizer_file(tokenizer, &bytes);
    if (file == NULL)
        return ERR_OK;
    TRY(fsio_path(path, "%s/" TOKENIZER_COPY_NAME, folder));
    return fsio_write_atomic(path, file, bytes);
}

enum err sidecar_write_made(const char *folder, struct sidecar *sidecar,
                            const struct tokenizer *tokenizer)
{
    snprintf(sidecar->tokenizer, sizeof sidecar->tokenizer, "%s",
             tokenizer_name(tokenizer));
    snprintf(sidecar->tokenizer_sha256, sizeof sidecar->tokenizer_sha256, "%s",
             tokenizer_sha256(tokenizer));
    snprintf(sidecar->unicode, sizeof sidecar->unicode, "%s",
             tokenizer_unicode(tokenizer));
    TRY(tokenizer_copy_write(folder, tokenizer));
    return sidecar_write(folder, sidecar);
}

enum err tokenizer_copy_find(const char *folder, const char *name,
                             const char *sha256, char path[FSIO_PATH_MAX])
{
    enum err rc = ERR_OK;
    char *file = NULL, found[65];
    size_t bytes = 0;
    TRY(fsio_path(path, "%s/" TOKENIZER_COPY_NAME, folder));
    if (!fsio_exists(path)) {
        path[0] = '\0';
        return ERR_OK;
    }
    TRY_OUT(regular_read(path, COPY_BYTES_MAX, &file, &bytes));
    TRY_OUT(digest_bytes(file, bytes, found));
    if (strcmp(found, sha256) != 0)
        rc = err_set(ERR_DATA,
                     "%s has the SHA-256 %s, but the tokenizer '%s' of this "
                     "data set has %s: copy the set again; one that was made "
                     "elsewhere, adopt with --tokenizer %s",
                     path, found, name, sha256, path);
out:
    free(file);
    return rc;
}
