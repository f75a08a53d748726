/* Compares a configuration with the options that a part knows. */
#include "src/model/model_config.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define ROW(group, type, field, ...)                                           \
    SETTINGS_ROW(offsetof(struct model_config, field), #field, type,           \
                 __VA_ARGS__),
const struct setting model_known_rows[] = { MODEL_SETTINGS(ROW) };
const int model_known_row_count =
    sizeof model_known_rows / sizeof model_known_rows[0];

static enum err is_default(struct setting row, const void *config, char *text,
                           bool *out)
{
    char preset[SETTINGS_VALUE_BYTES];
    _Alignas(max_align_t) char fresh[SETTINGS_VALUE_BYTES];
    settings_text(&row, config, text);
    row.offset = 0;
    TRY(settings_load(&row, 1, NULL, NULL, 0, fresh, NULL));
    settings_text(&row, fresh, preset);
    *out = strcmp(preset, text) == 0;
    return ERR_OK;
}

enum err model_known_check(const struct setting *rows, int count,
                           const void *config, const char *known,
                           const char *who)
{
    for (int i = 0; i < count; i++) {
        char name[64], text[SETTINGS_VALUE_BYTES];
        bool same = true;
        snprintf(name, sizeof name, " %s ", rows[i].key);
        if (strstr(known, name) == NULL)
            TRY(is_default(rows[i], config, text, &same));
        if (!same)
            return err_set(ERR_UNSUPPORTED,
                           "model.%s = %s: %s cannot compute such a model: "
                           "only the default is known there",
                           rows[i].key, text, who);
    }
    return ERR_OK;
}
