/* Finds out which BLAS libraries are here, opens each as a peer and keeps the
 * fastest choice of each; see bench_peer.h. */
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/kernels.h"
#include "src/base/log.h"
#include "src/cmd/bench_peer.h"

#define PROBE_ROUNDS 5
#define PROBE_CALLS 4

static const struct bench_product probe = { GEMM_NT, 1, 256, 2304, 768 };

/* Kernels that are tried: what a library detects by itself may be the slowest
 * of all on a processor that is newer than it. */
static const struct {
    enum bench_blas_kind kind;
    const char *kernel_set; /* which processors run them; NULL: all */
    const char *forced;
} choices[] = {
    { BLAS_OPENBLAS, NULL, "" },
    { BLAS_OPENBLAS, "avx512", "SkylakeX" },
    { BLAS_OPENBLAS, "avx2", "Haswell" },
    { BLAS_OPENBLAS, "neon", "NEOVERSEN1" },
    { BLAS_BLIS, NULL, "" },
    { BLAS_BLIS, "avx512", "skx" },
    { BLAS_BLIS, "avx2", "haswell" },
    { BLAS_MKL, NULL, "INTEL" },
    { BLAS_MKL, NULL, "GNU" },
};
_Static_assert(sizeof choices / sizeof choices[0] <= BENCH_PEER_NOTES,
               "each has a note");

static bool runs_here(const char *kernel_set)
{
    if (kernel_set == NULL)
        return true;
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++)
        if (strcmp((*t)->kernel_set, kernel_set) == 0)
            return true;
    return false;
}

static bool first_file(const char *pattern, char file[FSIO_PATH_MAX])
{
    glob_t found = { .gl_pathc = 0 };
    bool there = glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc > 0 &&
                 strlen(found.gl_pathv[0]) < FSIO_PATH_MAX;
    if (there)
        snprintf(file, FSIO_PATH_MAX, "%s", found.gl_pathv[0]);
    globfree(&found);
    return there;
}

/* Where Python packages and Intel's own installation put it, below folders that
 * variables name; "" if it is in none, where the loader may know it. */
static void usual_mkl(char file[FSIO_PATH_MAX])
{
    static const struct {
        const char *variable, *folder;
    } places[] = {
        { "MKLROOT", "lib" },     { "MKLROOT", "lib/intel64" },
        { "VIRTUAL_ENV", "lib" }, { "CONDA_PREFIX", "lib" },
        { "HOME", ".local/lib" },
    };
    char pattern[FSIO_PATH_MAX];
    file[0] = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *base = getenv(places[i].variable);
        if (base != NULL && base[0] != '\0' &&
            fsio_path(pattern, "%s/%s/libmkl_rt.so*", base, places[i].folder) ==
                ERR_OK &&
            first_file(pattern, file))
            return;
    }
    if (!first_file("/usr/local/lib/libmkl_rt.so*", file))
        first_file("/opt/intel/oneapi/mkl/latest/lib/libmkl_rt.so*", file);
}

/* The file, or what the folder holds. */
static enum err given_mkl(const char *path, char file[FSIO_PATH_MAX])
{
    char pattern[FSIO_PATH_MAX];
    struct stat status;
    TRY(fsio_path(pattern, "%s/libmkl_rt.so*", path));
    if (first_file(pattern, file))
        return ERR_OK;
    TRY(fsio_path(file, "%s", path));
    if (stat(path, &status) != 0 || S_ISDIR(status.st_mode))
        return err_set(ERR_USAGE, "--mkl %s: there is no libmkl_rt.so", path);
    return ERR_OK;
}

static enum err list_choices(const struct bench_options *options,
                             struct bench_peers *peers)
{
    char mkl[FSIO_PATH_MAX];
    if (options->mkl != NULL)
        TRY(given_mkl(options->mkl, mkl));
    else
        usual_mkl(mkl);
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        if (!runs_here(choices[i].kernel_set))
            continue;
        struct bench_blas_choice *choice =
            &peers->notes[peers->note_count++].choice;
        choice->kind = choices[i].kind;
        choice->threads = options->threads;
        snprintf(choice->forced, sizeof choice->forced, "%s",
                 choices[i].forced);
        if (choice->kind == BLAS_MKL)
            snprintf(choice->file, sizeof choice->file, "%s", mkl);
    }
    return ERR_OK;
}

/* Keeps the error's text. */
static void fail(struct bench_peer_note *note, struct bench_peer **peer)
{
    snprintf(note->problem, sizeof note->problem, "%s", err_text());
    note->flops_per_s = 0.0;
    bench_peer_stop(*peer);
    *peer = NULL;
}

/* In turns, so that none has the machine at a better moment; the best of each
 * counts, because other work on the machine only ever slows down. */
static void time_all(struct bench_peers *peers, struct bench_peer **started)
{
    double least[BENCH_PEER_NOTES], seconds;
    for (int i = 0; i < peers->note_count; i++) {
        least[i] = INFINITY;
        if (started[i] != NULL &&
            bench_peer_prepare(started[i], &probe) != ERR_OK)
            fail(&peers->notes[i], &started[i]);
    }
    for (int round = 0; round < PROBE_ROUNDS; round++)
        for (int i = 0; i < peers->note_count; i++) {
            if (started[i] == NULL)
                continue;
            if (bench_peer_time(started[i], PROBE_CALLS, &seconds) != ERR_OK)
                fail(&peers->notes[i], &started[i]);
            else
                least[i] = fmin(least[i], seconds);
        }
    for (int i = 0; i < peers->note_count; i++) {
        struct bench_peer_note *note = &peers->notes[i];
        if (started[i] == NULL)
            continue;
        note->about = *bench_peer_about(started[i]);
        note->flops_per_s = bench_product_flops(&probe) / least[i];
    }
}

static void keep_fastest(struct bench_peers *peers, struct bench_peer **started)
{
    for (int kind = 0; kind < BLAS_KINDS; kind++) {
        int best = -1;
        for (int i = 0; i < peers->note_count; i++)
            if ((int)peers->notes[i].choice.kind == kind &&
                started[i] != NULL &&
                (best < 0 ||
                 peers->notes[i].flops_per_s > peers->notes[best].flops_per_s))
                best = i;
        if (best < 0)
            continue;
        peers->best[kind] = started[best];
        peers->notes[best].kept = true;
        started[best] = NULL;
    }
    for (int i = 0; i < peers->note_count; i++)
        bench_peer_stop(started[i]);
}

enum err bench_peers_open(const struct bench_options *options,
                          struct bench_peers *out)
{
    struct bench_peer *started[BENCH_PEER_NOTES] = { NULL };
    char text[256];
    memset(out, 0, sizeof *out);
    TRY(list_choices(options, out));
    for (int i = 0; i < out->note_count; i++)
        if (bench_peer_start(&out->notes[i].choice, &started[i]) != ERR_OK)
            fail(&out->notes[i], &started[i]);
    time_all(out, started);
    keep_fastest(out, started);
    for (int i = 0; i < out->note_count; i++) {
        bench_peers_describe(&out->notes[i], text, sizeof text);
        log_info("%s", text);
    }
    return ERR_OK;
}

void bench_peers_close(struct bench_peers *peers)
{
    for (int kind = 0; kind < BLAS_KINDS; kind++) {
        bench_peer_stop(peers->best[kind]);
        peers->best[kind] = NULL;
    }
}

const struct bench_peer_note *
bench_peers_fastest(const struct bench_peers *peers)
{
    const struct bench_peer_note *best = NULL;
    for (int i = 0; i < peers->note_count; i++)
        if (peers->notes[i].kept &&
            (best == NULL || peers->notes[i].flops_per_s > best->flops_per_s))
            best = &peers->notes[i];
    return best;
}

void bench_peers_drop(struct bench_peers *peers, enum bench_blas_kind kind)
{
    for (int i = 0; i < peers->note_count; i++) {
        struct bench_peer_note *note = &peers->notes[i];
        if (note->choice.kind != kind || !note->kept)
            continue;
        fail(note, &peers->best[kind]);
        note->kept = false;
        log_warn("%s is dropped: %s", bench_blas_name(kind), note->problem);
    }
}

json_t *bench_peers_report(const struct bench_peers *peers)
{
    json_t *list = json_array();
    for (int i = 0; i < peers->note_count; i++) {
        const struct bench_peer_note *note = &peers->notes[i];
        bool opened = note->problem[0] == '\0';
        json_t *entry = json_pack("{s:s, s:s, s:b}", "library",
                                  bench_blas_name(note->choice.kind), "forced",
                                  note->choice.forced, "kept", (int)note->kept);
        if (opened)
            json_object_update_new(
                entry, json_pack("{s:s, s:s, s:s, s:f}", "file",
                                 note->about.file, "version",
                                 note->about.version, "core", note->about.core,
                                 "gflops", note->flops_per_s * 1e-9));
        else
            json_object_set_new(entry, "problem", json_string(note->problem));
        json_array_append_new(list, entry);
    }
    return list;
}

void bench_peers_describe(const struct bench_peer_note *note, char *text,
                          size_t bytes)
{
    const char *forced = note->choice.forced;
    const char *name = bench_blas_name(note->choice.kind);
    if (note->problem[0] != '\0')
        snprintf(text, bytes, "no %s%s%s: %s", name,
                 forced[0] != '\0' ? " with " : "", forced, note->problem);
    else
        snprintf(text, bytes, "%s, %s kernels%s%s%s, %.0f GFLOP/s, %s",
                 note->about.version, note->about.core,
                 forced[0] != '\0' ? " (" : "", forced,
                 forced[0] != '\0' ? " asked for)" : "",
                 note->flops_per_s * 1e-9, note->about.file);
}
