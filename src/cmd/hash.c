/* tessera-hash: trains a tiny model of each style and compares the bits with
 * README's digests, on this machine or on all ranks of a job. It answers the
 * question that everything else rests on, whether a machine computes the same bits
 * as every other, in seconds and without sources or data. Users may say how to
 * compute (threads, strategy, instruction set), not what: a digest must be the same
 * in all of these ways. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "src/base/log.h"
#include "src/cmd/cmd_main.h"
#include "src/cmd/hash_digests.h"
#include "src/hash/hash_style.h"
#include "src/base/exit_code.h"

#define EXIT_DIFFERS 1
#define STYLES_MAX 64
#define TIMEOUT_S 300.0

struct arguments {
    bool alone;
    bool chosen[STYLES_MAX];
    bool any; /* of the styles was named; else all are meant */
    char **overrides;
    int override_count;
};

static const struct options_row rows[] = {
    OPTION_FLAG(struct arguments, alone, "alone",
                "each rank for itself, of any number"),
    { 0 },
};

static void tell_more(FILE *out)
{
    fputs("\nstyles:", out);
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
        assert(i < STYLES_MAX);
        out->any = out->chosen[i] = true;
        return ERR_OK;
    }
    return err_set(ERR_USAGE, "no style '%s'; --help lists them", name);
}

/* Styles and settings come in any order; what has a '=' is a setting. */
static enum err parse(const struct options *options, struct arguments *out)
{
    out->overrides = options->operands; /* moved to the front */
    for (int i = 0; i < options->operand_count; i++) {
        char *operand = options->operands[i];
        if (strchr(operand, '=') == NULL) {
            TRY(choose_style(operand, out));
            continue;
        }
        TRY(hash_style_check(operand));
        out->overrides[out->override_count++] = operand;
    }
    return ERR_OK;
}

/* A style that is new has none until `make hash UPDATE=1` has written it.
 *
 * README's digest of the style, "" if it has none. */
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
    assert(strlen(digest) == HASH_STYLE_DIGITS);
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

/* With --alone each rank is a run of its own: one that differs is a machine that
 * computes other bits, and the job's exit code tells. */
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

static const struct options_command commands[] = {
    { .operands = "[STYLE]... [key=value]...",
      .rows = rows,
      .operands_max = -1 }
};

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "hash",
        .about = "Trains a tiny model of each style and compares the digest of "
                 "what was trained\nwith that of README: the same on every "
                 "processor. Under mpirun or srun up to 4\nranks train "
                 "together.\n",
        .more = tell_more,
        .bare = true,
        OPTIONS_COMMANDS(commands),
    };
    int exit_code;
    struct options options;
    struct arguments arguments = { 0 };
    const struct cmd_main cmd = { &program, &arguments, NULL };
    kernels_wait_passively(argv);
    log_init("hash", -1, LOG_ERROR);
    if (cmd_main_options(&cmd, argc, argv, &options, &exit_code))
        return exit_code;
    enum err rc = parse(&options, &arguments);
    return rc == ERR_OK ? hash(argc, argv, &arguments)
                        : cmd_main_end(&cmd, rc, EXIT_DONE);
}
