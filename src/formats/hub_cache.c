/* Finds models in the cache of the hub. */
#include "src/formats/hub_cache.h"

#include <stdlib.h>
#include <string.h>

bool hub_cache_find(const char *name, const char *revision,
                    char out[FSIO_PATH_MAX])
{
    const char *hub = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME");
    const char *user = getenv("HOME"), *slash = strchr(name, '/');
    char root[FSIO_PATH_MAX], path[FSIO_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    bool there = false;
    if (slash == NULL || strchr(slash + 1, '/') != NULL || name[0] == '.' ||
        slash == name || revision[0] == '.' || revision[0] == '\0' ||
        strchr(revision, '/') != NULL)
        return false;
    if ((hub != NULL    ? fsio_path(root, "%s", hub)
         : home != NULL ? fsio_path(root, "%s/hub", home)
         : user != NULL ? fsio_path(root, "%s/.cache/huggingface/hub", user)
                        : ERR_USAGE) != ERR_OK ||
        fsio_path(path, "%s/models--%.*s--%s", root, (int)(slash - name), name,
                  slash + 1) != ERR_OK ||
        fsio_path(out, "%s/snapshots/%s", path, revision) != ERR_OK)
        return false;
    if (fsio_exists(out))
        return true;
    if (fsio_path(root, "%s/refs/%s", path, revision) != ERR_OK ||
        fsio_read_file(root, 256, &text, &bytes) != ERR_OK)
        return false;
    bytes = strcspn(text, "\r\n/");
    there =
        bytes > 0 &&
        fsio_path(out, "%s/snapshots/%.*s", path, (int)bytes, text) == ERR_OK &&
        fsio_exists(out);
    free(text);
    return there;
}
