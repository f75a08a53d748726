/* tessera-hash: trains a tiny model of each style and compares the bits with
 * README's digests, on this machine or on all ranks of a job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "src/base/log.h"
#include "src/cmd/cmd_main.h"
#include "src/cmd/hash_digests.h"
#include "src/cmd/hash_style.h"
#include "src/job/exit_code.h"

#define EXIT_DIFFERS 1
#define STYLES_MAX 64
#define TIMEOUT_S 300.0

struct arguments {
    bool help, version, alone;
    bool chosen[STYLES_MAX];
    bool any; /* of the styles was named; else all are meant */
    char **overrides;
    int override_count;
};

static void usage(FILE *out)
{
    fputs(
        "usage: tessera-hash [--alone] [STYLE ...] [key=value ...]\n\n"
        "Trains a tiny model of each style and compares the digest of what "
        "was trained\nwith that of README: the same on every processor. Under "
        "mpirun or srun up to 4\nranks train together; with --alone each of "
        "any number for itself.\n\nstyles:",
        out);
    for (int i = 0; hash_style_name(i) != NULL; i++)
        fprintf(out, " %s", hash_style_name(i));
    fputs("\nsettings: hardware.kernel_set, hardware.threads, "
          "parallel.strategy,\n.shard_degree, .prefetch, .expert_degree, "
          ".timeout_s\nkernel sets here:",
          out);
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++)
        fprintf(out, " %s", (*t)->kernel_set);
    fputc('\n', out);
}

static enum err choose_style(const char *name, struct arguments *out)
{
    for (int i = 0; hash_style_name(i) != NULL; i++) {
        if (strcmp(hash_style_name(i), name) != 0)
            continue;
        out->any = out->chosen[i] = true;
        return ERR_OK;
    }
    return err_set(ERR_USAGE, "no style '%s'; --help lists them", name);
}

static enum err parse(int argc, char **argv, struct arguments *out)
{
    out->overrides = argv + 1; /* moved to the front */
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            out->help = true;
        } else if (strcmp(argv[i], "--version") == 0) {
            out->version = true;
        } else if (strcmp(argv[i], "--alone") == 0) {
            out->alone = true;
        } else if (argv[i][0] == '-') {
            return cmd_main_unknown(
                "no option ", argv[i],
                (const char *const[]){ "help", "version", "alone", NULL });
        } else if (strchr(argv[i], '=') != NULL) {
            TRY(hash_style_check(argv[i]));
            out->overrides[out->override_count++] = argv[i];
        } else {
            TRY(choose_style(argv[i], out));
        }
    }
    return ERR_OK;
}

/* README's digest of the style, "" if it has none. */
static const char *expected(const char *style)
{
    for (size_t i = 0; i < sizeof hash_digests / sizeof hash_digests[0]; i++)
        if (strcmp(hash_digests[i].style, style) == 0)
            return hash_digests[i].digest;
    return "";
}

static bool report(const char *style, const char *digest)
{
    const char *want = expected(style);
    bool same = strcmp(digest, want) == 0;
    printf("hash: %s %s %s%s\n", style, digest,
           same ? "ok" : "differs, README has ",
           same              ? ""
           : want[0] == '\0' ? "none"
                             : want);
    fflush(stdout);
    return same;
}

/* Rank 0 prints; *differ is right there. */
static enum err hash_styles(struct comm *comm,
                            const struct arguments *arguments, int *differ)
{
    int count = 0;
    bool prints = comm_rank(comm) == 0;
    for (int i = 0; hash_style_name(i) != NULL; i++) {
        char digest[HASH_STYLE_DIGITS + 1];
        if (arguments->any && !arguments->chosen[i])
            continue;
        TRY(hash_style_train(comm, i, arguments->overrides,
                             arguments->override_count, digest));
        if (prints && !report(hash_style_name(i), digest))
            ++*differ;
        count++;
    }
    if (prints && *differ > 0)
        printf("hash: FAIL %d of %d digests differ\n", *differ, count);
    else if (prints)
        printf("hash: PASS %d digests\n", count);
    return ERR_OK;
}

static int hash(int argc, char **argv, const struct arguments *arguments)
{
    enum err rc = ERR_OK;
    int differ = 0;
    struct comm *comm = NULL;
    const char *kind = arguments->alone ? "self" : "auto";
    TRY_OUT(comm_create(kind, &argc, &argv, TIMEOUT_S, &comm));
    log_init("hash", comm_rank(comm), LOG_ERROR);
    TRY_OUT(hash_styles(comm, arguments, &differ));
out:
    if (rc != ERR_OK &&
        (comm == NULL || comm_rank(comm) == 0 || rc == ERR_COMM))
        log_error("%s", err_text());
    int code = rc != ERR_OK ? err_exit_code(rc)
               : differ > 0 ? EXIT_DIFFERS
                            : EXIT_DONE;
    if (rc == ERR_COMM && comm != NULL)
        comm_abort(comm, code);
    comm_destroy(comm);
    return code;
}

int main(int argc, char **argv)
{
    struct arguments arguments = { 0 };
    kernels_wait_passively(argv);
    log_init("hash", -1, LOG_ERROR);
    if (parse(argc, argv, &arguments) != ERR_OK) {
        log_error("%s", err_text());
        return EXIT_USAGE;
    }
    if (arguments.help)
        usage(stdout);
    else if (arguments.version)
        puts("tessera " TESSERA_VERSION);
    else
        return hash(argc, argv, &arguments);
    return EXIT_DONE;
}
