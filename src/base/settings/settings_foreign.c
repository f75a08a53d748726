/* Finds settings and choices by what other programs call them, which stands in
 * the rows (SETTING_THEIRS): only names that settings_nearest() would not
 * find. */
#include "src/base/settings/settings_private.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

/* Whether one of the words, up to the tab or the end, is the text, or how it
 * begins, with a *. */
static bool settings_foreign_has(const char *words, const char *text)
{
    for (size_t bytes; *words != '\t' && *words != '\0'; words += bytes) {
        bytes = strcspn(words, " \t");
        assert(bytes > 0); /* one blank between */
        bool begins = words[bytes - 1] == '*';
        if (strncasecmp(words, text, bytes - begins) == 0 &&
            (begins || text[bytes] == '\0'))
            return true;
        bytes += words[bytes] == ' ';
    }
    return false;
}

const char *settings_foreign_choice(const struct setting *setting,
                                    const char *text)
{
    for (int i = 0; i < SETTING_THEIRS && setting->theirs[i] != NULL; i++)
        if (setting->theirs[i][0] == '=' &&
            settings_foreign_has(setting->theirs[i] + 1, text))
            return strchr(setting->theirs[i], '\t') + 1;
    return NULL;
}

/* Makes lr_decay of "--Lr-Decay". */
static void settings_foreign_plain(const char *key,
                                   char out[SETTINGS_KEY_BYTES])
{
    key += strspn(key, "-");
    size_t i = 0;
    for (; i < SETTINGS_KEY_BYTES - 1 && key[i] != '\0'; i++)
        out[i] = key[i] == '-' ? '_' : (char)tolower((unsigned char)key[i]);
    out[i] = '\0';
}

const struct setting *settings_foreign(const struct settings_table *table,
                                       const char *key, const char **note)
{
    char plain[SETTINGS_KEY_BYTES];
    settings_foreign_plain(key, plain);
    const char *dot = strrchr(plain, '.');
    for (int i = 0; i < SETTING_THEIRS * table->count; i++) {
        const struct setting *setting = &table->schema[i / SETTING_THEIRS];
        const char *theirs = setting->theirs[i % SETTING_THEIRS];
        if (theirs == NULL || theirs[0] == '=' ||
            !(settings_foreign_has(theirs, plain) ||
              (dot != NULL && settings_foreign_has(theirs, dot + 1))))
            continue;
        const char *tab = strchr(theirs, '\t');
        *note = tab != NULL ? tab + 1 : setting->help;
        return setting;
    }
    return NULL;
}
