/* Reads the kernel's log.
 *
 * Programs may write there too, and the kernel gives what they write another facility
 * than its own, 0, which stands in the priority above its three lowest bits. Users can
 * have words of theirs in the kernel's own records, as names of programs and files, but
 * never at their beginning: who looks for something asks for it from the first letter.
 *
 * The log outlives what it tells of. A record does not count if it is older than the
 * administrator wants, or if somebody has repaired the node since (tessera-health
 * --repaired): records are numbered from the start of the machine, so the last number
 * and the boot's id say which are settled. */
#include "healthcheck/health_kmsg.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "healthcheck/health_past.h"
#include "src/base/fsio.h"

#define KMSG_RECORD_BYTES 16384
#define KMSG_REPAIRED HEALTH_PAST_FOLDER "/repaired"

struct kmsg {
    double oldest_s;    /* since the start of the machine */
    long long repaired; /* number of the last record that is settled */
    long long last;     /* number of the last record */
    void (*take)(void *arg, double when_s, const char *text);
    void *arg;
};

/* A record is "priority,number,microseconds,flags;text". */
static void kmsg_record(struct kmsg *kmsg, const char *record)
{
    long long number;
    unsigned priority;
    double us;
    const char *text = strchr(record, ';');
    if (text == NULL ||
        sscanf(record, "%u,%lld,%lf", &priority, &number, &us) != 3)
        return;
    kmsg->last = number;
    if (kmsg->take != NULL && priority >> 3 == 0 &&
        us / 1e6 >= kmsg->oldest_s && number > kmsg->repaired)
        kmsg->take(kmsg->arg, us / 1e6, text + 1);
}

/* Each read of /dev/kmsg gives one record. EPIPE: some were overwritten. */
static enum err kmsg_read(const char *root, struct kmsg *kmsg)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *line = NULL;
    size_t size = 0;
    TRY(fsio_path(path, "%s/dev/kmsg", root));
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
    (void)setvbuf(file, NULL, _IOFBF, KMSG_RECORD_BYTES);
    for (;;) {
        errno = 0;
        if (getline(&line, &size, file) > 0) {
            kmsg_record(kmsg, line);
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
static enum err kmsg_settled(const char *root, long long *number)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX], boot_id[64], settled_id[64];
    char *text = NULL;
    size_t bytes;
    *number = -1;
    TRY_OUT(fsio_path(path, "%s" KMSG_REPAIRED, root));
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

enum err health_kmsg_read(const struct health_env *env, double hours,
                          void (*take)(void *arg, double when_s,
                                       const char *text),
                          void *arg, struct health_result *out)
{
    enum err rc = ERR_OK;
    struct kmsg kmsg = { .take = take, .arg = arg };
    TRY_OUT(health_host_uptime(env->root, &kmsg.oldest_s));
    kmsg.oldest_s -= hours * 3600;
    TRY_OUT(kmsg_settled(env->root, &kmsg.repaired));
    rc = kmsg_read(env->root, &kmsg);
out:
    if (rc == ERR_OK || health_drains(env))
        return rc;
    snprintf(out->text, sizeof out->text, "%.79s", err_text());
    return ERR_OK;
}

enum err health_repaired(const char *root)
{
    char path[FSIO_PATH_MAX], boot_id[64], text[128];
    struct kmsg kmsg = { .last = -1 };
    health_past_forget(root);
    TRY(kmsg_read(root, &kmsg));
    TRY(fsio_path(path, "%s" HEALTH_PAST_FOLDER, root));
    TRY(fsio_mkdirs(path));
    TRY(fsio_path(path, "%s" KMSG_REPAIRED, root));
    health_host_boot_id(root, boot_id, sizeof boot_id);
    snprintf(text, sizeof text, "%s %lld\n", boot_id, kmsg.last);
    return fsio_write_atomic(path, text, strlen(text));
}
