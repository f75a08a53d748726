/* A small model's tensors for the checkpoint tests: values are a function of
 * (step, tensor, element), so that any interval can be filled and checked. */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "checkpoint/files/ckpt_read.h"
#include "checkpoint/files/ckpt_view.h"
#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "tests/ckpt_save.h"
#include "tests/tap.h"

static inline void is_ok(enum err rc, const char *what)
{
    if (!tap_ok(rc == ERR_OK, "%s", what))
        tap_note("%s: %s", err_name(rc), err_text());
}

/* Change a byte of a file; `at` below 0 counts from its end. */
static inline bool fixture_flip(const char *path, int64_t at)
{
    unsigned char byte = 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (at < 0)
        at += lseek(fd, 0, SEEK_END);
    bool done = fd >= 0 && pread(fd, &byte, 1, at) == 1;
    byte ^= 4;
    done = done && pwrite(fd, &byte, 1, at) == 1;
    if (fd >= 0)
        close(fd);
    if (!done)
        tap_note("can't damage %s", path);
    return done;
}

static inline void fixture_flip_in(const char *dir, const char *file,
                                   int64_t at)
{
    char path[FSIO_PATH_MAX];
    fsio_path(path, "%s/%s", dir, file);
    fixture_flip(path, at);
}

/* Every byte against its CRCs. */
static inline enum err fixture_verify(const char *checkpoint_dir)
{
    enum err rc = ERR_OK;
    struct ckpt_manifest *manifest = NULL;
    struct ckpt_read *reader = NULL;
    TRY_OUT(ckpt_manifest_read(checkpoint_dir, NULL, NULL, &manifest));
    TRY_OUT(ckpt_read_create(checkpoint_dir, manifest, &reader));
    for (int s = 0; s < manifest->shard_count; s++)
        TRY_OUT(ckpt_read_all(reader, s, NULL, NULL));
    TRY_OUT(ckpt_view_check(checkpoint_dir, manifest));
out:
    ckpt_read_destroy(reader);
    ckpt_manifest_destroy(manifest);
    return rc;
}

#define FIXTURE_ITEMS 7

static const struct ckpt_item fixture_tensors[FIXTURE_ITEMS] = {
    { .name = "transformer.wte.weight", .dims = 2, .shape = { 50, 8 } },
    { .name = "optimizer/exp_avg/transformer.wte.weight",
      .dims = 2,
      .shape = { 50, 8 } },
    { .name = "head.bias", .dtype = DTYPE_BF16, .dims = 1, .shape = { 7 } },
    { .name = "counts/tokens",
      .dtype = DTYPE_I32,
      .dims = 3,
      .shape = { 3, 5, 2 } },
    { .name = "loss.sum", .dtype = DTYPE_F64, .dims = 0 },
    { .name = "tokenizer.json", .dtype = DTYPE_U8, .dims = 1, .shape = { 37 } },
    { .name = "nothing", .dims = 2, .shape = { 0, 4 } },
};

static inline int64_t fixture_elements(const struct ckpt_item *item)
{
    int64_t elements = 1;
    for (int d = 0; d < item->dims; d++)
        elements *= item->shape[d];
    return elements;
}

static inline uint64_t fixture_value(int64_t step, int tensor, int64_t element)
{
    uint64_t x = (uint64_t)step * 0x9e3779b97f4a7c15u + (uint64_t)tensor;
    x = (x ^ (uint64_t)element) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Write the values of [begin, end), or compare with them. */
static inline bool fixture_values(const struct ckpt_item *item, int tensor,
                                  int64_t step, bool compare)
{
    size_t size = dtype_bytes(item->dtype);
    for (int64_t e = item->part.begin; e < item->part.end; e++) {
        uint64_t value = fixture_value(step, tensor, e);
        char *at = (char *)item->data + (size_t)(e - item->part.begin) * size;
        if (!compare)
            memcpy(at, &value, size);
        else if (memcmp(at, &value, size) != 0)
            return false;
    }
    return true;
}

/* Items for part `part` of `parts`, with memory; fixture_free() releases. */
static inline void fixture_make(struct ckpt_item *items, int count, int part,
                                int parts)
{
    for (int i = 0; i < count; i++) {
        int64_t elements = fixture_elements(&items[i]);
        items[i].part.begin = elements * part / parts;
        items[i].part.end = elements * (part + 1) / parts;
        size_t bytes = (size_t)(items[i].part.end - items[i].part.begin) *
                       dtype_bytes(items[i].dtype);
        items[i].data = calloc(1, bytes + 1);
    }
}

static inline void fixture_free(struct ckpt_item *items, int count)
{
    for (int i = 0; i < count; i++)
        free(items[i].data);
}

static inline void fixture_fill(struct ckpt_item *items, int count,
                                int64_t step)
{
    for (int i = 0; i < count; i++)
        fixture_values(&items[i], i, step, false);
}

static inline bool fixture_holds(const struct ckpt_item *items, int count,
                                 int64_t step)
{
    for (int i = 0; i < count; i++)
        if (!fixture_values(&items[i], i, step, true))
            return false;
    return true;
}

static inline json_t *fixture_state(int64_t values)
{
    return json_pack("{s:s,s:I,s:f}", "run_uuid", "u-1", "values",
                     (json_int_t)values, "lr", 0.1);
}

/* Save the values of `values` under `step` with this state, which goes. */
static inline enum err fixture_save_state(struct comm *comm, const char *run,
                                          int64_t step, int64_t values,
                                          const struct ckpt_options *options,
                                          json_t *state)
{
    struct ckpt_item items[FIXTURE_ITEMS];
    memcpy(items, fixture_tensors, sizeof items);
    fixture_make(items, FIXTURE_ITEMS, comm_rank(comm), comm_size(comm));
    fixture_fill(items, FIXTURE_ITEMS, values);
    enum err rc =
        ckpt_save(comm, run, step, state, items, FIXTURE_ITEMS, options, NULL);
    json_decref(state);
    fixture_free(items, FIXTURE_ITEMS);
    return rc;
}

/* The same in no more than so many seconds. */
static inline enum err fixture_save_within(struct comm *comm, const char *run,
                                           int64_t step, int64_t values,
                                           int keep, double timeout_s)
{
    struct ckpt_options options = { .attempt = "1.1",
                                    .keep = keep,
                                    .timeout_s = timeout_s };
    if (getenv("VICTIM_TOGETHER") != NULL) /* ranks, one file */
        options.file_ranks = comm_size(comm);
    return fixture_save_state(comm, run, step, values, &options,
                              fixture_state(values));
}

static inline enum err fixture_save(struct comm *comm, const char *run,
                                    int64_t step, int64_t values, int keep)
{
    return fixture_save_within(comm, run, step, values, keep, 60.0);
}

/* Load the newest; *values: whose values were found, from the state, or -1
 * where data and state disagree. */
static inline enum err fixture_load(struct comm *comm, const char *run,
                                    int64_t *step, int64_t *values)
{
    struct ckpt_item items[FIXTURE_ITEMS];
    json_t *state = NULL;
    memcpy(items, fixture_tensors, sizeof items);
    fixture_make(items, FIXTURE_ITEMS, comm_rank(comm), comm_size(comm));
    enum err rc =
        ckpt_load(comm, run, NULL, items, FIXTURE_ITEMS, step, &state, NULL);
    *values = -1;
    if (rc == ERR_OK && *step >= 0) {
        int64_t want = json_integer_value(json_object_get(state, "values"));
        json_t *same = fixture_state(want);
        if (json_equal(state, same) &&
            fixture_holds(items, FIXTURE_ITEMS, want))
            *values = want;
        json_decref(same);
    }
    json_decref(state);
    fixture_free(items, FIXTURE_ITEMS);
    return rc;
}

/* A manifest with its first `find` replaced and its CRC made good again;
 * malloc'ed, NULL when there is no `find`. */
static inline char *fixture_edit(const char *text, size_t bytes,
                                 const char *find, const char *put,
                                 size_t *length)
{
    size_t tail = 8 + strlen(CKPT_MANIFEST_CRC_AFTER);
    const char *at = strstr(text, find);
    char *edited = malloc(bytes + strlen(put) + 1);
    if (at == NULL || edited == NULL) {
        free(edited);
        return NULL;
    }
    size_t before = (size_t)(at - text);
    const char *rest = at + strlen(find);
    int n = sprintf(edited, "%.*s%s%.*s", (int)before, text, put,
                    (int)(bytes - tail - (size_t)(rest - text)), rest);
    n += sprintf(edited + n, "%08" PRIx32 "%s", crc32c(0, edited, (size_t)n),
                 CKPT_MANIFEST_CRC_AFTER);
    *length = (size_t)n;
    return edited;
}

/* A folder for the program, and a rank of its own. */
static inline struct comm *fixture_alone(char path[FSIO_PATH_MAX])
{
    struct comm *comm = NULL;
    log_init("test", 0, LOG_ERROR);
    fsio_path(path, "%s", tap_folder());
    if (comm_create("self", NULL, NULL, 30.0, &comm) != ERR_OK) {
        tap_ok(false, "set up: %s", err_text());
        exit(tap_done());
    }
    return comm;
}

/* Names in RUN/checkpoints that start with `prefix`. */
static inline int fixture_count(const char *run, const char *prefix)
{
    char root[FSIO_PATH_MAX];
    int count = 0;
    if (fsio_path(root, "%s/checkpoints", run) != ERR_OK)
        return -1;
    DIR *folder = opendir(root);
    if (folder == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(folder);
    return count;
}
