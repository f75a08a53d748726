/* Counts of GPUs: Slurm's, the driver's, and the two files that remember them. */
#include "src/node/node_gpus.h"

#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/sysfile.h"
#include "src/job/slurm_run.h"
#include "src/node/node_child.h"
#include "src/node/node_words.h"

#define CACHE "/run/tessera/gpus"
#define MOST "/var/lib/tessera/gpus"
#define DRIVER "/proc/driver/nvidia"
#define CACHE_MINUTES 720
#define SLURM_S 5.0
#define DRIVER_S 3.0
#define GPUS_MAX 9999

/* "gpu:h100:4(S:0-1),gpu:2,shard:80": not all slices look like one. */
int node_gpus_of_gres(const char *gres)
{
    int count = 0;
    while (*gres != '\0') {
        size_t length = strcspn(gres, ",\n"), name = strcspn(gres, ",\n(");
        size_t digits = 0;
        bool slice = false;
        for (size_t i = 4; i + 2 < length; i++)
            slice = slice || (isdigit((unsigned char)gres[i]) &&
                              gres[i + 1] == 'g' && gres[i + 2] == '.');
        while (digits < name && isdigit((unsigned char)gres[name - digits - 1]))
            digits++;
        if (strncmp(gres, "gpu:", 4) == 0 && !slice && digits > 0 &&
            digits < 5 && gres[name - digits - 1] == ':')
            count += atoi(gres + name - digits);
        if (gres[length] != ',')
            break;
        gres += length + 1;
    }
    return count;
}

static int read_number(const char *path)
{
    double number = sysfile_number("%s", path);
    return number >= 1 && number <= GPUS_MAX ? (int)number : 0;
}

static bool write_number(const char *path, int number)
{
    char folder[64];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path),
             path);
    (void)mkdir(folder, 0755);
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return false;
    fprintf(file, "%d\n", number);
    return fclose(file) == 0;
}

/* Slurm's, 0: none or not known; another time on each node to ask again. */
static int find_gres(const struct node *node, bool *is_new)
{
    struct stat st;
    struct buffer out = { 0 };
    char *argv[] = { "sinfo", "-a", "-h", "-N", "-n", (char *)node->name,
                     "-o",    "%G", NULL };
    *is_new = false;
    if (stat(CACHE, &st) == 0 && st.st_mtime > time(NULL) - CACHE_MINUTES * 60)
        return read_number(CACHE);
    int gres = 0;
    if (slurm_run(argv, SLURM_S, (size_t)1 << 20, &out) == 0 && out.bytes > 0) {
        gres = node_gpus_of_gres((char *)out.data);
        *is_new = true;
        time_t then = time(NULL) + 60 * ((long)(getpid() * 2654435761U >> 8) %
                                         CACHE_MINUTES);
        const struct timespec times[] = { { .tv_sec = then },
                                          { .tv_sec = then } };
        if (write_number(CACHE, gres))
            (void)utimensat(0, CACHE, times, 0);
    }
    buffer_free(&out);
    return gres;
}

/* One folder each, also of those that an option of the driver leaves out. */
static int count_gpus(void *arg)
{
    glob_t found;
    char line[256];
    int count = 0;
    (void)arg;
    if (glob(DRIVER "/gpus/*/information", 0, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        FILE *file = fopen(found.gl_pathv[i], "re");
        bool excluded = false;
        while (file != NULL && fgets(line, sizeof line, file) != NULL)
            excluded = excluded || (strncmp(line, "GPU Excluded:", 13) == 0 &&
                                    strstr(line, "Yes") != NULL);
        count += file != NULL && !excluded;
        if (file != NULL)
            fclose(file);
    }
    printf("%d\n", count);
    return 0;
}

void node_gpus_find(struct node *node)
{
    bool is_new;
    struct buffer out = { 0 };
    struct node_child child = { NODE_CHILD(DRIVER_S, count_gpus, NULL) };
    int gres = find_gres(node, &is_new), here = 0;
    node->gpus = 0;
    if (gres == 0)
        return;
    if (access(DRIVER, F_OK) == 0 && node_child(&child, &out) == 0)
        here = atoi((char *)out.data);
    buffer_free(&out);
    int known = read_number(MOST);
    if (here > known) {
        known = here;
        (void)write_number(MOST, known);
    }
    if (gres > known && is_new)
        node_say(node,
                 "warning: GPU_GRES Slurm's Gres has %d GPUs, and %d is the "
                 "most that this node ever had",
                 gres, known);
    node->gpus = gres < known ? gres : known;
}
