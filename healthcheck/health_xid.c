/* Faults that the GPUs' driver wrote into the kernel's log. The public lists of
 * their numbers disagree on some; those are worth a warning when they come
 * once. What programs do wrong themselves (13, 31, 43, 45) says nothing. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "healthcheck/health.h"
#include "healthcheck/health_gpu.h"
#include "src/base/fsio.h"

#define XID_GPUS_MAX 64
#define XID_RECORD_BYTES 16384

static const int xid_fatal[] = { 46, 48, 62, 64, 74, 79, 95, 119, 120, 140 };
static const int xid_suspect[] = { 54,  56,  57,  58,  61,  63, 65,  68,
                                   69,  73,  80,  81,  92,  94, 110, 121,
                                   122, 123, 124, 125, 143, 154 };

struct xid_tally {
    struct health_result *out;
    double oldest_s; /* since the start of the machine */
    int gpus;
    struct {
        char bus[24];
        int suspects;
    } gpu[XID_GPUS_MAX];
};

static bool listed(const int *list, size_t bytes, int number)
{
    for (size_t i = 0; i < bytes / sizeof *list; i++)
        if (list[i] == number)
            return true;
    return false;
}

/* How often this GPU was suspected, this time included. */
static int xid_suspected(struct xid_tally *tally, const char *bus)
{
    int i = 0;
    while (i < tally->gpus && strcmp(tally->gpu[i].bus, bus) != 0)
        i++;
    if (i == XID_GPUS_MAX)
        return 1;
    if (i == tally->gpus) {
        snprintf(tally->gpu[i].bus, sizeof tally->gpu[i].bus, "%s", bus);
        tally->gpus++;
    }
    return ++tally->gpu[i].suspects;
}

/* A record is "priority,number,microseconds,flags;text". */
static void xid_record(struct xid_tally *tally, const char *record)
{
    char bus[24];
    int number;
    double us;
    const char *text = strchr(record, ';');
    if (text == NULL || sscanf(record, "%*[^,],%*[^,],%lf", &us) != 1 ||
        us / 1e6 < tally->oldest_s)
        return;
    const char *xid = strstr(text, "NVRM: Xid (PCI:");
    const char *switched = strstr(text, "SXid (PCI:");
    if (switched != NULL && strstr(switched, ", Fatal") != NULL)
        health_gpu_found(tally->out, HEALTH_BAD, "SXID", -1, "",
                         "NVSwitch: %.60s", switched);
    if (xid == NULL ||
        sscanf(xid, "NVRM: Xid (PCI:%23[0-9a-fA-F:.]): %d", bus, &number) != 2)
        return;
    tally->out->value += 1;
    if (listed(xid_fatal, sizeof xid_fatal, number)) {
        health_gpu_found(tally->out, HEALTH_BAD, "XID", -1, "",
                         "Xid %d of the GPU at %s", number, bus);
    } else if (listed(xid_suspect, sizeof xid_suspect, number)) {
        int times = xid_suspected(tally, bus);
        health_gpu_found(tally->out, times > 1 ? HEALTH_BAD : HEALTH_WARN,
                         times > 1 ? "XID_AGAIN" : "XID_ONCE", -1, "",
                         "Xid %d of the GPU at %s, %d suspect one%s", number,
                         bus, times, times > 1 ? "s" : "");
    }
}

/* Each read of /dev/kmsg gives one record. EPIPE: some were overwritten. */
static enum err xid_read(const char *path, struct xid_tally *tally)
{
    enum err rc = ERR_OK;
    char *line = NULL;
    size_t size = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    if (file == NULL) {
        rc = err_errno("%s: open (root may)", path);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    /* An administrator's `dmesg --clear` ends what a repair has settled. */
    (void)lseek(fd, 0, SEEK_DATA);
    (void)setvbuf(file, NULL, _IOFBF, XID_RECORD_BYTES);
    for (;;) {
        errno = 0;
        if (getline(&line, &size, file) > 0) {
            xid_record(tally, line);
        } else if (errno == EPIPE) {
            clearerr(file);
        } else {
            break;
        }
    }
    if (ferror(file) && errno != EAGAIN)
        rc = err_errno("%s: read", path);
    free(line);
    fclose(file);
    return rc;
}

enum err health_xid_log(const struct health_env *env, struct health_result *out)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes;
    struct xid_tally tally = { .out = out };
    snprintf(out->unit, sizeof out->unit, "Xids");
    TRY(fsio_path(path, "%s/proc/uptime", env->root));
    TRY(fsio_read_file(path, 256, &text, &bytes));
    tally.oldest_s = strtod(text, NULL) - env->limits.gpu_xid_hours * 3600;
    TRY(fsio_path(path, "%s/dev/kmsg", env->root));
    TRY(xid_read(path, &tally));
out:
    free(text);
    return rc;
}
