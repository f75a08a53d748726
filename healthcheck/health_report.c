/* Verdicts as one JSON line for programs and a table for people.
 *
 * The reason is what is left of a verdict in Slurm: scontrol show node has it
 * until somebody mends the node, who may know nothing of this program. So it
 * says who speaks, a code to look up, the check, what was measured and what
 * would have been enough, and the job, in one line of printable letters. */
#include "healthcheck/health.h"

#include <assert.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "healthcheck/health_versions.h"
#include "src/base/fsio.h"
#include "src/base/regular.h"

#define REPORT_DIGITS 6

/* Times keep their milliseconds, measures six digits: 15 are enough for both,
 * and measures are rounded before. */
#define REPORT_DUMP (JSON_COMPACT | JSON_REAL_PRECISION(15))

void health_report_clean(char *reason)
{
    /* scontrol takes the reason as one argument and prints it in tables. */
    for (char *p = reason; *p != '\0'; p++)
        if (*p < ' ' || *p > '~' || *p == '"')
            *p = '?';
    if (strlen(reason) > HEALTH_REASON_MAX)
        reason[HEALTH_REASON_MAX] = '\0';
}

void health_report_reason(struct health_verdict *verdict)
{
    char text[512];
    char measure[96] = "";
    const struct health_result *worst = NULL;
    verdict->code[0] = '\0';
    verdict->reason[0] = '\0';
    if (verdict->state == HEALTH_OK)
        return;
    for (int i = 0; i < verdict->count && worst == NULL; i++)
        if (verdict->results[i].state == verdict->state)
            worst = &verdict->results[i];
    if (worst == NULL) {
        snprintf(verdict->code, sizeof verdict->code, "NO_CHECKS");
        snprintf(verdict->reason, sizeof verdict->reason,
                 HEALTH_PREFIX "NO_CHECKS every check is disabled");
        return;
    }
    if (worst->limit > 0)
        snprintf(measure, sizeof measure, " %.4g%s/%.4g", worst->value,
                 worst->unit, worst->limit);
    snprintf(verdict->code, sizeof verdict->code, "%s", worst->code);
    int n = snprintf(text, sizeof text, HEALTH_PREFIX "%s %s%s job=%ld",
                     worst->code, worst->id, measure, verdict->job);
    assert(n > 0 && (size_t)n < sizeof text);
    if (worst->text[0] != '\0')
        snprintf(text + n, sizeof text - (size_t)n, " (%s)", worst->text);
    health_report_clean(text);
    assert(strlen(text) < sizeof verdict->reason);
    memcpy(verdict->reason, text, strlen(text) + 1);
}

/* Six significant digits: what a measurement is worth, and short. */
static double report_round(double value)
{
    char text[64];
    if (!isfinite(value))
        return 0;
    snprintf(text, sizeof text, "%.*g", REPORT_DIGITS, value);
    return strtod(text, NULL);
}

static double report_millis(double seconds)
{
    return round(seconds * 1000) / 1000;
}

static json_t *report_result(const struct health_result *result)
{
    json_t *one = json_pack(
        "{s:s, s:f, s:s, s:f, s:s, s:s, s:s, s:i, s:f}", "id", result->id, "v",
        report_round(result->value), "unit", result->unit, "limit",
        report_round(result->limit), "st", health_state_name(result->state),
        "code", result->code, "text", result->text, "tries", result->tries,
        "dur_s", report_millis(result->dur_s));
    if (one != NULL && result->peak_ratio > 0)
        json_object_set_new(one, "peak_ratio",
                            json_real(report_round(result->peak_ratio)));
    return one;
}

json_t *health_report_json(const struct health_verdict *verdict)
{
    json_t *checks = json_array();
    for (int i = 0; i < verdict->count; i++) {
        json_t *one = report_result(&verdict->results[i]);
        if (one == NULL) { /* a text that is not UTF-8 */
            struct health_result plain = verdict->results[i];
            health_report_clean(plain.text);
            one = report_result(&plain);
        }
        json_array_append_new(checks, one);
    }
    return json_pack(
        "[{s:s, s:s, s:s, s:I, s:s, s:f, s:f, s:s, s:s, s:s, s:s, s:b, s:o, "
        "s:o*}]",
        "schema", "tessera-health/1", "host", verdict->host, "phase",
        verdict->phase, "job", (json_int_t)verdict->job, "boot_id",
        verdict->boot_id, "t0", report_millis(verdict->t0), "dur_s",
        report_millis(verdict->dur_s), "verdict",
        health_state_name(verdict->state), "code", verdict->code, "reason",
        verdict->reason, "action",
        verdict->state == HEALTH_BAD ? "drain" : "none", "cut", verdict->cut,
        "checks", checks, "versions", health_versions_json(verdict));
}

void health_report_print(const struct health_verdict *verdict, FILE *file)
{
    fprintf(file, "%-9s  %-7s  %22s  %12s  %5s  %7s\n", "check", "state",
            "value", "limit", "tries", "time");
    for (int i = 0; i < verdict->count; i++) {
        const struct health_result *result = &verdict->results[i];
        char value[48];
        char limit[32] = "-";
        snprintf(value, sizeof value, "%.4g %s", result->value, result->unit);
        if (result->limit > 0)
            snprintf(limit, sizeof limit, "%.4g", result->limit);
        fprintf(file, "%-9s  %-7s  %22s  %12s  %5d  %6.2fs", result->id,
                health_state_name(result->state), value, limit, result->tries,
                result->dur_s);
        if (result->state != HEALTH_OK)
            fprintf(file, "  %s %s", result->code, result->text);
        else if (result->peak_ratio > 0)
            fprintf(file, "  %.2f of the peak", result->peak_ratio);
        else if (result->text[0] != '\0')
            fprintf(file, "  not looked at: %s", result->text);
        fputc('\n', file);
    }
    for (int i = 0; i < verdict->count; i++)
        if (verdict->results[i].table[0] != '\0')
            fprintf(file, "\n%s\n", verdict->results[i].table);
    fprintf(file, "%s: %s in %.2f s (%s)%s%s\n", verdict->host,
            health_state_name(verdict->state), verdict->dur_s, verdict->phase,
            verdict->reason[0] != '\0' ? ": " : "", verdict->reason);
}

static enum err report_lines(const json_t *verdict, char **text)
{
    char *line = json_dumps(verdict, REPORT_DUMP);
    char *all = NULL;
    if (line == NULL ||
        asprintf(&all, "%s%s\n", *text != NULL ? *text : "", line) < 0) {
        free(line);
        return err_set(ERR_MEMORY, "no memory for the verdict");
    }
    free(line);
    free(*text);
    *text = all;
    return ERR_OK;
}

enum err health_report_dump(const json_t *verdicts, FILE *file)
{
    enum err rc = ERR_OK;
    char *text = NULL;
    for (size_t i = 0; i < json_array_size(verdicts); i++)
        TRY_OUT(report_lines(json_array_get(verdicts, i), &text));
    if (text != NULL && (fputs(text, file) == EOF || fflush(file) != 0))
        rc = err_errno("write the verdict");
out:
    free(text);
    return rc;
}

static const char *report_word(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL && text[0] != '\0' ? text : "-";
}

void health_report_words(const json_t *verdicts, FILE *file)
{
    size_t v, c;
    const json_t *verdict, *check;
    json_array_foreach(verdicts, v, verdict)
    {
        const char *comma = "";
        fprintf(file, "verdict %s %s %s ", report_word(verdict, "host"),
                report_word(verdict, "verdict"), report_word(verdict, "code"));
        json_array_foreach(json_object_get(verdict, "checks"), c, check)
        {
            if (strcmp(report_word(check, "st"), "ok") == 0)
                continue;
            fprintf(file, "%s%s", comma, report_word(check, "code"));
            comma = ",";
        }
        fprintf(file, "%s %s\n", comma[0] == '\0' ? "-" : "",
                report_word(verdict, "reason"));
        comma = "bad ";
        json_array_foreach(json_object_get(verdict, "checks"), c, check)
        {
            if (strcmp(report_word(check, "st"), "bad") != 0)
                continue;
            fprintf(file, "%s%s", comma, report_word(check, "id"));
            comma = ",";
        }
        if (comma[0] == ',')
            fputc('\n', file);
    }
}

enum err health_report_read(const char *path, json_t **verdicts)
{
    FILE *file = NULL;
    char *line = NULL;
    size_t room = 0;
    TRY(regular_stream(path, &file));
    *verdicts = json_array();
    for (ssize_t bytes;
         file != NULL && (bytes = getline(&line, &room, file)) > 0;) {
        json_t *verdict = json_loadb(line, (size_t)bytes, 0, NULL);
        if (json_object_get(verdict, "verdict") != NULL)
            json_array_append(*verdicts, verdict);
        json_decref(verdict);
    }
    free(line);
    if (file != NULL)
        fclose(file);
    return ERR_OK;
}

/* Replaces a file that we may write, or makes one; nothing else. The program may
 * be root's and the path somebody's: a link there could have it write over any
 * file of the system. */
static enum err report_replace(const char *path, const char *text)
{
    struct stat status;
    if (lstat(path, &status) == 0) {
        if (!S_ISREG(status.st_mode))
            return err_set(
                ERR_USAGE,
                "--out %s: %s; give a file or a folder (--json "
                "prints the line)",
                path, S_ISLNK(status.st_mode) ? "is a link" : "is not a file");
        if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) != 0)
            return err_errno("--out %s: may not be written", path);
    }
    return fsio_write_atomic(path, text, strlen(text));
}

static enum err report_into_folder(const json_t *verdict, const char *folder)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    TRY_OUT(fsio_path(path, "%s/%s.json", folder,
                      json_string_value(json_object_get(verdict, "host"))));
    TRY_OUT(report_lines(verdict, &text));
    TRY_OUT(report_replace(path, text));
out:
    free(text);
    return rc;
}

enum err health_report_write(const json_t *verdicts, const char *path)
{
    enum err rc = ERR_OK;
    char *text = NULL;
    struct stat status;
    bool folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    for (size_t i = 0; i < json_array_size(verdicts); i++) {
        const json_t *verdict = json_array_get(verdicts, i);
        TRY_OUT(folder ? report_into_folder(verdict, path)
                       : report_lines(verdict, &text));
    }
    if (!folder && text != NULL)
        TRY_OUT(report_replace(path, text));
out:
    free(text);
    return rc;
}
