/* PCI Express: errors of GPUs, network cards and NVMe disks as the kernel counts them
 * (AER), and whether a network card has the width and speed that it and its slot can.
 *
 * A fatal error has taken the link down, so data was lost: bad, if it came since the
 * first look after the machine's start, for the firmware leaves some behind. Correctable
 * ones are repeated by the link itself, and load brings more of them about: a warning by
 * rate, as are ones that are not fatal, for a user's program can ask a card for what it
 * does not have. GPUs save power by a slower link, so width and speed are the driver's
 * matter there (health_gpu.c). Only cards with InfiniBand or RoCE are held to theirs: of
 * those on the board nobody cares. */
#include "healthcheck/health_checks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "healthcheck/health_past.h"
#include "src/base/sysfile.h"

#define BUS_CLASS_NVME 0x0108

/* What it is by its class; NULL: nothing that is looked at. */
static const char *bus_kind(int class)
{
    switch (class >> 8) {
    case 0x02:
        return "network card";
    case 0x03:
    case 0x12:
        return "GPU";
    default:
        return class == BUS_CLASS_NVME ? "NVMe" : NULL;
    }
}

/* The last line of a file of counters, "TOTAL_ERR_FATAL 0"; -1: not known. */
static double bus_total(const char *device, const char *file)
{
    char text[2048];
    sysfile_text(text, sizeof text, "%s/%s", device, file);
    const char *total = strstr(text, "TOTAL_ERR_");
    total = total == NULL ? NULL : strchr(total, ' ');
    return total == NULL ? -1 : strtod(total, NULL);
}

static void judge_errors(const struct health_env *env, const char *device,
                         const char *kind, struct health_past *past,
                         struct health_result *out)
{
    static const struct {
        const char *file, *code, *word;
        enum health_state state;
    } rows[] = {
        { "aer_dev_fatal", "PCIE_FATAL", "fatal", HEALTH_BAD },
        { "aer_dev_nonfatal", "PCIE_NONFATAL", "uncorrected", HEALTH_WARN },
        { "aer_dev_correctable", "PCIE_CORRECTABLE", "corrected", HEALTH_WARN },
    };
    const char *name = sysfile_name(device);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char key[64];
        double per_hour, most;
        snprintf(key, sizeof key, "%.30s.%s", name, rows[i].word);
        double errors = health_past_growth(
            past, key, bus_total(device, rows[i].file), &per_hour);
        most = i == 2 ? env->limits.bus_correctable_per_hour : 0;
        if (i == 2 ? per_hour > most : errors > 0)
            health_find(out, rows[i].state, rows[i].code,
                        "%s %.20s: %.0f %s errors%s", kind, name,
                        i == 2 ? per_hour : errors, rows[i].word,
                        i == 2 ? " an hour" : "");
    }
}

/* A card in a slot of fewer lanes, or of an older bus, can do no better. */
static void judge_link(const char *device, struct health_result *out)
{
    static const struct {
        const char *now, *most, *code, *unit;
    } rows[] = {
        { "current_link_width", "max_link_width", "PCIE_NARROW", "lanes" },
        { "current_link_speed", "max_link_speed", "PCIE_SLOW", "GT/s" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double now = sysfile_number("%s/%s", device, rows[i].now);
        double most = sysfile_number("%s/%s", device, rows[i].most);
        double slot = sysfile_number("%s/../%s", device, rows[i].most);
        most = slot > 0 && slot < most ? slot : most;
        if (now > 0 && now < most)
            health_find(out, HEALTH_WARN, rows[i].code,
                        "network card %.20s: %g of %g %s", sysfile_name(device),
                        now, most, rows[i].unit);
    }
}

enum err health_bus(const struct health_env *env, struct health_result *out)
{
    char card[1024];
    struct health_past past;
    glob_t found;
    snprintf(out->unit, sizeof out->unit, "devices");
    health_past_open(env, "bus", &past);
    sysfile_find(env->root, "/sys/bus/pci/devices/*", &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *device = found.gl_pathv[i];
        double class = sysfile_number("%s/class", device);
        const char *kind = bus_kind((int)class >> 8);
        snprintf(card, sizeof card, "%s/physfn", device);
        if (kind == NULL || access(card, F_OK) == 0)
            continue;
        out->value += 1;
        judge_errors(env, device, kind, &past, out);
        snprintf(card, sizeof card, "%s/infiniband", device);
        if (access(card, F_OK) == 0)
            judge_link(device, out);
    }
    globfree(&found);
    health_past_close(&past);
    return ERR_OK;
}
