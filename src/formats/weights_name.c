/* Makes a name of a path. Names go where paths must not: a model card that is
 * published should say "org/name" and not where that lay on somebody's disk. So
 * a hub's cache gives the name that it is made of, and of checkpoints the run
 * is named, as a step number says nothing. */
#include "src/formats/weights.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/files/ckpt_index.h"
#include "src/base/fsio.h"

#define HUB "models--"

/* Cuts off the last part and the slashes before it. */
static void cut_last(char *path)
{
    char *slash = strrchr(path, '/');
    *(slash != NULL ? slash : path) = '\0';
    for (size_t n = strlen(path); n > 0 && path[n - 1] == '/'; n--)
        path[n - 1] = '\0';
}

static const char *last_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The part of the path that names a model of the hub, with what follows; NULL:
 * none does. */
static const char *find_hub(const char *path)
{
    const char *at = strstr(path, HUB);
    while (at != NULL && at != path && at[-1] != '/')
        at = strstr(at + 1, HUB);
    return at;
}

/* Nothing that YAML or a table of Markdown takes for a sign of its own. */
static void clean(char *name)
{
    for (; *name != '\0'; name++)
        if ((unsigned char)*name < 0x80 && !isalnum((unsigned char)*name) &&
            strchr("-_./+ ", *name) == NULL)
            *name = '_';
}

void weights_name(const char *path, char name[WEIGHTS_NAME_MAX])
{
    assert(path != NULL && name != NULL);
    char rest[FSIO_PATH_MAX];
    const char *hub = find_hub(path);
    size_t length = strlen(path);
    size_t over = length > sizeof rest - 2 ? length - (sizeof rest - 2) : 0;
    snprintf(rest, sizeof rest, "%s/", path + over); /* its end counts */
    cut_last(rest);
    if (hub != NULL) {
        const char *from = hub + strlen(HUB);
        snprintf(name, WEIGHTS_NAME_MAX, "%.*s", (int)strcspn(from, "/"), from);
        char *dashes = strstr(name, "--");
        if (dashes != NULL) {
            *dashes = '/';
            memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
        }
    } else {
        /* RUN/checkpoints/STEP is called RUN */
        if (ckpt_manifest_step_of(last_of(rest)) >= 0 &&
            strchr(rest, '/') != NULL)
            cut_last(rest);
        if (strcmp(last_of(rest), "checkpoints") == 0 &&
            strchr(rest, '/') != NULL)
            cut_last(rest);
        snprintf(name, WEIGHTS_NAME_MAX, "%.*s", WEIGHTS_NAME_MAX - 1,
                 last_of(rest));
    }
    clean(name);
}
