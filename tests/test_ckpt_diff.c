/* Two checkpoints compared: values, forms, catalogues, states. */
#include "checkpoint/tools/ckpt_tools.h"

#include "tests/ckpt_fixture.h"

#define MANY 1500000 /* two windows */

struct seen {
    int count;
    struct ckpt_diff diffs[16];
    char names[16][CKPT_NAME_BYTES];
};

static enum err keep(void *arg, const struct ckpt_diff *diff)
{
    struct seen *seen = arg;
    const struct ckpt_tensor *tensor = diff->a != NULL ? diff->a : diff->b;
    if (seen->count == 16)
        return err_set(ERR_INTERNAL, "too many");
    memcpy(seen->names[seen->count], tensor->name, CKPT_NAME_BYTES);
    seen->diffs[seen->count++] = *diff;
    return ERR_OK;
}

static enum err save(struct comm *comm, const char *run,
                     struct ckpt_item *items, int count)
{
    struct ckpt_options options = { .attempt = "1.1", .keep = 1 };
    for (int i = 0; i < count; i++)
        items[i].part.end = fixture_elements(&items[i]);
    return ckpt_save(comm, run, 1, NULL, items, count, &options, NULL);
}

/* Compare step 1 of two runs. */
static enum err compare(const char *run_a, const char *run_b, struct seen *seen)
{
    enum err rc = ERR_OK;
    struct ckpt_manifest *a = NULL, *b = NULL;
    char path_a[FSIO_PATH_MAX], path_b[FSIO_PATH_MAX];
    seen->count = 0;
    TRY_OUT(fsio_path(path_a, "%s/checkpoints/step-000000001", run_a));
    TRY_OUT(fsio_path(path_b, "%s/checkpoints/step-000000001", run_b));
    TRY_OUT(ckpt_manifest_read(path_a, NULL, NULL, &a));
    TRY_OUT(ckpt_manifest_read(path_b, NULL, NULL, &b));
    TRY_OUT(ckpt_diff_tensors(path_a, a, path_b, b, keep, seen));
    for (int i = 0; i < seen->count; i++) /* the manifests go */
        seen->diffs[i].a = seen->diffs[i].b = NULL;
out:
    ckpt_manifest_destroy(a);
    ckpt_manifest_destroy(b);
    return rc;
}

static const struct {
    const char *name;
    float a[4], b[4];
    struct ckpt_diff want;
} values[] = {
    { "same", TUPLE(1, 2, 3, 4), { 1, 2, 3, 4 }, { .kind = CKPT_DIFF_EQUAL } },
    { "nan.same", TUPLE(1, NAN, 3, 4), TUPLE(1, NAN, 3, 4),
      TUPLE(.kind = CKPT_DIFF_EQUAL) },
    { "one", TUPLE(1, 2, 3, 4), TUPLE(1, 2, 3.5f, 4),
      TUPLE(CKPT_DIFF_VALUES, NULL, NULL, 1, 2, 0, 0.5, 0.5 / 3.5) },
    { "two", TUPLE(0, 2, -1, 4), TUPLE(1e-3f, 2, 1, 4),
      TUPLE(CKPT_DIFF_VALUES, NULL, NULL, 2, 0, 0, 2, 2) },
    { "signed.zero", TUPLE(0, 0, 0, 0), TUPLE(0, -0.0f, 0, 0),
      TUPLE(CKPT_DIFF_VALUES, NULL, NULL, 1, 1, 0, 0, 0) },
    { "nan", TUPLE(1, NAN, INFINITY, 4), TUPLE(1, 2, -INFINITY, 4.5f),
      TUPLE(CKPT_DIFF_VALUES, NULL, NULL, 3, 1, 2, 0.5, 0.5 / 4.5) },
};
#define VALUES ((int)(sizeof values / sizeof values[0]))

static void is_diff(const struct ckpt_diff *got, const struct ckpt_diff *want,
                    const char *name)
{
    if (!tap_ok(got->kind == want->kind && got->differing == want->differing &&
                    got->first == want->first &&
                    got->non_finite == want->non_finite &&
                    fabs(got->max_absolute - want->max_absolute) < 1e-6 &&
                    fabs(got->max_relative - want->max_relative) < 1e-6,
                "values of %s", name))
        tap_note("kind %d, %lld differ, first %lld, %lld not finite, max %g %g",
                 (int)got->kind, (long long)got->differing,
                 (long long)got->first, (long long)got->non_finite,
                 got->max_absolute, got->max_relative);
}

static void test_values(struct comm *comm, const char *run_a, const char *run_b)
{
    struct ckpt_item items[2][VALUES + 1];
    struct seen seen;
    float *many = calloc(MANY, sizeof *many);
    float *other = calloc(MANY, sizeof *other);
    memset(items, 0, sizeof items);
    for (int i = 0; i <= VALUES; i++)
        for (int side = 0; side < 2; side++) {
            struct ckpt_item *item = &items[side][i];
            strcpy(item->name, i < VALUES ? values[i].name : "many");
            item->dims = 1;
            item->shape[0] = i < VALUES ? 4 : MANY;
            item->data = i == VALUES ? (void *)(side == 0 ? many : other)
                         : side == 0 ? (void *)values[i].a
                                     : (void *)values[i].b;
        }
    other[MANY - 1] = 2;
    enum err rc = save(comm, run_a, items[0], VALUES + 1);
    rc = rc == ERR_OK ? save(comm, run_b, items[1], VALUES + 1) : rc;
    rc = rc == ERR_OK ? compare(run_a, run_b, &seen) : rc;
    free(many);
    free(other);
    if (!tap_ok(rc == ERR_OK, "a diff of values"))
        return;
    for (int i = 0; i < VALUES; i++)
        is_diff(&seen.diffs[i], &values[i].want, values[i].name);
    struct ckpt_diff far = {
        CKPT_DIFF_VALUES, NULL, NULL, 1, MANY - 1, 0, 2, 1
    };
    is_diff(&seen.diffs[VALUES], &far, "the last of many");
    rc = compare(run_a, run_a, &seen);
    bool equal = rc == ERR_OK && seen.count == VALUES + 1;
    for (int i = 0; i < seen.count; i++)
        equal &= seen.diffs[i].kind == CKPT_DIFF_EQUAL;
    tap_ok(equal, "a checkpoint equals itself");
}

static void test_catalogues(struct comm *comm, const char *run_a,
                            const char *run_b)
{
    static float zeros[16];
    static const struct {
        const char *name;
        enum ckpt_diff_kind kind;
    } want[] = { { "a.only", CKPT_DIFF_ONLY_A },
                 { "both", CKPT_DIFF_EQUAL },
                 { "dtype", CKPT_DIFF_FORM },
                 { "shape", CKPT_DIFF_FORM },
                 { "b.only", CKPT_DIFF_ONLY_B } };
    struct ckpt_item a[] = {
        { .name = "a.only", .dims = 1, .shape = { 2 }, .data = zeros },
        { .name = "both", .dims = 1, .shape = { 2 }, .data = zeros },
        { .name = "dtype", .dims = 1, .shape = { 2 }, .data = zeros },
        { .name = "shape", .dims = 2, .shape = { 2, 3 }, .data = zeros },
    };
    struct ckpt_item b[] = {
        { .name = "shape", .dims = 2, .shape = { 3, 2 }, .data = zeros },
        { .name = "dtype", DTYPE_I32, 1, { 2 }, { 0 }, zeros },
        { .name = "b.only", .dims = 1, .shape = { 2 }, .data = zeros },
        { .name = "both", .dims = 1, .shape = { 2 }, .data = zeros },
    };
    struct seen seen;
    enum err rc = save(comm, run_a, a, 4);
    rc = rc == ERR_OK ? save(comm, run_b, b, 4) : rc;
    rc = rc == ERR_OK ? compare(run_a, run_b, &seen) : rc;
    tap_ok(rc == ERR_OK, "a diff of catalogues");
    tap_is_int(seen.count, 5, "every name once");
    for (int i = 0; i < seen.count && i < 5; i++)
        tap_ok(seen.diffs[i].kind == want[i].kind &&
                   strcmp(seen.names[i], want[i].name) == 0,
               "%s", want[i].name);
}

static void test_states(void)
{
    static const struct {
        const char *a, *b, *want;
    } table[] = {
        { "{}", "{}", "[]" },
        { "{\"x\":1}", "{\"x\":1}", "[]" },
        { "{\"x\":1}", "{\"x\":2}", "[{\"entry\":\"x\",\"a\":1,\"b\":2}]" },
        { "{\"x\":1}", "{}", "[{\"entry\":\"x\",\"a\":1,\"b\":null}]" },
        { "{}", "{\"x\":[1]}", "[{\"entry\":\"x\",\"a\":null,\"b\":[1]}]" },
        { "{\"d\":{\"p\":1,\"q\":2}}", "{\"d\":{\"p\":1,\"q\":3}}",
          "[{\"entry\":\"d.q\",\"a\":2,\"b\":3}]" },
        { "{\"d\":{\"p\":1}}", "{\"d\":7}",
          "[{\"entry\":\"d\",\"a\":{\"p\":1},\"b\":7}]" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        json_t *a = json_loads(table[i].a, 0, NULL);
        json_t *b = json_loads(table[i].b, 0, NULL);
        json_t *got = ckpt_diff_states(a, b);
        char *text = json_dumps(got, JSON_COMPACT);
        tap_is_str(text, table[i].want, "states %s and %s", table[i].a,
                   table[i].b);
        free(text);
        json_decref(got);
        json_decref(a);
        json_decref(b);
    }
}

int main(void)
{
    char folder[FSIO_PATH_MAX], run[4][FSIO_PATH_MAX];
    struct comm *comm = fixture_alone(folder);
    for (int i = 0; i < 4; i++)
        if (fsio_path(run[i], "%s/run%d", folder, i) != ERR_OK)
            return 1;
    test_values(comm, run[0], run[1]);
    test_catalogues(comm, run[2], run[3]);
    test_states();
    struct seen seen;
    tap_ok(compare(run[0], "/nonexistent", &seen) == ERR_CHECKPOINT,
           "a missing side is an error: %s", err_text());
    comm_destroy(comm);
    return tap_done();
}
