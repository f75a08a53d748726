/* A counter of RAPL is a zone: packages have numbers, and zones within them,
 * "core" and "uncore", which are part of the package, and "dram", which is not.
 * "psys" is of the whole machine, where there is one, and would count twice. */
#include "src/job/node_usage.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/new.h"

#define ZONES_MAX 64
#define FOLDER "/sys/class/powercap"
#define PREFIX "intel-rapl:"

struct zone {
    char name[256]; /* of its folder */
    uint64_t last, range;
};

struct node_energy {
    char folder[FSIO_PATH_MAX];
    struct zone zones[ZONES_MAX];
    int count;
};

/* The first line of a zone's file, without its end. */
static enum err read_line(const char *folder, const char *zone,
                          const char *file, char *out, size_t size)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/%s/%s", folder, zone, file));
    FILE *stream = fopen(path, "re");
    if (stream == NULL)
        return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    bool read = fgets(out, (int)size, stream) != NULL;
    fclose(stream);
    out[read ? strcspn(out, "\n") : 0] = '\0';
    return read ? ERR_OK : err_set(ERR_IO, "%s is empty", path);
}

static enum err read_number(const char *folder, const char *zone,
                            const char *file, uint64_t *out)
{
    char line[64], *end;
    TRY(read_line(folder, zone, file, line, sizeof line));
    *out = strtoull(line, &end, 10);
    return end != line && *end == '\0'
               ? ERR_OK
               : err_set(ERR_IO, "%s/%s/%s is no number", folder, zone, file);
}

static enum err add_zone(struct node_energy *energy, const char *name)
{
    assert(energy->count >= 0 && energy->count <= ZONES_MAX);
    struct zone *zone = &energy->zones[energy->count];
    char kind[64];
    TRY(read_line(energy->folder, name, "name", kind, sizeof kind));
    if (strncmp(kind, "package", strlen("package")) != 0 &&
        strcmp(kind, "dram") != 0)
        return ERR_OK;
    if (energy->count == ZONES_MAX)
        return err_set(ERR_IO, "%s has more than %d zones", energy->folder,
                       ZONES_MAX);
    snprintf(zone->name, sizeof zone->name, "%s", name);
    TRY(read_number(energy->folder, name, "max_energy_range_uj", &zone->range));
    TRY(read_number(energy->folder, name, "energy_uj", &zone->last));
    energy->count++;
    return ERR_OK;
}

static enum err find_zones(struct node_energy *energy)
{
    enum err rc = ERR_OK;
    const struct dirent *entry;
    DIR *folder = opendir(energy->folder);
    if (folder == NULL)
        return err_set(ERR_IO, "%s: %s", energy->folder, strerror(errno));
    while (rc == ERR_OK && (entry = readdir(folder)) != NULL)
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0 &&
            strlen(entry->d_name) < sizeof energy->zones[0].name)
            rc = add_zone(energy, entry->d_name);
    closedir(folder);
    if (rc == ERR_OK && energy->count == 0)
        rc = err_set(ERR_IO, "%s has no package of RAPL", energy->folder);
    return rc;
}

enum err node_energy_create(const char *root, struct node_energy **out)
{
    struct node_energy *energy = NULL;
    TRY(new_zeroed(&energy, 1));
    enum err rc = fsio_path(energy->folder, "%s" FOLDER, root);
    if (rc == ERR_OK)
        rc = find_zones(energy);
    if (rc == ERR_OK) {
        *out = energy;
        return ERR_OK;
    }
    node_energy_destroy(energy);
    return err_set(ERR_UNSUPPORTED, "%s", err_text());
}

void node_energy_destroy(struct node_energy *energy)
{
    free(energy);
}

enum err node_energy_read(struct node_energy *energy, double *joules)
{
    *joules = 0.0;
    for (int i = 0; i < energy->count; i++) {
        struct zone *zone = &energy->zones[i];
        uint64_t now = 0, begun = zone->last;
        TRY(read_number(energy->folder, zone->name, "energy_uj", &now));
        /* the counter begins again behind its range */
        uint64_t taken =
            now >= begun ? now - begun : now + (zone->range - begun);
        *joules += 1e-6 * (double)taken;
        zone->last = now;
    }
    return ERR_OK;
}
