/* Looks for credentials in the environment and in the files of a home folder.
 *
 * They are looked for with every request, since tokens expire and are replaced
 * in the file. No message has a secret in it, and what held one is overwritten.
 */
#include "src/data/remote/store_keys.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/data/remote/store_url.h"

#define STORE_KEYS_FILE_MAX ((size_t)1 << 20)

static const char *store_keys_env(const char *name)
{
    const char *value = getenv(name);
    return value != NULL ? value : "";
}

static enum err store_keys_copy(const char *name, char *out, size_t bytes)
{
    const char *value = store_keys_env(name);
    if (strlen(value) >= bytes)
        return err_set(ERR_USAGE, "%s is longer than %zu bytes", name,
                       bytes - 1);
    memcpy(out, value, strlen(value) + 1);
    return ERR_OK;
}

/* A file that may be missing: *text is NULL then. */
static enum err store_keys_file(const char *variable, const char *name,
                                char path[FSIO_PATH_MAX], char **text)
{
    size_t bytes = 0;
    const char *given = store_keys_env(variable);
    const char *home = store_keys_env("HOME");
    *text = NULL;
    if (given[0] == '\0' && home[0] == '\0') {
        path[0] = '\0';
        return ERR_OK;
    }
    TRY(given[0] != '\0' ? fsio_path(path, "%s", given)
                         : fsio_path(path, "%s/.aws/%s", home, name));
    if (given[0] == '\0' && !fsio_exists(path))
        return ERR_OK;
    return fsio_read_file(path, STORE_KEYS_FILE_MAX, text, &bytes);
}

static enum err store_keys_profile(const char *profile, struct store_keys *out)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX], *text = NULL;
    TRY_OUT(store_keys_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", path,
                            &text));
    bool id = text != NULL && store_url_ini(text, profile, "aws_access_key_id",
                                            out->id, sizeof out->id);
    bool secret =
        text != NULL && store_url_ini(text, profile, "aws_secret_access_key",
                                      out->secret, sizeof out->secret);
    if (id != secret)
        rc = err_set(ERR_USAGE,
                     "%s: profile '%.60s' has only half of a pair: "
                     "aws_access_key_id and aws_secret_access_key",
                     path, profile);
    else if (!id && store_keys_env("AWS_PROFILE")[0] != '\0')
        rc = err_set(ERR_USAGE,
                     "AWS_PROFILE is '%.60s', but %s has no key of that "
                     "profile",
                     profile, path[0] != '\0' ? path : "~/.aws/credentials");
    if (rc != ERR_OK || !id)
        goto out;
    (void)store_url_ini(text, profile, "aws_session_token", out->token,
                        sizeof out->token);
    snprintf(out->from, sizeof out->from, "profile '%.60s' of %.200s", profile,
             path);
out:
    if (text != NULL)
        explicit_bzero(text, strlen(text));
    free(text);
    return rc;
}

static enum err store_keys_region(const char *profile, struct store_keys *out)
{
    char section[80], path[FSIO_PATH_MAX], *text = NULL;
    TRY(store_keys_copy("AWS_REGION", out->region, sizeof out->region));
    if (out->region[0] == '\0')
        TRY(store_keys_copy("AWS_DEFAULT_REGION", out->region,
                            sizeof out->region));
    if (out->region[0] == '\0') {
        TRY(store_keys_file("AWS_CONFIG_FILE", "config", path, &text));
        /* in this file sections are called "profile NAME", but for the
         * default's */
        bool is_default = strcmp(profile, "default") == 0;
        snprintf(section, sizeof section, "%s%.60s",
                 is_default ? "" : "profile ", profile);
        if (text == NULL || !store_url_ini(text, section, "region", out->region,
                                           sizeof out->region))
            snprintf(out->region, sizeof out->region, "us-east-1");
        free(text);
    }
    if (strspn(out->region, "abcdefghijklmnopqrstuvwxyz0123456789-") !=
        strlen(out->region))
        return err_set(ERR_USAGE, "'%.40s' is no name of a region",
                       out->region);
    return ERR_OK;
}

enum err store_keys_find(struct store_keys *out)
{
    assert(out != NULL);
    memset(out, 0, sizeof *out);
    const char *profile = store_keys_env("AWS_PROFILE");
    if (profile[0] == '\0')
        profile = "default";
    TRY(store_keys_region(profile, out));
    TRY(store_keys_copy("AWS_ACCESS_KEY_ID", out->id, sizeof out->id));
    TRY(store_keys_copy("AWS_SECRET_ACCESS_KEY", out->secret,
                        sizeof out->secret));
    if ((out->id[0] == '\0') != (out->secret[0] == '\0'))
        return err_set(ERR_USAGE,
                       "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only "
                       "one is set: set both, or none");
    if (out->id[0] == '\0')
        return store_keys_profile(profile, out);
    snprintf(out->from, sizeof out->from, "AWS_ACCESS_KEY_ID");
    return store_keys_copy("AWS_SESSION_TOKEN", out->token, sizeof out->token);
}
