/* Reads /proc/stat, /proc/loadavg, /proc/net/dev and the process's own times.
 * What a kernel does not show, as in some containers, is NaN and no error: nobody
 * should lose a run for a figure. */
#include "src/job/node_usage.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/memory.h"
#include "src/base/sysfile.h"

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

/* The first line: user nice system idle iowait irq softirq steal, in ticks; what
 * follows is part of user and nice. */
static void read_processors(const char *root, struct node_usage *out)
{
    unsigned long long t[8] = { 0 };
    char text[512];
    double tick = (double)sysconf(_SC_CLK_TCK), all = 0.0;
    (void)sysfile_text(text, sizeof text, "%s/proc/stat", root);
    if (sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0],
               &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) >= 4) {
        for (int i = 0; i < 8; i++)
            all += (double)t[i];
        out->all_s = all / tick;
        out->busy_s = (all - (double)t[3] - (double)t[4]) / tick;
    }
}

static void read_network(const char *root, struct node_usage *out)
{
    char line[1024], path[FSIO_PATH_MAX];
    FILE *file = fsio_path(path, "%s/proc/net/dev", root) == ERR_OK
                     ? fopen(path, "re")
                     : NULL;
    if (file == NULL)
        return;
    out->received = out->sent = 0.0;
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long long in, sent;
        char *name = line + strspn(line, " ");
        char *end = strchr(name, ':');
        if (end == NULL)
            continue;
        *end = '\0';
        if (strcmp(name, "lo") != 0 &&
            sscanf(end + 1, "%llu %*u %*u %*u %*u %*u %*u %*u %llu", &in,
                   &sent) == 2) {
            out->received += (double)in;
            out->sent += (double)sent;
        }
    }
    fclose(file);
}

void node_usage_read(const char *root, struct node_usage *out)
{
    struct rusage own;
    size_t available = memory_available(root);
    double load = sysfile_number("%s/proc/loadavg", root);
    *out = (struct node_usage){ .busy_s = NAN,
                                .all_s = NAN,
                                .load = load >= 0 ? load : NAN,
                                .received = NAN,
                                .sent = NAN,
                                .available = NAN };
    if (getrusage(RUSAGE_SELF, &own) == 0)
        out->process_s = seconds(own.ru_utime) + seconds(own.ru_stime);
    if (available != SIZE_MAX)
        out->available = (double)available;
    read_processors(root, out);
    read_network(root, out);
}
