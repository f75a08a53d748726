/* checkpoint.h5 as the HDF5 library reads it: names, groups, types, shapes and
 * where the elements come from. Real data through it: ckpt_view.bats. */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/ckpt_lookup3.h"
#include "checkpoint/ckpt_view_image.h"
#include "tests/tap.h"

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

/* A tensor, cut into two pieces at element `cut` of the flattened tensor. */
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
    { "a/b/c", DTYPE_F32, 2, { 4, 8 }, 16, 2, 4, { 0, 0 }, { 1, 7 } },
    { "a/b.c", DTYPE_F64, 1, { 9 }, 3, 2, 8, { 0 }, { 2 } },
    { "a/bb/d", DTYPE_BF16, 2, { 4, 8 }, 8, 2, 2, { 0, 0 }, { 0, 7 } },
    { "a/b/d/e", DTYPE_I32, 0, { 0 }, 1, 1, 4, { 0 }, { 0 } },
    { "z", DTYPE_F32, 3, { 2, 3, 4 }, 7, 5, 4, { 0, 0, 0 }, { 0, 0, 3 } },
    { "huge",
      DTYPE_BF16,
      2,
      { 3, INT64_C(1) << 33 },
      INT64_C(1) << 34,
      2,
      2,
      { 0, 0 },
      { 1, (UINT64_C(1) << 33) - 1 } },
    { "empty", DTYPE_F32, 2, { 0, 4 }, 0, 0, 4, { 0 }, { 0 } },
};
enum { SAMPLES = sizeof samples / sizeof samples[0] };

struct world {
    struct ckpt_manifest manifest;
    struct ckpt_shard shards[SHARDS];
};

static void add_piece(struct world *w, int shard, int tensor, int64_t begin,
                      int64_t end)
{
    if (begin < end)
        w->shards[shard].pieces[w->shards[shard].piece_count++] =
            (struct ckpt_piece){ .tensor = tensor,
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
        w->shards[s].pieces =
            calloc((size_t)tensors, sizeof *w->shards[s].pieces);
        snprintf(w->shards[s].file, sizeof w->shards[s].file, "shard-%d.h5", s);
    }
}

static void destroy(struct world *w)
{
    free(w->manifest.tensors);
    for (int s = 0; s < SHARDS; s++)
        free(w->shards[s].pieces);
}

/* The dataset of one sample, and its mappings. */
static void check_sample(hid_t file, const struct sample *sample)
{
    hsize_t sizes[3] = { 0 }, first[3] = { 0 }, last[3] = { 0 };
    char text[64] = "", source[64] = "";
    size_t count = 0;
    hid_t set = H5Dopen2(file, sample->name, H5P_DEFAULT);
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

static void test_samples(void)
{
    struct world w;
    void *image = NULL, *again = NULL;
    size_t bytes = 0, bytes_again = 0;
    H5G_info_t group = { 0 };
    create(&w, SAMPLES);
    for (int i = 0; i < SAMPLES; i++) {
        struct ckpt_tensor *tensor = &w.manifest.tensors[i];
        int64_t elements = 1;
        snprintf(tensor->name, sizeof tensor->name, "%s", samples[i].name);
        tensor->dtype = samples[i].dtype;
        tensor->dims = samples[i].dims;
        for (int d = 0; d < tensor->dims; d++) {
            tensor->shape[d] = samples[i].shape[d];
            elements *= samples[i].shape[d];
        }
        add_piece(&w, 0, i, 0, samples[i].cut);
        add_piece(&w, 1, i, samples[i].cut, elements);
    }
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
    tap_is_int((long long)group.nlinks, 2, "a group with a dataset, a group");
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
        hid_t set = file < 0 ? -1 : H5Dopen2(file, "t", H5P_DEFAULT);
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
    snprintf(w.manifest.tensors[0].name, CKPT_NAME_BYTES, "t");
    w.manifest.tensors[0].dims = 1;
    w.manifest.tensors[0].shape[0] = 8;
    add_piece(&w, 0, 0, 0, 8);
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
    size_t bytes = 0;
    int found = 0;
    H5G_info_t group = { 0 };
    create(&w, MANY);
    for (int i = 0; i < MANY; i++) {
        struct ckpt_tensor *tensor = &w.manifest.tensors[i];
        snprintf(tensor->name, sizeof tensor->name, "blocks.%d", i);
        tensor->dims = 1;
        tensor->shape[0] = i + 2;
        add_piece(&w, 0, i, 0, 1);
        add_piece(&w, 1, i, 1, i + 2);
    }
    tap_ok(ckpt_view_image(&w.manifest, &image, &bytes) == ERR_OK,
           "a view of %d tensors", MANY);
    hid_t file = open_image(image, bytes);
    H5Gget_info(file, &group);
    tap_is_int((long long)group.nlinks, MANY, "as many links");
    for (int i = 0; i < MANY; i++) {
        hid_t set = H5Dopen2(file, w.manifest.tensors[i].name, H5P_DEFAULT);
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

int main(void)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    test_lookup3();
    test_samples();
    test_flips();
    test_many();
    return tap_done();
}
