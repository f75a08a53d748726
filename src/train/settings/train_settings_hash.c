/* Which settings decide the result of a run, and the hash over them. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/train/settings/train_settings.h"

bool train_settings_decides(const struct setting *setting)
{
    return (setting->flags &
            (SETTING_DECIDES | SETTING_STAYS | TRAIN_STAYS_IF_GIVEN)) != 0;
}

bool train_settings_default(const struct train_settings *settings,
                            const struct setting *setting)
{
    char text[SETTINGS_VALUE_BYTES];
    assert(setting->preset != NULL);    /* what is required has no default */
    if (setting->type == SETTING_FLOAT) /* 1e-8 may be written 1e-08 */
        return *(const double *)(const void *)((const char *)settings +
                                               setting->offset) ==
               strtod(setting->preset, NULL);
    settings_text(setting, settings, text);
    if ((setting->flags & SETTING_AUTO) != 0 && strcmp(text, "0") == 0)
        return strcmp(setting->preset, "auto") == 0;
    return strcmp(text, setting->preset) == 0;
}

enum err train_settings_digest(const struct train_settings *settings,
                               train_settings_counts *counts, char hex[65])
{
    enum err rc = ERR_OK;
    struct digest *digest = NULL;
    char *text = NULL;
    TRY_OUT(digest_create(&digest));
    for (int i = 0; i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        const char *key = setting->key;
        if (!counts(settings, setting))
            continue;
        TRY_OUT(train_settings_print(settings, key, &text));
        TRY_OUT(digest_update(digest, key, strlen(key) + 1));
        TRY_OUT(digest_update(digest, text, strlen(text) + 1));
        free(text);
        text = NULL;
    }
    TRY_OUT(digest_finish(digest, hex));
out:
    free(text);
    digest_destroy(digest);
    return rc;
}

static bool decides_here(const struct train_settings *settings,
                         const struct setting *setting)
{
    return train_settings_decides(setting) &&
           ((setting->flags & TRAIN_STAYS_IF_GIVEN) == 0 ||
            !train_settings_default(settings, setting));
}

enum err train_settings_hash(const struct train_settings *settings,
                             char hex[65])
{
    return train_settings_digest(settings, decides_here, hex);
}
