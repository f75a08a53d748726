/* Machine checks that the kernel wrote into its log: its own lines (x86's "mce:"), those
 * of AMD's decoder, and those that the firmware tells (APEI, a number in braces before
 * them).
 *
 * What was not corrected is bad. An error that the firmware calls recoverable may be
 * PCI Express's, which health_bus.c counts; the line of its section says whose it is.
 * What comes within the first minute is mostly the last words of the start before
 * (banks that were not cleared, BERT), which some firmware repeats at every start: a
 * warning. Corrected ones are counted, those of one second as one, since each has
 * several lines and the kernel says less when there are many.
 *
 * A log that may not be read says nothing: no machine check was seen. */
#include "healthcheck/health_checks.h"

#include <string.h>

#include "healthcheck/health_kmsg.h"

#define MCE_WORD "[Hardware Error]: "
#define MCE_UNCORRECTED (1ULL << 61) /* in a bank's status */
#define MCE_START_S 60.0
#define MCE_SAME_S 1.0

struct mce {
    struct health_result *out;
    double corrected_s; /* when the last one came */
    bool recoverable;   /* the firmware's last one is, its section is to come */
};

static void mce_lost(struct mce *mce, double when_s, const char *text)
{
    bool past = when_s < MCE_START_S;
    health_find(mce->out, past ? HEALTH_WARN : HEALTH_BAD,
                past ? "MCE_PAST" : "MCE", "%.70s", text);
}

static void mce_corrected(struct mce *mce, double when_s)
{
    if (mce->out->value == 0 || when_s - mce->corrected_s >= MCE_SAME_S) {
        mce->out->value += 1;
        mce->corrected_s = when_s;
    }
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static void mce_firmware(struct mce *mce, double when_s, const char *text)
{
    if (begins(text, "event severity: ")) {
        const char *severity = text + strlen("event severity: ");
        mce->recoverable = begins(severity, "recoverable");
        if (begins(severity, "fatal"))
            mce_lost(mce, when_s, "the firmware told of a fatal error");
        else if (begins(severity, "corrected"))
            mce_corrected(mce, when_s);
    } else if (begins(text, "section_type: ") && mce->recoverable) {
        mce->recoverable = false;
        if (strstr(text, "PCIe") == NULL)
            mce_lost(mce, when_s, text + strlen("section_type: "));
    }
}

static void mce_record(void *arg, double when_s, const char *record)
{
    struct mce *mce = arg;
    char line[128];
    int at = 0;
    unsigned long long status;
    if (begins(record, "mce: "))
        at = 5;
    else
        (void)sscanf(record, "{%*u}%n", &at);
    record += at;
    if (!begins(record, MCE_WORD))
        return;
    record += strlen(MCE_WORD);
    record += strspn(record, " ");
    snprintf(line, sizeof line, "%.*s", (int)strcspn(record, "\n"), record);
    const char *bank = strstr(line, " Bank ");
    if (bank != NULL && strstr(line, ": Machine Check") != NULL &&
        sscanf(bank, " Bank %*d: %llx", &status) == 1) {
        if ((status & MCE_UNCORRECTED) != 0)
            mce_lost(mce, when_s, line);
        else
            mce_corrected(mce, when_s);
    } else if (begins(line, "Uncorrected") || begins(line, "Deferred error") ||
               begins(line, "System Fatal error")) {
        mce_lost(mce, when_s, line);
    } else if (begins(line, "Corrected error") ||
               begins(line, "Machine check events logged")) {
        mce_corrected(mce, when_s);
    } else {
        mce_firmware(mce, when_s, line);
    }
}

enum err health_mce(const struct health_env *env, struct health_result *out)
{
    struct mce mce = { .out = out };
    double most = env->limits.mce_corrected_max;
    snprintf(out->unit, sizeof out->unit, "corrected");
    if (health_kmsg_read(env, env->limits.mce_hours, mce_record, &mce, out) !=
        ERR_OK)
        return ERR_OK;
    if (out->value > most)
        health_find(out, HEALTH_WARN, "MCE_CORRECTED",
                    "%.0f corrected machine checks in %g h", out->value,
                    env->limits.mce_hours);
    return ERR_OK;
}
