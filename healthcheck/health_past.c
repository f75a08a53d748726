/* The files of earlier looks. A line is "KIND KEY THEN VALUE THEN VALUE", the first one
 * the id of the machine's start, so that times are seconds since then and no clock that
 * somebody sets disturbs them.
 *
 * A counter has two marks, and the newer becomes the older when it is half a window old:
 * so growth stays in sight for a while. That is needed, for a fault that one look finds
 * and the next one does not would never be confirmed. Of a sound node nothing changes
 * but the marks, twice a window, so a look mostly writes nothing. */
#include "healthcheck/health_past.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/sysfile.h"
#include "src/base/array.h"
#include "src/base/fsio.h"

#define PAST_COUNTER 'c'
#define PAST_MOST 'm' /* value: of this start, of those before it */
#define PAST_LASTING 'l'
#define PAST_BYTES_MAX (1 << 20)
#define HOUR_S 3600.0

static struct health_past_entry *past_add(struct health_past *past)
{
    if (array_room(&past->entries, &past->capacity, past->count + 1) != ERR_OK)
        return NULL;
    struct health_past_entry *entry = &past->entries[past->count++];
    memset(entry, 0, sizeof *entry);
    return entry;
}

static void past_read(struct health_past *past, char *text)
{
    char *line = strsep(&text, "\n");
    bool same = strcmp(line, past->boot) == 0;
    past->changed = !same;
    while (text != NULL && (line = strsep(&text, "\n")) != NULL) {
        struct health_past_entry e = { .kind = 0 };
        if (sscanf(line, "%c %63s %lf %lf %lf %lf", &e.kind, e.key,
                   &e.then_s[0], &e.value[0], &e.then_s[1], &e.value[1]) != 6 ||
            (!same && e.kind != PAST_MOST))
            continue;
        if (!same && e.value[0] > e.value[1])
            e.value[1] = e.value[0];
        if (!same)
            e.value[0] = 0;
        struct health_past_entry *entry = past_add(past);
        if (entry != NULL)
            *entry = e;
    }
}

void health_past_open(const struct health_env *env, const char *check,
                      struct health_past *past)
{
    char *text = NULL;
    size_t bytes;
    memset(past, 0, sizeof *past);
    past->memory = env->past;
    past->window_s = env->limits.past_hours * HOUR_S;
    health_host_boot_id(env->root, past->boot, sizeof past->boot);
    if (fsio_path(past->path, "%s" HEALTH_PAST_FOLDER "/past.%s", env->root,
                  check) != ERR_OK ||
        health_host_uptime(env->root, &past->now_s) != ERR_OK)
        past->now_s = -1;
    else if (past->memory != NULL
                 ? (text = strndup(past->memory, HEALTH_PAST_BYTES)) != NULL
                 : fsio_read_file(past->path, PAST_BYTES_MAX, &text, &bytes) ==
                       ERR_OK)
        past_read(past, text);
    free(text);
}

static void past_write(const struct health_past *past)
{
    char folder[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (file == NULL)
        return;
    fprintf(file, "%s\n", past->boot);
    for (int i = 0; i < past->count; i++) {
        const struct health_past_entry *e = &past->entries[i];
        fprintf(file, "%c %s %.3f %.17g %.3f %.17g\n", e->kind, e->key,
                e->then_s[0], e->value[0], e->then_s[1], e->value[1]);
    }
    bool whole = fclose(file) == 0;
    if (whole && past->memory != NULL)
        snprintf(past->memory, HEALTH_PAST_BYTES, "%s", text);
    else if (whole && fsio_parent(past->path, folder) == ERR_OK &&
             fsio_mkdirs(folder) == ERR_OK)
        (void)fsio_write_hint(past->path, text, bytes);
    free(text);
}

void health_past_close(struct health_past *past)
{
    if (past->changed && past->now_s >= 0)
        past_write(past);
    free(past->entries);
}

/* NULL: nothing can be kept. *is_new: this is the first look at it. */
static struct health_past_entry *past_find(struct health_past *past, char kind,
                                           const char *key, bool *is_new)
{
    struct health_past_entry *entry = NULL;
    for (int i = 0; i < past->count && entry == NULL; i++)
        if (past->entries[i].kind == kind &&
            strcmp(past->entries[i].key, key) == 0)
            entry = &past->entries[i];
    *is_new = entry == NULL;
    if (*is_new && past->now_s >= 0 && (entry = past_add(past)) != NULL) {
        entry->kind = kind;
        snprintf(entry->key, sizeof entry->key, "%s", key);
        past->changed = true;
    }
    if (entry != NULL)
        entry->seen = true;
    return entry;
}

double health_past_growth(struct health_past *past, const char *key,
                          double value, double *per_hour)
{
    bool is_new;
    *per_hour = 0;
    struct health_past_entry *e =
        value < 0 ? NULL : past_find(past, PAST_COUNTER, key, &is_new);
    if (e == NULL)
        return 0;
    if (is_new || value < e->value[1]) {
        e->then_s[0] = e->then_s[1] = past->now_s;
        e->value[0] = e->value[1] = value;
        past->changed = true;
    } else if (past->now_s - e->then_s[1] >= past->window_s / 2) {
        e->then_s[0] = e->then_s[1];
        e->value[0] = e->value[1];
        e->then_s[1] = past->now_s;
        e->value[1] = value;
        past->changed = true;
    }
    double hours = (past->now_s - e->then_s[0]) / HOUR_S;
    *per_hour = (value - e->value[0]) / (hours > 1 ? hours : 1);
    return value - e->value[0];
}

double health_past_most(struct health_past *past, const char *key, double value,
                        double *before)
{
    bool is_new;
    struct health_past_entry *e = past_find(past, PAST_MOST, key, &is_new);
    *before = e == NULL ? 0 : e->value[1];
    if (e == NULL)
        return 0;
    double most = e->value[0];
    if (value > most) {
        e->value[0] = value;
        past->changed = true;
    }
    return most;
}

const char *health_past_gone(const struct health_past *past, int *at,
                             double *most)
{
    while (*at < past->count) {
        const struct health_past_entry *e = &past->entries[(*at)++];
        *most = e->value[0];
        if (e->kind == PAST_MOST && !e->seen &&
            (e->value[0] > 0 || e->value[1] > 0))
            return e->key;
    }
    return NULL;
}

double health_past_lasting(struct health_past *past, const char *key, bool is)
{
    bool is_new;
    struct health_past_entry *e = past_find(past, PAST_LASTING, key, &is_new);
    if (e == NULL)
        return 0;
    if (is && e->value[0] == 0)
        e->then_s[0] = past->now_s;
    past->changed |= is != (e->value[0] != 0);
    e->value[0] = is;
    return is ? past->now_s - e->then_s[0] : 0;
}

void health_past_forget(const char *root)
{
    glob_t found;
    sysfile_find(root, HEALTH_PAST_FOLDER "/past.*", &found);
    for (size_t i = 0; i < found.gl_pathc; i++)
        (void)unlink(found.gl_pathv[i]);
    globfree(&found);
}
