/* tessera-ckpt: look at the checkpoints of a run and prove that they are good.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_manifest.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/job/exit_code.h"

static void usage(FILE *out)
{
    fprintf(out,
            "usage: tessera-ckpt ls RUN [--json]   committed checkpoints of a "
            "run\n"
            "       tessera-ckpt verify CHECKPOINT  check every byte\n"
            "       tessera-ckpt digest CHECKPOINT  SHA-256 of the contents, "
            "whatever the\n"
            "                                       number of shards\n"
            "       tessera-ckpt show CHECKPOINT    step, ranks and tensors\n"
            "       tessera-ckpt --help | --version\n\n"
            "RUN is a run directory; CHECKPOINT is a folder "
            "RUN/checkpoints/step-*. ls and\nshow check manifest and file "
            "sizes; verify and digest read everything.\n\n"
            "exit codes: 0 good; 64 usage; 75 the file system failed, try "
            "again; 93 damaged,\nmissing or not readable\n");
}

static json_t *info_json(const struct ckpt_info *info)
{
    return json_pack("{s:I,s:i,s:I,s:s,s:s,s:s}", "step",
                     (json_int_t)info->step, "ranks", info->ranks, "bytes",
                     (json_int_t)info->bytes, "state", info->state, "path",
                     info->path, "reason", info->reason);
}

static enum err print_json(const struct ckpt_info *list, int count)
{
    json_t *array = json_array();
    int failed = 0;
    for (int i = 0; i < count; i++)
        failed |= json_array_append_new(array, info_json(&list[i]));
    char *text = failed ? NULL : json_dumps(array, JSON_INDENT(2));
    if (text != NULL)
        puts(text);
    free(text);
    json_decref(array);
    return text != NULL ? ERR_OK
                        : err_set(ERR_CHECKPOINT,
                                  "a path or reason can't be written as JSON");
}

static void print_list(const struct ckpt_info *list, int count)
{
    if (count > 0)
        printf("%-12s %6s %11s %-5s %s\n", "step", "ranks", "size", "state",
               "path");
    for (int i = 0; i < count; i++) {
        char size[32];
        units_bytes((double)list[i].bytes, size, sizeof size);
        printf("%-12" PRId64 " %6d %11s %-5s %s\n", list[i].step, list[i].ranks,
               size, list[i].state, list[i].path);
        if (list[i].reason[0] != '\0')
            printf("  %s\n", list[i].reason);
    }
}

static enum err command_ls(const char *run_dir, bool json)
{
    struct ckpt_info *list = NULL;
    int count = 0;
    if (!fsio_exists(run_dir))
        return err_set(ERR_USAGE, "%s: no such run directory", run_dir);
    enum err rc = ckpt_list(run_dir, &list, &count);
    if (rc == ERR_OK && json)
        rc = print_json(list, count);
    else if (rc == ERR_OK)
        print_list(list, count);
    free(list);
    return rc;
}

static enum err command_verify(const char *path)
{
    enum err rc = ckpt_verify(path);
    if (rc == ERR_OK)
        printf("%s: good\n", path);
    return rc;
}

static enum err command_digest(const char *path)
{
    char hex[65];
    enum err rc = ckpt_digest(path, hex);
    if (rc == ERR_OK)
        puts(hex);
    return rc;
}

static enum err command_show(const char *path)
{
    enum err rc = ERR_OK;
    struct ckpt_manifest *manifest = NULL;
    char size[32];
    TRY(ckpt_manifest_read(path, NULL, NULL, &manifest));
    TRY(ckpt_manifest_check_sizes(manifest, path));
    units_bytes((double)manifest->bytes, size, sizeof size);
    printf("step    %" PRId64 "\nranks   %d\nshards  %d\nsize    %s\n"
           "tensors %d\n",
           manifest->step, manifest->ranks, manifest->shard_count, size,
           manifest->tensor_count);
    for (int t = 0; t < manifest->tensor_count; t++) {
        const struct ckpt_tensor *tensor = &manifest->tensors[t];
        printf("  %s %s [", tensor->name, dtype_name(tensor->dtype));
        for (int d = 0; d < tensor->dims; d++)
            printf("%s%" PRId64, d == 0 ? "" : ", ", tensor->shape[d]);
        printf("]\n");
    }
out:
    ckpt_manifest_destroy(manifest);
    return rc;
}

/* ERR_USAGE without a text: the caller explains. */
static enum err run(int argc, char **argv, bool *understood)
{
    const char *command = argv[1];
    bool json = argc == 4 && strcmp(argv[3], "--json") == 0;
    *understood = true;
    if (argc >= 3 && argv[2][0] != '-') {
        if (strcmp(command, "ls") == 0 && (argc == 3 || json))
            return command_ls(argv[2], json);
        if (strcmp(command, "verify") == 0 && argc == 3)
            return command_verify(argv[2]);
        if (strcmp(command, "digest") == 0 && argc == 3)
            return command_digest(argv[2]);
        if (strcmp(command, "show") == 0 && argc == 3)
            return command_show(argv[2]);
    }
    *understood = false;
    return ERR_USAGE;
}

int main(int argc, char **argv)
{
    log_init("ckpt", -1, LOG_INFO);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        usage(stdout);
        return EXIT_DONE;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("tessera " TESSERA_VERSION);
        return EXIT_DONE;
    }
    bool understood = false;
    enum err rc = argc < 3 ? ERR_USAGE : run(argc, argv, &understood);
    if (!understood) {
        usage(stderr);
        return EXIT_USAGE;
    }
    if (rc == ERR_OK && (fflush(stdout) != 0 || ferror(stdout)))
        rc = err_errno("standard output");
    if (rc != ERR_OK)
        fprintf(stderr, "tessera-ckpt: %s\n", err_text());
    return err_exit_code(rc);
}
