/* Saving, loading, retention and refusals with one rank. */
#include "checkpoint/ckpt.h"

#include <sys/mount.h>
#include <sys/wait.h>

#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/files/ckpt_read.h"
#include "src/base/digest.h"
#include "tests/ckpt_fixture.h"

/* More than two write pieces, not a multiple of a block. */
#define BIG_ELEMENTS ((int64_t)5 * 1024 * 1024 + 77)

static void is_step(struct comm *comm, const char *run, int64_t step,
                    int64_t values, const char *what)
{
    int64_t found = -2, held = -2;
    enum err rc = fixture_load(comm, run, &found, &held);
    bool good = rc == ERR_OK && found == step && held == values;
    if (!tap_ok(good, "%s", what))
        tap_note("%s %s, step %lld, values of %lld", err_name(rc),
                 rc == ERR_OK ? "" : err_text(), (long long)found,
                 (long long)held);
}

static void test_round_trip(struct comm *comm, const char *run)
{
    is_step(comm, run, -1, -1, "no run: nothing to load, no error");
    is_ok(fixture_save(comm, run, 3, 3, 2), "step 3 is saved");
    is_step(comm, run, 3, 3, "and loaded, values and state");
    is_ok(fixture_save(comm, run, 10, 10, 2), "step 10 is saved");
    is_ok(fixture_save(comm, run, 20, 20, 2), "step 20 is saved");
    is_step(comm, run, 20, 20, "the newest is loaded");
    tap_is_int(fixture_count(run, "step-"), 2, "two are kept");
    tap_is_int(fixture_count(run, "."), 2, "no hidden folder stays");
    tap_is_int(ckpt_index_latest_read(run), 20, "LATEST names the newest");
    is_ok(fixture_save(comm, run, 30, 30, 0), "step 30 is saved, keep all");
    tap_is_int(fixture_count(run, "step-"), 3, "all are kept");
}

static void test_list(const char *run)
{
    struct ckpt_info *list = NULL;
    int count = 0;
    is_ok(ckpt_list(run, &list, &count), "the run can be listed");
    tap_is_int(count, 3, "three checkpoints");
    bool sorted = count == 3 && list[0].step == 10 && list[2].step == 30;
    tap_ok(sorted, "oldest first");
    tap_is_int(count > 0 ? list[0].bytes : 0, 2 * 1600 + 14 + 120 + 8 + 37,
               "payload bytes");
    tap_is_str(count > 0 ? list[0].state : "", "good", "good");
    tap_is_int(count > 0 ? list[0].ranks : 0, 1, "one rank");
    for (int i = 0; i < count; i++)
        is_ok(fixture_verify(list[i].path), "every byte verifies");
    free(list);
    is_ok(ckpt_list("/nonexistent", &list, &count), "no run is an empty list");
    tap_is_int(count, 0, "of no entries");
    free(list);
}

/* The digest from its definition. */
static void test_digest(const char *run)
{
    static const int by_name[] = { 3, 2, 4, 6, 1, 5, 0 };
    char path[FSIO_PATH_MAX], want[65] = "", got[65] = "?";
    struct ckpt_item items[FIXTURE_ITEMS];
    struct digest *digest = NULL;
    int64_t step = 30;
    memcpy(items, fixture_tensors, sizeof items);
    fixture_make(items, FIXTURE_ITEMS, 0, 1);
    fixture_fill(items, FIXTURE_ITEMS, step);
    enum err rc = digest_create(&digest);
    for (int i = 0; i < FIXTURE_ITEMS && rc == ERR_OK; i++) {
        const struct ckpt_item *item = &items[by_name[i]];
        const char *dtype = dtype_name(item->dtype);
        int64_t dims = item->dims;
        digest_update(digest, item->name, strlen(item->name) + 1);
        digest_update(digest, dtype, strlen(dtype) + 1);
        digest_update(digest, &dims, sizeof dims);
        digest_update(digest, item->shape, (size_t)dims * sizeof(int64_t));
        digest_update(digest, item->data,
                      (size_t)item->part.end * dtype_bytes(item->dtype));
    }
    digest_update(digest, &step, sizeof step);
    digest_finish(digest, want);
    digest_destroy(digest);
    fixture_free(items, FIXTURE_ITEMS);
    ckpt_index_path(path, run, step);
    is_ok(ckpt_digest(path, got), "digest");
    tap_is_str(got, want, "is the one of the definition");
}

static enum err refuse(void *arg, int64_t step, const json_t *state)
{
    *(int64_t *)arg = step;
    return json_is_object(state) ? err_set(ERR_DATA, "another vocabulary")
                                 : ERR_OK;
}

/* Load with changed items: a refusal that names `text`, no quarantine. */
static void test_refused(struct comm *comm, const char *run,
                         const struct ckpt_item *items, int count,
                         const char *text)
{
    int64_t step = 0;
    json_t *state = NULL;
    enum err rc = ckpt_load(comm, run, NULL, items, count, &step, &state, NULL);
    tap_is_int(rc, ERR_CHECKPOINT, "another model is refused");
    if (!tap_ok(strstr(err_text(), text) != NULL, "the text names %s", text))
        tap_note("%s", err_text());
    tap_is_int(fixture_count(run, ".bad"), 0, "nothing is quarantined");
    tap_ok(state == NULL, "no state");
}

static void test_other_model(struct comm *comm, const char *run)
{
    struct ckpt_item items[FIXTURE_ITEMS];
    int64_t step = 0;
    json_t *state = NULL;
    memcpy(items, fixture_tensors, sizeof items);
    items[0].shape[1] = 16;
    test_refused(comm, run, items, FIXTURE_ITEMS,
                 "transformer.wte.weight is f32[50,8] in the checkpoint, "
                 "f32[50,16]");
    items[0].shape[1] = 8;
    items[2].dtype = DTYPE_F32;
    test_refused(comm, run, items, FIXTURE_ITEMS, "bf16[7]");
    items[2].dtype = DTYPE_BF16;
    snprintf(items[2].name, sizeof items[2].name, "tail.bias");
    test_refused(comm, run, items, FIXTURE_ITEMS, "tail.bias is not in the ch");
    test_refused(comm, run, items, 2, "loss.sum is not in the model");
    memcpy(items, fixture_tensors, sizeof items);
    int64_t seen = -1;
    struct ckpt_load_options refusing = { .accept = refuse,
                                          .accept_arg = &seen };
    tap_is_int(ckpt_load(comm, run, &refusing, items, FIXTURE_ITEMS, &step,
                         &state, NULL),
               ERR_DATA, "the caller's refusal is returned");
    tap_is_int(seen, 30, "it saw the newest only");
    is_ok(ckpt_load(comm, run, NULL, items, FIXTURE_ITEMS, &step, &state, NULL),
          "wanting nothing of every tensor is fine");
    tap_is_int(step, 30, "and gives step and state");
    json_decref(state);
}

static void test_bad_items(struct comm *comm, const char *run)
{
    static const struct {
        const char *name;
        enum err want;
    } cases[] = {
        { "a/b.c/d", ERR_OK },        { "/a", ERR_INTERNAL },
        { "a/", ERR_INTERNAL },       { "a//b", ERR_INTERNAL },
        { "a/./b", ERR_INTERNAL },    { "", ERR_INTERNAL },
        { "a b", ERR_INTERNAL },      { "a\"b", ERR_INTERNAL },
        { "\xc3\xa4", ERR_INTERNAL }, { "_index", ERR_INTERNAL },
        { "_index/a", ERR_INTERNAL }, { "_indexed", ERR_OK },
        { "x", ERR_INTERNAL },   /* twice */
        { "x/y", ERR_INTERNAL }, /* x is a tensor, not a group */
    };
    float values[4] = { 0 };
    struct ckpt_options options = { .attempt = "1.1", .keep = 1 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ckpt_item items[2] = {
            { .dims = 1, .shape = { 4 }, .part.end = 4, .data = values },
            { .dims = 1, .shape = { 4 }, .part.end = 4, .data = values }
        };
        strcpy(items[0].name, "x");
        strcpy(items[1].name, cases[i].name);
        int before = fixture_count(run, "step-");
        enum err rc = ckpt_save(comm, run, 1, NULL, items, 2, &options, NULL);
        tap_is_int(rc, cases[i].want, "tensor name '%s'", cases[i].name);
        if (rc != ERR_OK)
            tap_is_int(fixture_count(run, "step-"), before, "no commit");
        tap_is_int(fixture_count(run, ".tmp"), 0, "no temporary folder");
    }
    struct ckpt_item hole = { .name = "x",
                              .dims = 1,
                              .shape = { 4 },
                              .part.begin = 1,
                              .part.end = 4,
                              .data = values };
    tap_is_int(ckpt_save(comm, run, 2, NULL, &hole, 1, &options, NULL),
               ERR_CHECKPOINT, "an element that no rank writes is found");
    tap_ok(strstr(err_text(), "x: element 0 of 4") != NULL, "and named");
    tap_is_int(fixture_count(run, "step-000000002"), 0, "no commit");
    hole.part.end = 5;
    tap_is_int(ckpt_save(comm, run, 2, NULL, &hole, 1, &options, NULL),
               ERR_INTERNAL, "an interval outside its tensor is refused");
    is_ok(ckpt_save(comm, run, 3, NULL, NULL, 0, &options, NULL),
          "a checkpoint of no tensors at all is possible");
}

/* Replays write a step again; LATEST and leftovers mean nothing. */
static void test_again(struct comm *comm, const char *run)
{
    char path[FSIO_PATH_MAX], old[FSIO_PATH_MAX];
    is_ok(fixture_save(comm, run, 5, 5, 2), "step 5");
    is_ok(fixture_save(comm, run, 6, 6, 2), "step 6");
    is_ok(fixture_save(comm, run, 6, 7, 2), "step 6 again");
    is_step(comm, run, 6, 7, "the second one holds");
    tap_is_int(fixture_count(run, "."), 2, "the first one is gone");
    is_ok(ckpt_index_latest_write(run, 5), "LATEST is stale");
    is_step(comm, run, 6, 7, "it is only a hint");

    ckpt_index_path(path, run, 6);
    fsio_path(old, "%s/checkpoints/.old-step-000000006", run);
    tap_ok(rename(path, old) == 0, "a replacement was cut off");
    is_step(comm, run, 6, 7, "the old one comes back");

    static const char *const leftovers[] = { ".tmp-step-000000009.1.1",
                                             ".trash-step-000000001.0",
                                             "LATEST.tmp.1" };
    for (size_t i = 0; i < 3; i++) {
        fsio_path(path, "%s/checkpoints/%s/x", run, leftovers[i]);
        fsio_mkdirs(path);
    }
    is_step(comm, run, 6, 7, "leftovers are not loaded");
    is_ok(ckpt_index_sweep(run), "sweep");
    tap_is_int(fixture_count(run, "."), 2, "removes them");
    tap_is_int(fixture_count(run, "LATEST"), 1, "but not LATEST");
    is_step(comm, run, 6, 7, "nor a checkpoint");
}

/* Intervals that begin and end anywhere in pieces and blocks. */
static void test_big(struct comm *comm, const char *run)
{
    struct ckpt_item item = { .name = "big",
                              .dims = 1,
                              .shape = { BIG_ELEMENTS } };
    struct ckpt_options options = { .attempt = "1.1", .keep = 1 };
    struct ckpt_progress result;
    fixture_make(&item, 1, 0, 1);
    fixture_fill(&item, 1, 4);
    is_ok(ckpt_save(comm, run, 4, NULL, &item, 1, &options, &result),
          "a tensor of several blocks is saved");
    tap_is_int(result.bytes, BIG_ELEMENTS * 4, "its bytes are reported");
    fixture_free(&item, 1);
    const int64_t block = CKPT_BLOCK_BYTES / 4;
    const int64_t wanted[][2] = { { 0, BIG_ELEMENTS },
                                  { block - 1, block + 1 },
                                  { block, 2 * block },
                                  { 2 * block + 5, BIG_ELEMENTS },
                                  { BIG_ELEMENTS - 1, BIG_ELEMENTS } };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        int64_t step;
        json_t *state = NULL;
        item.part.begin = wanted[i][0];
        item.part.end = wanted[i][1];
        item.data = calloc((size_t)(item.part.end - item.part.begin), 4);
        enum err rc = ckpt_load(comm, run, NULL, &item, 1, &step, &state, NULL);
        tap_ok(rc == ERR_OK && fixture_holds(&item, 1, 4),
               "elements [%lld, %lld)", (long long)item.part.begin,
               (long long)item.part.end);
        json_decref(state);
        free(item.data);
    }
}

/* As somebody who may not write there. */
static void test_read_only(struct comm *comm, const char *run)
{
    char root[FSIO_PATH_MAX];
    fsio_path(root, "%s/checkpoints", run);
    is_ok(fixture_save(comm, run, 1, 1, 2), "step 1");
    chmod(root, 0555);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && seteuid(65534) != 0)
            _exit(9);
        int64_t step, values;
        enum err saved = fixture_save(comm, run, 2, 2, 2);
        enum err loaded = fixture_load(comm, run, &step, &values);
        _exit(saved != ERR_SPACE ? 1 : loaded != ERR_OK || step != 1 ? 2 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
           "a read-only folder: saving is ERR_SPACE, loading works");
    chmod(root, 0777);
    tap_is_int(fixture_count(run, "step-"), 1, "no commit");
}

static void test_full(struct comm *comm, const char *folder)
{
    char run[FSIO_PATH_MAX];
    fsio_path(run, "%s/full", folder);
    mkdir(run, 0777);
    if (mount("tmpfs", run, "tmpfs", 0, "size=1m") != 0) {
        tap_skip("disk full: can't mount a small tmpfs");
        return;
    }
    struct ckpt_item item = { .name = "x", .dims = 1, .shape = { 200000 } };
    struct ckpt_options options = { .attempt = "1.1", .keep = 1 };
    fixture_make(&item, 1, 0, 1);
    is_ok(ckpt_save(comm, run, 1, NULL, &item, 1, &options, NULL),
          "it fits once");
    tap_is_int(ckpt_save(comm, run, 2, NULL, &item, 1, &options, NULL),
               ERR_FULL, "a full disk is ERR_FULL");
    tap_ok(strstr(err_text(), "free") != NULL, "and says how much is free");
    tap_is_int(fixture_count(run, "step-"), 1, "the old one stays");
    tap_is_int(fixture_count(run, "."), 2, "nothing else stays");
    fixture_free(&item, 1);
    if (umount(run) != 0)
        tap_note("umount failed");
}

int main(void)
{
    char folder[FSIO_PATH_MAX], run[8][FSIO_PATH_MAX];
    umask(0);
    struct comm *comm = fixture_alone(folder);
    chmod(folder, 0755);
    for (int i = 0; i < 8; i++)
        if (fsio_path(run[i], "%s/run%d", folder, i) != ERR_OK)
            return 1;
    test_round_trip(comm, run[0]);
    test_list(run[0]);
    test_digest(run[0]);
    test_other_model(comm, run[0]);
    test_bad_items(comm, run[1]);
    test_again(comm, run[2]);
    test_big(comm, run[3]);
    test_read_only(comm, run[4]);
    test_full(comm, folder);
    comm_destroy(comm);
    return tap_done();
}
