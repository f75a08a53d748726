/* Extents of a manifest as runs that go on with those of the shard before: what is
 * written is read again, in few bytes where ranks are cut alike; and whatever is
 * wrong with a run is refused with the file's name. */

#include "checkpoint/files/ckpt_shard.h"
#include "tests/ckpt_fixture.h"

#define TENSORS 60
#define PAGE 4096

/* Place `slot` of `slots` of a tensor. */
typedef int64_t (*cut_fn)(int tensor, int64_t elements, int slot, int slots);

static int64_t cut_equal(int tensor, int64_t elements, int slot, int slots)
{
    (void)tensor;
    return elements / slots * slot;
}

static int64_t cut_uneven(int tensor, int64_t elements, int slot, int slots)
{
    (void)tensor;
    return elements / 16 * slot / slots * 16;
}

/* All tensors end to end. */
static int64_t cut_flat(int tensor, int64_t elements, int slot, int slots)
{
    int64_t at = elements * TENSORS * slot / slots - elements * tensor;
    return at < 0 ? 0 : at > elements ? elements : at;
}

static int64_t cut_random(int tensor, int64_t elements, int slot, int slots)
{
    uint64_t hash = (uint64_t)(tensor * 1000 + slot) * 0x9e3779b97f4a7c15u;
    int64_t least = elements * slot / slots;
    return slot == 0       ? 0
           : slot == slots ? elements
                           : least + (int64_t)(hash >> 40) % (elements / slots);
}

static const struct cut {
    const char *what;
    int files, apart; /* places of each tensor in a file */
    cut_fn begin;
    bool boxes, old; /* the second tensor in boxes; CRCs in the manifest */
    int most;        /* bytes for each file but the first; 0: any number */
} cuts[] = {
    { "equal parts", 96, 1, cut_equal, false, false, 130 },
    { "uneven parts", 120, 1, cut_uneven, false, false, 135 },
    { "parts of two places", 48, 2, cut_equal, false, false, 130 },
    { "tensors end to end", 7, 1, cut_flat, false, false, 0 },
    { "random parts", 30, 1, cut_random, false, false, 0 },
    { "boxes among them", 24, 1, cut_equal, true, false, 160 },
    { "one file", 1, 1, cut_equal, false, false, 0 },
    { "CRCs in the manifest", 12, 1, cut_uneven, false, true, 0 },
};

static void make_items(struct ckpt_item *items, int64_t columns)
{
    for (int t = 0; t < TENSORS; t++) {
        items[t] = (struct ckpt_item){ .dims = 2, .shape = { 192, columns } };
        snprintf(items[t].name, sizeof items[t].name, "layer.%d", t);
    }
}

static void add(struct ckpt_shard *shard, int tensor,
                const struct ckpt_part *part)
{
    struct ckpt_extent *extent = &shard->extents[shard->extent_count];
    int64_t offset = ckpt_manifest_end(shard, shard->extent_count);
    *extent = (struct ckpt_extent){
        .tensor = tensor, .dims = 2, .part = *part, .block = shard->block_count
    };
    extent->bytes = 4 * ckpt_part_elements(part, 2);
    /* HDF5's metadata lies somewhere, large extents at pages */
    offset += shard->extent_count % 25 == 0 ? 2048 : 0;
    if (extent->bytes > PAGE)
        offset = (offset + PAGE - 1) / PAGE * PAGE;
    extent->offset = offset;
    shard->block_count += ckpt_manifest_block_count(extent->bytes);
    shard->extent_count++;
}

static void make_shard(struct ckpt_shard *shard, const struct cut *cut,
                       int file, int64_t columns)
{
    int slots = cut->files * cut->apart;
    *shard = (struct ckpt_shard){ .frame_crc = 4000000000u + (uint32_t)file };
    shard->extents =
        calloc((size_t)(TENSORS * cut->apart), sizeof *shard->extents);
    ckpt_shard_name(file, cut->files, CKPT_SHARD_FOLDER_FILES, shard->file);
    for (int t = 0; t < TENSORS; t++)
        for (int a = 0; a < cut->apart; a++) {
            int slot = a * cut->files + file;
            int64_t elements = 192 * columns;
            struct ckpt_part part = {
                .begin = cut->begin(t, elements, slot, slots),
                .end = cut->begin(t, elements, slot + 1, slots),
            };
            if (cut->boxes && t == 1)
                part = (struct ckpt_part){
                    .boxed = true,
                    .origin = { 0, columns / slots * slot },
                    .sides = { 192, columns / slots },
                };
            if (part.boxed || part.begin < part.end)
                add(shard, t, &part);
        }
    shard->bytes = ckpt_manifest_end(shard, shard->extent_count);
    if (cut->old) {
        shard->blocks = calloc((size_t)shard->block_count, sizeof(uint32_t));
        for (int64_t b = 0; b < shard->block_count; b++)
            shard->blocks[b] = (uint32_t)(file * 1000 + b);
    } else {
        shard->crc_offset = shard->bytes + 100;
        shard->bytes = shard->crc_offset + 4 * shard->block_count + 7;
    }
}

/* The manifest of a cut; *shards are its files. */
static char *make(const struct cut *cut, size_t *bytes,
                  struct ckpt_shard **shards)
{
    struct ckpt_item items[TENSORS];
    struct ckpt_manifest_head head = { .step = 1,
                                       .ranks = 1,
                                       .attempt = "1.1",
                                       .items = items,
                                       .item_count = TENSORS };
    char *text = NULL;
    int64_t columns = 960;
    make_items(items, columns);
    *shards = calloc((size_t)cut->files, sizeof **shards);
    for (int f = 0; f < cut->files; f++)
        make_shard(&(*shards)[f], cut, f, columns);
    if (ckpt_manifest_format(&head, *shards, cut->files, &text, bytes) !=
        ERR_OK)
        tap_note("%s", err_text());
    return text;
}

static void unmake(const struct cut *cut, struct ckpt_shard *shards)
{
    for (int f = 0; f < cut->files; f++)
        ckpt_manifest_free_shard(&shards[f]);
    free(shards);
}

static bool same(const struct ckpt_shard *a, const struct ckpt_shard *b)
{
    bool good = strcmp(a->file, b->file) == 0 && a->bytes == b->bytes &&
                a->frame_crc == b->frame_crc &&
                a->crc_offset == b->crc_offset &&
                a->block_count == b->block_count &&
                a->extent_count == b->extent_count &&
                (a->blocks == NULL) == (b->blocks == NULL);
    for (int64_t i = 0; good && a->blocks != NULL && i < a->block_count; i++)
        good = a->blocks[i] == b->blocks[i];
    for (int i = 0; good && i < a->extent_count; i++) {
        const struct ckpt_extent *x = &a->extents[i], *y = &b->extents[i];
        good = x->tensor == y->tensor && x->offset == y->offset &&
               x->bytes == y->bytes && x->block == y->block &&
               x->dims == y->dims && x->part.boxed == y->part.boxed &&
               x->part.begin == y->part.begin && x->part.end == y->part.end &&
               memcmp(x->part.origin, y->part.origin, sizeof x->part.origin) ==
                   0 &&
               memcmp(x->part.sides, y->part.sides, sizeof x->part.sides) == 0;
    }
    return good;
}

static void test_cut(const struct cut *cut)
{
    struct ckpt_shard *shards;
    struct ckpt_manifest *manifest = NULL;
    size_t bytes = 0, first;
    char *text = make(cut, &bytes, &shards);
    bool good = ckpt_manifest_parse(text, bytes, "m", &manifest) == ERR_OK &&
                manifest->shard_count == cut->files;
    if (!good)
        tap_note("%s", err_text());
    for (int f = 0; good && f < cut->files; f++)
        good = same(&shards[f], &manifest->shards[f]);
    tap_ok(good, "%s: read as they were written", cut->what);
    ckpt_manifest_destroy(manifest);
    good =
        ckpt_manifest_parse_as(text, bytes, "m", true, &manifest) == ERR_OK &&
        manifest->shard_count == cut->files && manifest->extents == 0;
    for (int f = 0; good && f < cut->files; f++)
        good = manifest->shards[f].bytes == shards[f].bytes &&
               strcmp(manifest->shards[f].file, shards[f].file) == 0;
    tap_ok(good, "%s: or their names and lengths alone", cut->what);
    first = (size_t)(strstr(text, "shard-00000") - text);
    first += strcspn(text + first, "\n");
    if (cut->most > 0)
        tap_ok(bytes - first <= (size_t)(cut->most * cut->files),
               "%s: in %zu bytes for %d files", cut->what, bytes - first,
               cut->files);
    ckpt_manifest_destroy(manifest);
    free(text);
    unmake(cut, shards);
}

/* --- forms of three files of which the second and third are a run --- */

static const struct cut three = { "", 3, 1, cut_equal, false, false, 0 };

#define RUN "\"pieces\":[[0,60,0]]"
#define SECOND "00001-of-00003.h5\","

static const struct edit {
    const char *find, *put;
    int file; /* that the error names; -1: there is none */
} edits[] = {
    { RUN, RUN, -1 },
    { RUN, "\"pieces\":[[0,25,0],[25,35,0]]", -1 },
    { "\"version\": 2", "\"version\": 1", -1 },
    { RUN, "\"pieces\":[[0,59,0]]", 2 }, /* whose run is of 60 */
    { RUN, "\"pieces\":[[0,61,0]]", 1 },
    { RUN, "\"pieces\":[[1,60,0]]", 1 },
    { RUN, "\"pieces\":[[60,1,0]]", 1 },
    { RUN, "\"pieces\":[[-1,60,0]]", 1 },
    { RUN, "\"pieces\":[[0,0,0]]", 1 },
    { RUN, "\"pieces\":[[0,-1,0]]", 1 },
    { RUN, "\"pieces\":[[4294967296,60,0]]", 1 },
    { RUN, "\"pieces\":[[0,9223372036854775807,0]]", 1 },
    { RUN, "\"pieces\":[[0,30,0],[0,30,0]]", 1 },
    { RUN, "\"pieces\":[[30,30,0],[0,30,0]]", 1 },
    { RUN, "\"pieces\":[[0,60]]", 1 },
    { RUN, "\"pieces\":[[0,60,0,0,0]]", 1 },
    { RUN, "\"pieces\":[0,60,0]", 1 },
    { RUN, "\"pieces\":[[]]", 1 },
    { RUN, "\"pieces\":{\"0\":[0,60,0]}", 1 },
    { RUN, "\"pieces\":[[0,60,\"0\"]]", 1 },
    { RUN, "\"pieces\":[[0,60,0.5]]", 1 },
    { RUN, "\"pieces\":[[0,60,-61440]]", 1 },
    { RUN, "\"pieces\":[[0,60,61441]]", 1 },
    { RUN, "\"pieces\":[[0,60,4611686018427387904]]", 1 },
    { RUN, "\"pieces\":[[0,60,-4611686018427387904]]", 1 },
    { RUN, "\"pieces\":[[0,60,9223372036854775807]]", 1 },
    { "\"pieces\":[[0,0,", "\"pieces\":[[0,1,0],[0,0,", 0 },
    { SECOND "\"bytes\":", SECOND "\"bytes\":9,\"x\":", 1 },
    { SECOND "\"bytes\":", SECOND "\"bytes\":2047,\"x\":", 1 },
    { SECOND "\"bytes\":", SECOND "\"bytes\":-9,\"x\":", 1 },
    { "\"crc32c_offset\":", "\"crc32c_offset\":0,\"x\":", 0 },
    { "\"crc32c_offset\":", "\"crc32c_offset\":-", 0 },
    { "\"crc32c_offset\":", "\"crc32c_offset\":2048,\"x\":", 0 },
    { "\"crc32c_offset\":", "\"crc32c_offset\":9", 0 },
    { "\"crc32c_offset\":", "\"crc32c_offset\":\"9\",\"x\":", 0 },
    { "\"crc32c_offset\":", "\"x\":", 0 },
    { "\"crc32c_offset\":", "\"block_crc32c\":[1],\"x\":", 0 },
    { "\"crc32c_offset\":", "\"block_crc32c\":null,\"x\":", 0 },
    { "\"file\":\"shard-0", "\"file\":\"shard-\\\"", 9 },
};

static bool refused(char *text, size_t bytes, const char *named)
{
    struct ckpt_manifest *manifest = NULL;
    enum err rc = ckpt_manifest_parse(text, bytes, "m", &manifest);
    bool good = named == NULL
                    ? rc == ERR_OK
                    : rc == ERR_CHECKPOINT && strstr(err_text(), named) != NULL;
    if (!good || rc != ERR_OK)
        tap_note("%s", rc == ERR_OK ? "taken" : err_text());
    ckpt_manifest_destroy(manifest);
    return good;
}

static void test_edits(void)
{
    struct ckpt_shard *shards;
    size_t bytes = 0, length = 0;
    char *text = make(&three, &bytes, &shards);
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        const struct edit *edit = &edits[i];
        char *edited =
            fixture_edit(text, bytes, edit->find, edit->put, &length);
        const char *named = edit->file < 0 ? NULL
                            : edit->file >= 3
                                ? "shards: malformed: shard file name"
                                : shards[edit->file].file;
        tap_ok(edited != NULL && refused(edited, length, named), "%s -> %s",
               edit->find, edit->put);
        free(edited);
    }
    char *less =
        fixture_edit(text, bytes, RUN, "\"pieces\":[[0,60,-16]]", &length);
    tap_ok(refused(less, length, "layer.0: element 184288 of 184320 is"),
           "what no shard has is named");
    free(less);
    free(text);
    unmake(&three, shards);
}

int main(void)
{
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++)
        test_cut(&cuts[i]);
    test_edits();
    return tap_done();
}
