/* Kernel, driver, firmware, processor, memory and libraries of this node.
 *
 * The program itself is the same file for all ranks, and CUDA's runtime a part of
 * it, so neither can differ. Libraries are looked at where a job looks for them, in
 * the job's phase alone: root loads none. MPI is what this program is linked with,
 * if it is; it tells its version before it starts. */
#include "healthcheck/health_versions.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "healthcheck/health_checks.h"
#include "healthcheck/health_gpu.h"
#include "src/base/sysfile.h"
#include "src/base/clean.h"
#include "src/base/digest.h"
#include "src/comm/comm_nccl_library.h"

#define FIND_S 5.0
#define FILE_BYTES 4096     /* what is needed is at its beginning */
#define MPI_TEXT_BYTES 8192 /* more than MPI_MAX_LIBRARY_VERSION_STRING */
#define KIB_PER_GIB 1048576.0

#define NAME(name) #name,
const char *const health_version_names[] = { HEALTH_VERSIONS(NAME) };

/* What follows `key` in a line of the file, of which `text` has the beginning; ""
 * where it is not there. */
static const char *line_of(const char *root, const char *path, const char *key,
                           char text[FILE_BYTES])
{
    (void)sysfile_text(text, FILE_BYTES, "%s%s", root, path);
    char *at = strstr(text, key);
    if (at == NULL)
        return "";
    at += strlen(key);
    at += strspn(at, " \t:");
    at[strcspn(at, "\n")] = '\0';
    return at;
}

static void find_kernel(const struct health_env *env, char *out)
{
    char text[FILE_BYTES];
    clean_join(out, HEALTH_VERSION_BYTES, "", "%s",
               line_of(env->root, "/proc/sys/kernel/osrelease", "", text));
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug ...": the
 * first word of digits and points. */
static void find_driver(const struct health_env *env, char *out)
{
    char text[FILE_BYTES];
    const char *line =
        line_of(env->root, "/proc/driver/nvidia/version", "NVRM version", text);
    for (size_t length; *line != '\0'; line += length) {
        line += strspn(line, " ");
        length = strcspn(line, " ");
        if (length == 0 || strspn(line, "0123456789.") != length)
            continue;
        clean_join(out, HEALTH_VERSION_BYTES, "", "%.*s", (int)length, line);
        break;
    }
}

/* The cards of InfiniBand and RoCE in the order of their names; neighbours that are
 * equal are told once. */
static void find_firmware(const struct health_env *env, char *out)
{
    char before[HEALTH_VERSION_BYTES] = "";
    glob_t found;
    sysfile_find(env->root, "/sys/class/infiniband/*/fw_ver", &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char text[FILE_BYTES];
        const char *now = line_of("", found.gl_pathv[i], "", text);
        if (strcmp(now, before) != 0)
            clean_join(out, HEALTH_VERSION_BYTES, ",", "%s", now);
        snprintf(before, sizeof before, "%s", now);
    }
    globfree(&found);
}

static void find_processor(const struct health_env *env, char *out)
{
    char model[FILE_BYTES], microcode[FILE_BYTES];
    const char *name = line_of(env->root, "/proc/cpuinfo", "model name", model);
    const char *code =
        line_of(env->root, "/proc/cpuinfo", "microcode", microcode);
    clean_join(out, HEALTH_VERSION_BYTES, "", "%s%s%s", name,
               *code != '\0' ? " microcode " : "", code);
}

static void find_memory(const struct health_env *env, char *out)
{
    char text[FILE_BYTES];
    double kib =
        strtod(line_of(env->root, "/proc/meminfo", "MemTotal", text), NULL);
    if (kib > 0)
        clean_join(out, HEALTH_VERSION_BYTES, "", "%.0f GiB",
                   round(kib / KIB_PER_GIB));
}

/* "Open MPI v4.1.4, package: ..." */
static void find_mpi(const struct health_env *env, char *out)
{
    char text[MPI_TEXT_BYTES] = "";
    int length = 0;
    union {
        void *symbol;
        int (*call)(char *, int *);
    } version = { dlsym(RTLD_DEFAULT, "MPI_Get_library_version") };
    if (env->phase != HEALTH_JOB || version.symbol == NULL)
        return;
    version.call(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    clean_join(out, HEALTH_VERSION_BYTES, "", "%s", text);
}

static void find_nccl(const struct health_env *env, char *out)
{
    struct comm_nccl_library library;
    int version = 0;
    if (env->phase != HEALTH_JOB || health_gpu_expected(env) == 0 ||
        comm_nccl_library_open(&library) != ERR_OK)
        return;
    if (library.version(&version) == COMM_NCCL_SUCCESS)
        clean_join(out, HEALTH_VERSION_BYTES, "", "%d", version);
    comm_nccl_library_close(&library);
}

enum err health_versions(const struct health_env *env,
                         struct health_result *out)
{
#define FINDER(name) find_##name,
    static void (*const finds[])(const struct health_env *,
                                 char *) = { HEALTH_VERSIONS(FINDER) };
    for (int i = 0; i < HEALTH_VERSION_COUNT; i++) {
        char text[HEALTH_VERSION_BYTES] = "";
        finds[i](env, text);
        health_report_clean(text);
        if (text[0] != '\0')
            clean_join(out->table, sizeof out->table, "", "%s %s\n",
                       health_version_names[i], text);
    }
    return ERR_OK;
}

static void take(const struct health_verdict *verdict,
                 struct health_versions *out)
{
    const char *line = "";
    *out = (struct health_versions){ 0 };
    for (int i = 0; i < verdict->count; i++)
        if (strcmp(verdict->results[i].id, "versions") == 0)
            line = verdict->results[i].table;
    for (; *line != '\0'; line += strcspn(line, "\n") + 1) {
        for (int i = 0; i < HEALTH_VERSION_COUNT; i++) {
            size_t length = strlen(health_version_names[i]);
            if (strncmp(line, health_version_names[i], length) == 0 &&
                line[length] == ' ')
                snprintf(out->of[i], sizeof out->of[i], "%.*s",
                         (int)strcspn(line + length + 1, "\n"),
                         line + length + 1);
        }
    }
}

void health_versions_find(const struct health_env *env,
                          struct health_versions *out)
{
    struct health_env job = *env;
    struct health_verdict verdict;
    int count;
    const struct health_check *table = health_table(&count);
    job.phase = HEALTH_JOB;
    job.only = "versions";
    health_run(table, count, &job, FIND_S, &verdict);
    take(&verdict, out);
}

json_t *health_versions_json(const struct health_verdict *verdict)
{
    struct health_versions versions;
    char digest[16];
    uint32_t sum = 0;
    json_t *object = json_object();
    take(verdict, &versions);
    for (int i = 0; i < HEALTH_VERSION_COUNT; i++) {
        if (versions.of[i][0] != '\0')
            json_object_set_new(object, health_version_names[i],
                                json_string(versions.of[i]));
        sum = crc32c(sum, versions.of[i], sizeof versions.of[i]);
    }
    if (json_object_size(object) == 0) {
        json_decref(object);
        return NULL;
    }
    snprintf(digest, sizeof digest, "%08x", sum);
    json_object_set_new(object, "digest", json_string(digest));
    return object;
}
