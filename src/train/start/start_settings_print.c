/* What the command line asks of settings (start_settings.h). */
#include <stddef.h>
#include <string.h>

#include "src/train/start/start_settings.h"

/* Whether the model says what the setting is, where that does not. */
static bool of_model(const struct setting *setting)
{
    return setting->offset - offsetof(struct train_settings, model) <
               sizeof(struct model_config) ||
           strcmp(setting->key, "data.seq_len") == 0 ||
           strcmp(setting->key, "train.microbatch") == 0;
}

enum err start_settings_print(char *keys, struct train_settings *settings,
                              FILE *out)
{
    char shown[SETTINGS_VALUE_BYTES];
    bool many = strchr(keys, ',') != NULL;
    bool open = start_settings_asks(settings);
    if (!open)
        TRY(start_settings_complete(settings));
    for (char *key; (key = strsep(&keys, ",")) != NULL;) {
        const struct setting *setting = train_settings_setting(key);
        if (setting == NULL)
            return settings_no_such(train_settings_schema, train_settings_count,
                                    key, "--print");
        if (open && of_model(setting))
            TRY(start_settings_complete(settings));
        open = open && !of_model(setting);
        settings_text(setting, settings, shown);
        if (many && strchr(shown, '\n') != NULL)
            return err_set(ERR_USAGE,
                           "%s has a line break: print it alone, or leave that "
                           "out",
                           key);
        fprintf(out, "%s\n", shown);
    }
    return ERR_OK;
}
