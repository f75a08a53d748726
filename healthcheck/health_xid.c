/* Faults that the GPUs' driver wrote into the kernel's log. The public lists of
 * their numbers disagree on some; those are worth a warning when they come
 * once. What programs do wrong themselves (13, 31, 43, 45) says nothing.
 *
 * A record counts only if it is the driver's from its first letter on
 * (health_kmsg.c), and not if the driver itself said later that the GPU needs
 * nothing more (Xid 154 with the action 0). One event has a record for each process
 * that was hit, which is why equal numbers within ten seconds are one, whatever
 * comes between. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "healthcheck/health_checks.h"
#include "healthcheck/health_gpu.h"
#include "healthcheck/health_kmsg.h"

#define XID_GPUS_MAX 64
#define XID_NUMBERS_MAX 16
#define XID_SAME_S 10.0 /* one event has a record for each process */
#define XID_RECOVERY 154

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

static void xid_record(void *arg, double when_s, const char *text)
{
    struct xid_tally *tally = arg;
    char bus[24];
    int number, end = 0;
    if (sscanf(text, "NVRM: Xid (PCI:%23[0-9a-fA-F:.]): %d%n", bus, &number,
               &end) == 2)
        xid_event(tally, bus, number, when_s, text + end);
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

enum err health_xid_log(const struct health_env *env, struct health_result *out)
{
    struct xid_tally tally = { .limits = &env->limits, .out = out };
    snprintf(out->unit, sizeof out->unit, "Xids");
    TRY(health_kmsg_read(env, env->limits.gpu_xid_hours, xid_record, &tally,
                         out));
    xid_judge(&tally);
    return ERR_OK;
}
