/* Which settings may hold secrets: what users run, and what they tell it. */
#include "src/train/settings/secret_settings.h"

#include <stdio.h>
#include <string.h>

#include "src/train/settings/train_settings.h"

bool secret_settings_has(const char *key, const char *text)
{
    return strncmp(key, "hooks.", strlen("hooks.")) == 0 ||
           strncmp(key, "plugins", strlen("plugins")) == 0 ||
           (strcmp(key, "algorithms") == 0 &&
            strstr(text, "\"plugin\"") != NULL);
}

bool secret_settings_any(const struct train_settings *settings)
{
    char text[SETTINGS_VALUE_BYTES];
    for (int i = 0; i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        settings_text(setting, settings, text);
        if (secret_settings_has(setting->key, text) &&
            (setting->preset == NULL || strcmp(text, setting->preset) != 0))
            return true;
    }
    return false;
}
