/* Which settings may hold secrets: what users run, and what they tell it. */
#include "src/train/secret_settings.h"

#include <string.h>

bool secret_settings_has(const char *key, const char *text)
{
    return strncmp(key, "hooks.", strlen("hooks.")) == 0 ||
           strncmp(key, "plugins", strlen("plugins")) == 0 ||
           (strcmp(key, "algorithms") == 0 &&
            strstr(text, "\"plugin\"") != NULL);
}
