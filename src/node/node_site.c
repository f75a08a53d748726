/* One table: a row is a setting's name, its field, and what it may be. */
#include "src/node/node_site.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"

struct row {
    const char *name;
    size_t offset;
    bool path; /* of a text; else a whole number from `least` to `most` */
    int least, most;
};
#define FIELD(name, field) "TESSERA_" name, offsetof(struct node_site, field)
static const struct row rows[] = {
    { FIELD("SPOOL", spool), true, 0, 0 },
    { FIELD("LOG", log), true, 0, 0 },
    { FIELD("SLURM_BIN", slurm_bin), true, 0, 0 },
    { FIELD("PROBES", probes), true, 0, 0 },
    { FIELD("LIBRARY_PATH", library_path), true, 0, 0 },
    { FIELD("EVENTS", events), true, 0, 0 },
    { FIELD("METRICS", metrics), true, 0, 0 },
    { FIELD("NOTIFY", notify), true, 0, 0 },
    { FIELD("ENFORCE", enforce), false, 0, 1 },
    { FIELD("TRUST_USERS", trust_users), false, 0, 1 },
    { FIELD("STRESS", stress), false, 0, 1 },
    { FIELD("DRAIN_PERCENT", drain_percent), false, 1, 100 },
    { FIELD("PROLOG_S", prolog_s), false, 1, 40 },
    { FIELD("EPILOG_S", epilog_s), false, 1, 40 },
    { FIELD("STRESS_S", stress_s), false, 1, 25 },
    { FIELD("AGAIN_S", again_s), false, 0, 20 },
    { FIELD("STORM_NODES", storm_nodes), false, 0, 100000 },
    { FIELD("STORM_S", storm_s), false, 0, 86400 },
};
static const char *const cleaned[] = { "", "/dev/shm", "/tmp",
                                       "/dev/shm /tmp" };

void node_site_defaults(struct node_site *site, const char *here)
{
    *site = (struct node_site){ .clean = "/dev/shm",
                                .drain_percent = 10,
                                .storm_nodes = 5,
                                .storm_s = 600,
                                .prolog_s = 8,
                                .epilog_s = 20,
                                .again_s = 3,
                                .stress_s = 15 };
    snprintf(site->probes, sizeof site->probes,
             "%.400s/../../bin/tessera-health", here);
}

static bool is_path(const char *text)
{
    static const char others[] = "._/@%+:-";
    for (const char *at = text; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && strchr(others, *at) == NULL)
            return false;
    return *text == '\0' || *text == '/';
}

static bool whole(const char *text, const struct row *row, int *out)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 6 || text[digits] != '\0')
        return false;
    *out = atoi(text);
    return *out >= row->least && *out <= row->most;
}

static void take(const char *name, const char *value, struct node_site *site,
                 char *wrong, size_t size)
{
    bool known = strcmp(name, "TESSERA_CLEAN") == 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        void *field = (char *)site + row->offset;
        if (strcmp(row->name, name) != 0)
            continue;
        if (row->path && is_path(value) && strlen(value) < NODE_SITE_TEXT)
            snprintf(field, NODE_SITE_TEXT, "%s", value);
        else if (row->path)
            clean_join(wrong, size, "", " %s='%.80s': give a path from / on;",
                       name, value);
        else if (!whole(value, row, &(int){ 0 }))
            clean_join(wrong, size, "",
                       " %s='%.80s': give a whole number from %d to %d;", name,
                       value, row->least, row->most);
        else
            (void)whole(value, row, field);
        return;
    }
    for (size_t i = 0; known && i < sizeof cleaned / sizeof *cleaned; i++)
        if (strcmp(value, cleaned[i]) == 0) {
            snprintf(site->clean, sizeof site->clean, "%s", value);
            return;
        }
    if (known)
        clean_join(wrong, size, "", " %s='%.80s': give /dev/shm, /tmp or both;",
                   name, value);
    else
        clean_join(wrong, size, "", " %.80s: there is no such setting;", name);
}

void node_site_parse(const char *text, struct node_site *site, char *wrong,
                     size_t size)
{
    char line[1024];
    wrong[0] = '\0';
    for (size_t length; *text != '\0';
         text += length + (text[length] != '\0')) {
        length = strcspn(text, "\n");
        const char *from = text, *end = text + strcspn(text, "#\n");
        while (end > from && isspace((unsigned char)end[-1]))
            end--;
        while (from < end && isspace((unsigned char)*from))
            from++;
        if (from == end)
            continue;
        snprintf(line, sizeof line, "%.*s",
                 end - from < 1000 ? (int)(end - from) : 1000, from);
        char *value = strchr(line, '=');
        if (value == NULL) {
            clean_join(wrong, size, "", " %.80s: there is no such setting;",
                       line);
            continue;
        }
        *value++ = '\0';
        size_t bytes = strlen(value);
        if (bytes >= 2 && (*value == '"' || *value == '\'') &&
            value[bytes - 1] == *value) {
            value[bytes - 1] = '\0';
            value++;
        }
        take(line, value, site, wrong, size);
    }
}
