/* checkpoint.h5 as the HDF5 library reads it: names, groups, types, shapes and
 * where the elements come from. Real data through it: ckpt_view.bats. */
#include <hdf5.h>
#include <sys/wait.h>

#include "checkpoint/files/ckpt_h5.h"
#include "checkpoint/files/ckpt_view.h"
#include "tests/ckpt_fixture.h"

#define SHARDS 2
#define MANY 3000

static void test_lookup3(void)
{
    static const struct {
        const char *text;
        uint32_t sum; /* as in the comments of its author's program */
    } cases[] = {
        { "", 0xdeadbeef },
        { "Four score and seven years ago", 0x17770551 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        tap_is_int(ckpt_lookup3((const unsigned char *)cases[i].text,
                                strlen(cases[i].text)),
                   cases[i].sum, "lookup3 of \"%s\"", cases[i].text);
}

static hid_t open_image(const void *image, size_t bytes)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_core(access, 65536, false);
    H5Pset_file_image(access, (void *)(uintptr_t)image, bytes);
    hid_t file = H5Fopen("view.h5", H5F_ACC_RDONLY, access);
    H5Pclose(access);
    return file;
}

/* The view of a manifest, which the library has opened; its bytes are kept. */
static hid_t open_view(const struct ckpt_manifest *manifest, void **image,
                       const char *what)
{
    size_t bytes = 0;
    tap_ok(ckpt_view_image(manifest, image, &bytes) == ERR_OK, "%s", what);
    return open_image(*image, bytes);
}

/* In the view a tensor without a group is one of the weights. */
static const char *shown_as(const char *name)
{
    static char path[CKPT_NAME_BYTES + 16];
    snprintf(path, sizeof path, "%s%s", strchr(name, '/') ? "" : "weights/",
             name);
    return path;
}

/* A tensor, cut into two extents at element `cut` of the flattened tensor. */
struct sample {
    const char *name;
    enum dtype dtype;
    int dims;
    int64_t shape[3];
    int64_t cut;
    int mappings;
    size_t size;               /* of an element */
    hsize_t first[3], last[3]; /* bounds of the first mapping */
};

static const struct sample samples[] = {
    { "a/b/c", DTYPE_F32, 2, TUPLE(4, 8), 16, 2, 4, { 0, 0 }, { 1, 7 } },
    { "a/b.c", DTYPE_F64, 1, TUPLE(9), 3, 2, 8, { 0 }, { 2 } },
    { "a/bb/d", DTYPE_BF16, 2, TUPLE(4, 8), 8, 2, 2, { 0, 0 }, { 0, 7 } },
    { "a/b/u", DTYPE_U8, 1, TUPLE(5), 3, 2, 1, { 0 }, { 2 } },
    { "a/b/d/e", DTYPE_I32, 0, TUPLE(0), 1, 1, 4, { 0 }, { 0 } },
    { "z", DTYPE_F32, 3, TUPLE(2, 3, 4), 7, 5, 4, { 0, 0, 0 }, { 0, 0, 3 } },
    { "huge", DTYPE_BF16, 2, TUPLE(3, INT64_C(1) << 33), INT64_C(1) << 34, 2, 2,
      TUPLE(0, 0), TUPLE(1, (UINT64_C(1) << 33) - 1) },
    { "empty", DTYPE_F32, 2, TUPLE(0, 4), 0, 0, 4, { 0 }, { 0 } },
};
enum { SAMPLES = sizeof samples / sizeof samples[0] };

struct world {
    struct ckpt_manifest manifest;
    struct ckpt_shard shards[SHARDS];
};

static void add_extent(struct world *w, int shard, int tensor, int64_t begin,
                       int64_t end)
{
    if (begin < end)
        w->shards[shard].extents[w->shards[shard].extent_count++] =
            (struct ckpt_extent){ .tensor = tensor,
                                  .dims = w->manifest.tensors[tensor].dims,
                                  .part = { .begin = begin, .end = end } };
}

static void create(struct world *w, int tensors)
{
    *w = (struct world){ .manifest = { .tensor_count = tensors,
                                       .shard_count = SHARDS } };
    w->manifest.shards = w->shards;
    w->manifest.tensors = calloc((size_t)tensors, sizeof *w->manifest.tensors);
    for (int s = 0; s < SHARDS; s++) {
        w->shards[s].extents =
            calloc((size_t)tensors, sizeof *w->shards[s].extents);
        snprintf(w->shards[s].file, sizeof w->shards[s].file, "shard-%d.h5", s);
    }
}

/* Tensor i: a vector, cut into two extents. */
static void add_vector(struct world *w, int i, const char *name,
                       int64_t elements, int64_t cut)
{
    struct ckpt_tensor *tensor = &w->manifest.tensors[i];
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->dims = 1;
    tensor->shape[0] = elements;
    add_extent(w, 0, i, 0, cut);
    add_extent(w, 1, i, cut, elements);
}

static void destroy(struct world *w)
{
    free(w->manifest.tensors);
    for (int s = 0; s < SHARDS; s++)
        free(w->shards[s].extents);
}

/* The dataset of one sample, and its mappings. */
static void check_sample(hid_t file, const struct sample *sample)
{
    hsize_t sizes[3] = { 0 }, first[3] = { 0 }, last[3] = { 0 };
    char text[64] = "", source[64] = "";
    size_t count = 0;
    hid_t set = H5Dopen2(file, shown_as(sample->name), H5P_DEFAULT);
    if (!tap_ok(set >= 0, "%s: is there", sample->name))
        return;
    hid_t type = H5Dget_type(set), space = H5Dget_space(set);
    hid_t list = H5Dget_create_plist(set);
    int dims = H5Sget_simple_extent_dims(space, sizes, NULL);
    tap_is_int(dims, sample->dims > 0 ? sample->dims : 1, "%s: dimensions",
               sample->name);
    for (int d = 0; d < sample->dims; d++)
        tap_is_int((long long)sizes[d], sample->shape[d], "%s: dimension %d",
                   sample->name, d);
    tap_is_int((long long)H5Tget_size(type), (long long)sample->size,
               "%s: bytes of an element", sample->name);
    if (sample->mappings > 0)
        H5Pget_virtual_count(list, &count);
    tap_is_int((long long)count, sample->mappings, "%s: mappings",
               sample->name);
    if (count > 0) {
        H5Pget_virtual_filename(list, count - 1, text, sizeof text);
        H5Pget_virtual_dsetname(list, count - 1, source, sizeof source);
        tap_is_str(text, count > 1 ? "shard-1.h5" : "shard-0.h5",
                   "%s: the last file", sample->name);
        tap_is_str(source, sample->name, "%s: its dataset", sample->name);
        hid_t mapped = H5Pget_virtual_vspace(list, 0);
        H5Sget_select_bounds(mapped, first, last);
        tap_ok(memcmp(first, sample->first, sizeof first) == 0 &&
                   memcmp(last, sample->last, sizeof last) == 0,
               "%s: the first mapping is where it belongs", sample->name);
        H5Sclose(mapped);
    }
    H5Pclose(list);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(set);
}

static void create_samples(struct world *w)
{
    create(w, SAMPLES);
    for (int i = 0; i < SAMPLES; i++) {
        struct ckpt_tensor *tensor = &w->manifest.tensors[i];
        int64_t elements = 1;
        snprintf(tensor->name, sizeof tensor->name, "%s", samples[i].name);
        tensor->dtype = samples[i].dtype;
        tensor->dims = samples[i].dims;
        for (int d = 0; d < tensor->dims; d++) {
            tensor->shape[d] = samples[i].shape[d];
            elements *= samples[i].shape[d];
        }
        add_extent(w, 0, i, 0, samples[i].cut);
        add_extent(w, 1, i, samples[i].cut, elements);
    }
}

static void test_samples(void)
{
    struct world w;
    void *image = NULL, *again = NULL;
    size_t bytes = 0, bytes_again = 0;
    H5G_info_t group = { 0 };
    create_samples(&w);
    tap_ok(ckpt_view_image(&w.manifest, &image, &bytes) == ERR_OK &&
               ckpt_view_image(&w.manifest, &again, &bytes_again) == ERR_OK,
           "a view of all kinds of tensors");
    tap_ok(bytes == bytes_again && memcmp(image, again, bytes) == 0,
           "is made of the same bytes again");
    hid_t file = open_image(image, bytes);
    tap_ok(file >= 0, "HDF5 opens it");
    for (int i = 0; i < SAMPLES; i++)
        check_sample(file, &samples[i]);
    H5Gget_info_by_name(file, "a/b", &group, H5P_DEFAULT);
    tap_is_int((long long)group.nlinks, 3,
               "a group with two datasets, a group");
    tap_is_int(H5Lexists(file, "a/b/x", H5P_DEFAULT), 0, "and nothing else");
    H5Fclose(file);
    free(again);
    free(image);
    destroy(&w);
}

/* How many flips of one bit in superblock and headers pass as something else;
 * those behind the heap of 4096 bytes included. */
static int flips_accepted(unsigned char *image, size_t bytes)
{
    int accepted = 0;
    for (size_t at = 8; at < bytes; at = at == 47 ? 48 + 4096 : at + 1) {
        image[at] ^= 4;
        hid_t file = open_image(image, bytes);
        hid_t set = file < 0 ? -1 : H5Dopen2(file, "weights/t", H5P_DEFAULT);
        accepted += set >= 0;
        if (set >= 0)
            H5Dclose(set);
        if (file >= 0)
            H5Fclose(file);
        image[at] ^= 4;
    }
    return accepted;
}

static void test_flips(void)
{
    struct world w;
    void *image = NULL;
    size_t bytes = 0;
    int status = -1;
    create(&w, 1);
    add_vector(&w, 0, "t", 8, 8);
    tap_ok(ckpt_view_image(&w.manifest, &image, &bytes) == ERR_OK,
           "a view of one tensor");
    /* the library loses memory over a damaged file */
    pid_t child = fork();
    if (child == 0)
        _exit(flips_accepted(image, bytes) > 0);
    if (child > 0)
        waitpid(child, &status, 0);
    tap_is_int(status, 0, "a flipped bit in any header is found");
    free(image);
    destroy(&w);
}

static void test_many(void)
{
    struct world w;
    void *image = NULL;
    int found = 0;
    H5G_info_t group = { 0 };
    create(&w, MANY);
    for (int i = 0; i < MANY; i++) {
        char name[32];
        snprintf(name, sizeof name, "blocks.%d", i);
        add_vector(&w, i, name, i + 2, 1);
    }
    hid_t file = open_view(&w.manifest, &image, "a view of many tensors");
    H5Gget_info_by_name(file, "weights", &group, H5P_DEFAULT);
    tap_is_int((long long)group.nlinks, MANY, "as many links");
    for (int i = 0; i < MANY; i++) {
        hid_t set =
            H5Dopen2(file, shown_as(w.manifest.tensors[i].name), H5P_DEFAULT);
        hid_t space = H5Dget_space(set);
        hid_t list = H5Dget_create_plist(set);
        size_t count = 0;
        H5Pget_virtual_count(list, &count);
        found += H5Sget_simple_extent_npoints(space) == i + 2 && count == 2;
        H5Pclose(list);
        H5Sclose(space);
        H5Dclose(set);
    }
    tap_is_int(found, MANY, "each with its elements and mappings");
    H5Fclose(file);
    free(image);
    destroy(&w);
}

/* Nothing of its shards is there. */
static void check_missing(hid_t file, const struct sample *sample)
{
    union {
        double f64[40];
        int64_t i64[40];
    } values = { { 0 } };
    bool whole = !dtype_is_real(sample->dtype);
    int64_t least = sample->dtype == DTYPE_U8 ? 0 : INT32_MIN;
    if (sample->shape[1] > 8) /* "huge" */
        return;
    hid_t set = H5Dopen2(file, shown_as(sample->name), H5P_DEFAULT);
    hid_t space = H5Dget_space(set);
    int missing = 0, count = (int)H5Sget_simple_extent_npoints(space);
    herr_t read = H5Dread(set, whole ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE,
                          H5S_ALL, H5S_ALL, H5P_DEFAULT, &values);
    for (int i = 0; i < count; i++)
        missing += whole ? values.i64[i] == least : isnan(values.f64[i]);
    tap_ok(read >= 0 && missing == count, "%s: reads as %s without its shards",
           sample->name, whole ? "the least number" : "NaN");
    H5Sclose(space);
    H5Dclose(set);
}

static void test_missing(void)
{
    struct world w;
    void *image = NULL;
    create_samples(&w);
    hid_t file = open_view(&w.manifest, &image, "a view alone");
    for (int i = 0; i < SAMPLES; i++)
        check_missing(file, &samples[i]);
    H5Fclose(file);
    free(image);
    destroy(&w);
}

/* --- attributes --- */

static const char state_text[] =
    "{\"run_uuid\": \"u\", \"tokens\": 1536, \"lr0\": 1e-05, \"yes\": true, "
    "\"none\": null, \"empty\": \"\", \"step\": 99, "
    "\"arithmetic\": [\"first\", \"h\u00f6here\"], \"mixed\": [\"a\", 1], "
    "\"fixed\": {\"tokenizer\": \"t\", \"model.d_model\": 128, "
    "\"model.norm_eps\": 1e-05, \"model.bias\": false, \"train.x.y\": 3}, "
    "\"about\": {\"kinds\": {\"\": {\"kind\": \"weight\"}, "
    "\"a/b\": {\"kind\": \"moment\"}}, "
    "\"tensors\": {\"c\": {\"role\": \"sea\"}, "
    "\"h.*.w\": {\"axes\": [\"out\", \"in\"]}}}}";

/* An attribute as text: "i 128", "r 1e-05", "b 1", "t u", "l a,b". */
static void print_attribute(hid_t at, char *text, size_t room)
{
    hid_t type = H5Aget_type(at), space = H5Aget_space(at);
    int count = (int)H5Sget_simple_extent_npoints(space);
    bool list = H5Sget_simple_extent_type(space) == H5S_SIMPLE;
    long long whole = 0;
    double real = 0;
    signed char truth = -1;
    char *texts[8] = { NULL };
    switch (H5Tget_class(type)) {
    case H5T_INTEGER:
        H5Aread(at, H5T_NATIVE_LLONG, &whole);
        snprintf(text, room, "i %lld", whole);
        break;
    case H5T_FLOAT:
        H5Aread(at, H5T_NATIVE_DOUBLE, &real);
        snprintf(text, room, "r %g", real);
        break;
    case H5T_ENUM:
        H5Aread(at, type, &truth);
        snprintf(text, room, "b %d", truth);
        break;
    default:
        H5Aread(at, type, texts);
        snprintf(text, room, "%s %s%s%s", list ? "l" : "t",
                 texts[0] ? texts[0] : "", count > 1 ? "," : "",
                 count > 1 ? texts[1] : "");
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, texts);
    }
    H5Sclose(space);
    H5Tclose(type);
}

static void test_attributes(void)
{
    static const struct {
        const char *object, *name;
        const char *want; /* NULL: there is none */
    } cases[] = {
        { "/", "format_version", "i 2" },
        { "/", "step", "i 60" }, /* the checkpoint's own */
        { "/", "ranks", "i 2" },
        { "/", "run_uuid", "t u" },
        { "/", "tokens", "i 1536" },
        { "/", "lr0", "r 1e-05" },
        { "/", "yes", "b 1" },
        { "/", "empty", "t " },
        { "/", "arithmetic", "l first,h\xc3\xb6here" },
        { "/", "none", NULL },
        { "/", "mixed", NULL },
        { "/", "fixed", NULL },
        { "/config", "tokenizer", "t t" },
        { "/config/model", "d_model", "i 128" },
        { "/config/model", "norm_eps", "r 1e-05" },
        { "/config/model", "bias", "b 0" },
        { "/config/train", "x.y", "i 3" },
        { "/weights/z", "kind", "t weight" },
        { "/weights/z", "role", NULL },
        { "/a/b/c", "kind", "t moment" },
        { "/a/b/c", "role", "t sea" },
        { "/weights/h.12.w", "axes", "l out,in" },
        { "/weights/h.12.w", "layer", "i 12" },
        { "/weights/h.12.w", "kind", "t weight" },
        { "/weights/h.1x.w", "axes", NULL },
    };
    static const char *const names[] = { "z", "a/b/c", "h.12.w", "h.1x.w" };
    struct world w;
    void *image = NULL;
    create(&w, 4);
    w.manifest.step = 60;
    w.manifest.ranks = 2;
    w.manifest.state = json_loads(state_text, 0, NULL);
    for (int i = 0; i < 4; i++)
        add_vector(&w, i, names[i], 8, 8);
    hid_t file = open_view(&w.manifest, &image, "a view with a state");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[128] = "nothing";
        hid_t object = H5Oopen(file, cases[i].object, H5P_DEFAULT);
        hid_t at = H5Aopen(object, cases[i].name, H5P_DEFAULT);
        if (at >= 0) {
            print_attribute(at, text, sizeof text);
            H5Aclose(at);
        }
        tap_is_str(text, cases[i].want ? cases[i].want : "nothing",
                   "attribute %s of %s", cases[i].name, cases[i].object);
        H5Oclose(object);
    }
    H5Fclose(file);
    free(image);
    json_decref(w.manifest.state);
    destroy(&w);
}

/* Many pieces have no view until somebody asks for it. */
static void test_on_demand(void)
{
    const char *folder = tap_folder();
    char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    struct comm *comm = NULL;
    struct ckpt_manifest *manifest = NULL;
    struct ckpt_view view = { 0 };
    struct ckpt_options options = { .attempt = "1.1" };
    static float values[CKPT_VIEW_EXTENTS + 1];
    struct ckpt_item *items = calloc(CKPT_VIEW_EXTENTS + 1, sizeof *items);
    for (int i = 0; i <= CKPT_VIEW_EXTENTS; i++) {
        items[i] = (struct ckpt_item){
            .dims = 1, .shape = { 1 }, .part.end = 1, .data = &values[i]
        };
        snprintf(items[i].name, sizeof items[i].name, "t%d", i);
    }
    fsio_path(dir, "%s/checkpoints/step-000000001", folder);
    fsio_path(path, "%s/%s", dir, CKPT_VIEW_FILE);
    tap_ok(comm_create("self", NULL, NULL, 60.0, &comm) == ERR_OK &&
               ckpt_save(comm, folder, 1, NULL, items, CKPT_VIEW_EXTENTS + 1,
                         &options, NULL) == ERR_OK &&
               ckpt_manifest_read(dir, NULL, NULL, &manifest) == ERR_OK,
           "saved: %s", err_text());
    tap_ok(manifest != NULL && manifest->view.bytes == 0 &&
               !fsio_exists(path) && ckpt_view_check(dir, manifest) == ERR_OK,
           "without a view");
    tap_ok(manifest != NULL && ckpt_view_mend(dir, manifest, &view) == ERR_OK &&
               view.bytes > 0 && ckpt_view_check(dir, manifest) == ERR_OK,
           "made when it is asked for");
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t set = H5Dopen2(file, "weights/t16384", H5P_DEFAULT);
    tap_ok(set >= 0, "and read by the library");
    H5Dclose(set);
    H5Fclose(file);
    tap_ok(fixture_flip(path, 4000) && manifest != NULL &&
               ckpt_view_check(dir, manifest) == ERR_CHECKPOINT,
           "damage of it is found");
    ckpt_manifest_destroy(manifest);
    free(items);
    comm_destroy(comm);
}

int main(void)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    test_lookup3();
    test_samples();
    test_flips();
    test_many();
    test_missing();
    test_attributes();
    test_on_demand();
    return tap_done();
}
