/* Faults that the GPUs' driver wrote into the kernel's log. The public lists of
 * their numbers disagree on some; those are worth a warning when they come
 * once. What programs do wrong themselves (13, 31, 43, 45) says nothing.
 *
 * Users can have words of theirs in that log, as names of programs and files,
 * so a record counts only if it is the driver's from its first letter on.
 *
 * The log outlives what it tells of. A record does not count if it is older than
 * the administrator wants, if the driver itself said later that the GPU needs
 * nothing more (Xid 154 with the action 0), or if somebody has repaired the node
 * since (tessera-health --repaired): records are numbered from the start of the
 * machine, so the last number and the boot's id say which are settled. One event
 * has a record for each process that was hit, which is why equal numbers within
 * ten seconds are one, whatever comes between. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "healthcheck/health_checks.h"
#include "healthcheck/health_gpu.h"
#include "src/base/fsio.h"

#define XID_GPUS_MAX 64
#define XID_NUMBERS_MAX 16
#define XID_RECORD_BYTES 16384
#define XID_SAME_S 10.0 /* one event has a record for each process */
#define XID_RECOVERY 154
#define XID_FOLDER "/var/lib/tessera"
#define XID_REPAIRED XID_FOLDER "/repaired"

struct xid_gpu {
    char bus[24];
    int fatal;    /* the first number; 0: none */
    int suspects; /* events */
    int suspect;  /* the last number */
    /* When each number came last: one event has followers of other numbers, and
     * each of these a record for each process, in any order. */
    struct {
        int number;
        double when_s;
    } last[XID_NUMBERS_MAX];
    int numbers;
};

struct xid_tally {
    const struct health_limits *limits;
    struct health_result *out;
    double oldest_s;    /* since the start of the machine */
    long long repaired; /* number of the last record that is settled */
    long long last;     /* number of the last record */
    int gpus;
    struct xid_gpu gpu[XID_GPUS_MAX];
};

static bool xid_listed(const char *list, int number)
{
    char word[16];
    snprintf(word, sizeof word, "%d", number);
    return health_listed(list, word);
}

/* The last place is for all that do not fit. */
static struct xid_gpu *xid_gpu(struct xid_tally *tally, const char *bus)
{
    int i = 0;
    while (i < tally->gpus && strcmp(tally->gpu[i].bus, bus) != 0)
        i++;
    if (i == XID_GPUS_MAX)
        return &tally->gpu[XID_GPUS_MAX - 1];
    assert(i < XID_GPUS_MAX && tally->gpus <= XID_GPUS_MAX);
    if (i == tally->gpus) {
        snprintf(tally->gpu[i].bus, sizeof tally->gpu[i].bus, "%s", bus);
        tally->gpus++;
    }
    return &tally->gpu[i];
}

/* Whether the number came a moment ago; now is its last time. Of more numbers than
 * there is room for the oldest goes. */
static bool xid_again(struct xid_gpu *gpu, int number, double when_s)
{
    int at = 0, oldest = 0;
    while (at < gpu->numbers && gpu->last[at].number != number) {
        if (gpu->last[at].when_s < gpu->last[oldest].when_s)
            oldest = at;
        at++;
    }
    bool again =
        at < gpu->numbers && when_s - gpu->last[at].when_s < XID_SAME_S;
    if (at == gpu->numbers && at < XID_NUMBERS_MAX)
        gpu->numbers++;
    else if (at == gpu->numbers)
        at = oldest;
    gpu->last[at].number = number;
    gpu->last[at].when_s = when_s;
    return again;
}

static void xid_event(struct xid_tally *tally, const char *bus, int number,
                      double when_s, const char *text)
{
    struct xid_gpu *gpu = xid_gpu(tally, bus);
    bool again = xid_again(gpu, number, when_s);
    const char *to = number == XID_RECOVERY ? strstr(text, " to 0x") : NULL;
    if (to != NULL && strtol(to + 4, NULL, 16) == 0) {
        /* The driver wants nothing any more: it was repaired. */
        gpu->fatal = gpu->suspects = gpu->numbers = 0;
        return;
    }
    if (again)
        return;
    tally->out->value += 1;
    if (xid_listed(tally->limits->gpu_xid_fatal, number)) {
        gpu->fatal = gpu->fatal == 0 ? number : gpu->fatal;
    } else if (xid_listed(tally->limits->gpu_xid_suspect, number)) {
        gpu->suspects++;
        gpu->suspect = number;
    }
}

/* A record is "priority,number,microseconds,flags;text". */
static void xid_record(struct xid_tally *tally, const char *record)
{
    char bus[24];
    int number, end = 0;
    long long sequence;
    double us;
    const char *text = strchr(record, ';');
    if (text == NULL || sscanf(record, "%*[^,],%lld,%lf", &sequence, &us) != 2)
        return;
    tally->last = sequence;
    if (us / 1e6 < tally->oldest_s || sequence <= tally->repaired)
        return;
    text++;
    if (sscanf(text, "NVRM: Xid (PCI:%23[0-9a-fA-F:.]): %d%n", bus, &number,
               &end) == 2)
        xid_event(tally, bus, number, us / 1e6, text + end);
    else if (sscanf(text,
                    "nvidia-nvswitch%*d: SXid (PCI:%23[0-9a-fA-F:.]): %d%n",
                    bus, &number, &end) == 2 &&
             strncmp(text + end, ", Fatal", 7) == 0)
        health_gpu_found(tally->out, HEALTH_BAD, "SXID", -1, "",
                         "NVSwitch: SXid %d of the one at %s", number, bus);
}

/* One fatal Xid is enough; of those about which the lists disagree it takes two
 * of one GPU. */
static void xid_judge(const struct xid_tally *tally)
{
    for (int i = 0; i < tally->gpus; i++) {
        const struct xid_gpu *gpu = &tally->gpu[i];
        if (gpu->fatal != 0)
            health_gpu_found(tally->out, HEALTH_BAD, "XID", -1, "",
                             "Xid %d of the GPU at %s", gpu->fatal, gpu->bus);
        else if (gpu->suspects > 0)
            health_gpu_found(
                tally->out, gpu->suspects > 1 ? HEALTH_BAD : HEALTH_WARN,
                gpu->suspects > 1 ? "XID_AGAIN" : "XID_ONCE", -1, "",
                "Xid %d of the GPU at %s, %d suspect one%s", gpu->suspect,
                gpu->bus, gpu->suspects, gpu->suspects > 1 ? "s" : "");
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

/* What an administrator has settled in this boot: "BOOT-ID NUMBER". */
static enum err xid_settled(const char *root, long long *number)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX], boot_id[64], settled_id[64];
    char *text = NULL;
    size_t bytes;
    *number = -1;
    TRY_OUT(fsio_path(path, "%s" XID_REPAIRED, root));
    if (!fsio_exists(path))
        goto out;
    TRY_OUT(fsio_read_file(path, 256, &text, &bytes));
    health_host_boot_id(root, boot_id, sizeof boot_id);
    if (sscanf(text, "%63s %lld", settled_id, number) != 2)
        rc = err_set(ERR_DATA, "%s: not what --repaired writes", path);
    else if (strcmp(boot_id, settled_id) != 0)
        *number = -1;
out:
    free(text);
    return rc;
}

enum err health_xid_log(const struct health_env *env, struct health_result *out)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes;
    struct xid_tally tally = { .limits = &env->limits, .out = out };
    snprintf(out->unit, sizeof out->unit, "Xids");
    TRY_OUT(fsio_path(path, "%s/proc/uptime", env->root));
    TRY_OUT(fsio_read_file(path, 256, &text, &bytes));
    tally.oldest_s = strtod(text, NULL) - env->limits.gpu_xid_hours * 3600;
    TRY_OUT(xid_settled(env->root, &tally.repaired));
    TRY_OUT(fsio_path(path, "%s/dev/kmsg", env->root));
    TRY_OUT(xid_read(path, &tally));
    xid_judge(&tally);
out:
    free(text);
    return rc;
}

enum err health_xid_repaired(const char *root)
{
    char path[FSIO_PATH_MAX], boot_id[64], text[128];
    struct health_limits limits = { .gpu_xid_hours = 0 };
    struct health_result result = { .state = HEALTH_OK };
    struct xid_tally tally = { .limits = &limits, .out = &result, .last = -1 };
    TRY(fsio_path(path, "%s/dev/kmsg", root));
    TRY(xid_read(path, &tally));
    TRY(fsio_path(path, "%s" XID_FOLDER, root));
    TRY(fsio_mkdirs(path));
    TRY(fsio_path(path, "%s" XID_REPAIRED, root));
    health_host_boot_id(root, boot_id, sizeof boot_id);
    snprintf(text, sizeof text, "%s %lld\n", boot_id, tally.last);
    return fsio_write_atomic(path, text, strlen(text));
}
