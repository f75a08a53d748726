/* Memory errors as the controllers' drivers count them (EDAC), with the label of the
 * memory module that has most of them, so that somebody finds it. A machine without
 * such drivers has no files, and nothing is said.
 *
 * What could not be corrected was lost: bad until the machine's next start, or until an
 * administrator sets the counters back (reset_counters beside them). What was corrected
 * did no harm; many are worth a warning, for they come before. */
#include "healthcheck/health_checks.h"

#include "healthcheck/health_past.h"
#include "src/base/sysfile.h"

/* The label of the module with the most, "" if none has any. */
static void edac_worst(const char *controller, const char *counter, char *label,
                       size_t bytes)
{
    glob_t found;
    double most = 0;
    label[0] = '\0';
    /* by modules, or where they are not known by ranks */
    sysfile_find(controller, "/[dr][ia][mn][mk][0-9]*", &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *module = found.gl_pathv[i];
        double count = sysfile_number("%s/%s", module, counter);
        if (count <= most)
            continue;
        most = count;
        if (!sysfile_text(label, bytes, "%s/dimm_label", module))
            snprintf(label, bytes, "%s", sysfile_name(module));
    }
    globfree(&found);
}

enum err health_edac(const struct health_env *env, struct health_result *out)
{
    char module[40];
    struct health_past past;
    glob_t found;
    double per_hour;
    snprintf(out->unit, sizeof out->unit, "errors");
    health_past_open(env, "edac", &past);
    sysfile_find(env->root, "/sys/devices/system/edac/mc/mc[0-9]*", &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *path = found.gl_pathv[i], *name = sysfile_name(path);
        double lost = sysfile_number("%s/ue_count", path);
        double corrected = sysfile_number("%s/ce_count", path);
        if (lost > 0) {
            out->value += lost;
            edac_worst(path, "dimm_ue_count", module, sizeof module);
            health_find(out, HEALTH_BAD, "MEMORY_ERROR",
                        "%s: %.0f uncorrectable errors %s", name, lost, module);
        }
        (void)health_past_growth(&past, name, corrected, &per_hour);
        if (per_hour > env->limits.edac_corrected_per_hour) {
            edac_worst(path, "dimm_ce_count", module, sizeof module);
            health_find(out, HEALTH_WARN, "MEMORY_CORRECTED",
                        "%s: %.0f corrected errors an hour %s", name, per_hour,
                        module);
        }
    }
    globfree(&found);
    health_past_close(&past);
    return ERR_OK;
}
