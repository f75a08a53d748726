#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/train/train_settings.h"

enum err train_settings_hash(const struct train_settings *settings,
                             char hex[65])
{
    static const char *const groups[] = {
        "model.",
        "data.seq_len",
        "memory.compression",
        "train.",
        "optimizer.",
        "scheduler.",
        "parallel.slots",
        "parallel.sequence_chunks",
        "parallel.determinism",
    };
    enum err rc = ERR_OK;
    struct digest *digest = NULL;
    char *text = NULL;
    TRY(digest_create(&digest));
    for (int i = 0; i < train_settings_count; i++) {
        const char *key = train_settings_schema[i].key;
        bool counts = false;
        for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++)
            counts |= strncmp(key, groups[g], strlen(groups[g])) == 0;
        if (!counts)
            continue;
        TRY(train_settings_print(settings, key, &text));
        TRY(digest_update(digest, key, strlen(key) + 1));
        TRY(digest_update(digest, text, strlen(text) + 1));
        free(text);
        text = NULL;
    }
    TRY(digest_finish(digest, hex));
out:
    free(text);
    digest_destroy(digest);
    return rc;
}
