/* Hands files to libconfig after a look through them. */
#include "src/base/settings/settings_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/settings/settings_private.h"

enum err settings_parse_source(const char *path, const char *folder,
                               const char *source,
                               char out[SETTINGS_TEXT_BYTES])
{
    int n;
    if (source == NULL || strcmp(source, path) == 0)
        n = snprintf(out, SETTINGS_TEXT_BYTES, "%s", path);
    else
        n = snprintf(out, SETTINGS_TEXT_BYTES, "%s/%s", folder, source);
    if (n < 0 || n >= SETTINGS_TEXT_BYTES)
        return err_set(ERR_USAGE, "path longer than %d bytes: %.100s...",
                       SETTINGS_TEXT_BYTES - 1, out);
    return ERR_OK;
}

/* libconfig's error, with what may be behind it. */
static enum err settings_parse_syntax(const char *path, int line,
                                      const char *error)
{
    enum err rc = ERR_OK;
    char *text = NULL;
    size_t bytes = 0;
    char hint[SETTINGS_PLACE_BYTES] =
        "it is set twice; a group is opened once, with all that is in it";
    TRY_OUT(settings_scan_read(path, SETTINGS_SCAN_BYTES_MAX, &text, &bytes));
    if (strcmp(error, "duplicate setting name") != 0)
        settings_hint_line(text, line, hint);
    rc = err_set(ERR_USAGE, "%s:%d: %s: %s", path, line, error, hint);
out:
    free(text);
    return rc;
}

enum err settings_parse(const char *path, char folder[SETTINGS_TEXT_BYTES],
                        config_t *config)
{
    char source[SETTINGS_TEXT_BYTES];
    TRY(settings_folder_of(path, folder));
    TRY(settings_scan_file(path, folder));
    config_set_include_dir(config, folder);
    if (config_read_file(config, path) == CONFIG_TRUE)
        return ERR_OK;
    const char *text = config_error_text(config);
    if (config_error_type(config) == CONFIG_ERR_FILE_IO)
        return err_set(ERR_USAGE, "configuration file %s: %s", path, text);
    TRY(settings_parse_source(path, folder, config_error_file(config), source));
    return settings_parse_syntax(source, config_error_line(config), text);
}
