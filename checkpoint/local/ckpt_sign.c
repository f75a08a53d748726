/* Signs node-local checkpoints and looks whose they are. */
#include "checkpoint/local/ckpt_sign.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/fsio.h"

#define SIGN_FILE "SIGNATURE"
#define SIGN_DIGITS 64

enum err ckpt_sign(const char *checkpoint_dir, const char *key,
                   const char *manifest, size_t bytes)
{
    char path[FSIO_PATH_MAX], hex[SIGN_DIGITS + 1];
    TRY(digest_sign(key != NULL ? key : "", manifest, bytes, hex));
    TRY(fsio_path(path, "%s/%s", checkpoint_dir, SIGN_FILE));
    return fsio_write_hint(path, hex, SIGN_DIGITS);
}

bool ckpt_sign_is_good(const char *checkpoint_dir, const char *key,
                       const char *manifest, size_t bytes)
{
    char path[FSIO_PATH_MAX], hex[SIGN_DIGITS + 1];
    char *found = NULL;
    size_t length;
    bool good =
        digest_sign(key != NULL ? key : "", manifest, bytes, hex) == ERR_OK &&
        fsio_path(path, "%s/%s", checkpoint_dir, SIGN_FILE) == ERR_OK &&
        fsio_read_file(path, SIGN_DIGITS, &found, &length) == ERR_OK &&
        length == SIGN_DIGITS && digest_same(hex, found);
    free(found);
    return good;
}
