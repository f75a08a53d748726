/* The shards of an index in few bytes: whatever their names, checksums and
 * columns are, what comes out is what went in. */
#include "src/data/mds/mds_pack.h"

#include "tests/tap.h"

#define MANY 100000

static uint32_t random_next(void)
{
    static uint32_t state = 7;
    state = state * 1664525 + 1013904223;
    return state >> 8;
}

static void add_sum(struct file_entry *file, const char *name)
{
    struct file_sum *sum = &file->hash[file->hashes++];
    size_t digits = checksum_digits(name);
    sum->name = name;
    for (size_t d = 0; d < digits; d++)
        sum->hex[d] = "0123456789abcdef"[random_next() % 16];
    sum->hex[digits] = '\0';
}

/* A number goes on from shard to shard within a form; some have other names. */
static void make_shard(int64_t s, int form, struct cache_shard *out)
{
    memset(out, 0, sizeof *out);
    char *raw = out->raw.name, *zip = out->zip.name;
    out->raw.bytes = 8 + (int64_t)(random_next() << 8);
    switch (form) {
    case 0:
        snprintf(raw, FILE_NAME_BYTES, "shard.%05lld.mds", (long long)s);
        add_sum(&out->raw, "sha256");
        return;
    case 1: /* of a group of 100, packed */
        snprintf(raw, FILE_NAME_BYTES, "%lld/shard.%05lld.mds",
                 (long long)s / 100, (long long)s % 100);
        snprintf(zip, FILE_NAME_BYTES, "%.40s.zstd", raw);
        add_sum(&out->raw, "xxh64");
        add_sum(&out->raw, "of a later time");
        add_sum(&out->zip, "sha1");
        out->zip.bytes = INT64_C(0x1fffffffe) - s;
        out->compression = "zstd:3";
        return;
    case 2: /* no rule */
        snprintf(raw, FILE_NAME_BYTES, "%x%s", random_next(),
                 random_next() % 2 ? ".mds" : "");
        return;
    case 3: /* packed under other names, or the same as before */
        snprintf(raw, FILE_NAME_BYTES, "a");
        snprintf(zip, FILE_NAME_BYTES, "%lld", (long long)s);
        out->compression = random_next() % 2 ? "br" : "gz:9";
        return;
    case 4: /* more digits than at first */
        snprintf(raw, FILE_NAME_BYTES, "x%lldy", (long long)(s - 10));
        add_sum(&out->raw, "sha512");
        return;
    case 5: /* as long as a name may be, and numbers with none behind */
        memset(raw, 'n', FILE_NAME_BYTES - 1);
        snprintf(raw + FILE_NAME_BYTES - 3, 3, "%02lld", (long long)s % 100);
        return;
    default: /* too many digits for a number */
        snprintf(raw, FILE_NAME_BYTES, "9999999999999999999999999999%lld",
                 (long long)s);
    }
}

static bool same_file(const struct file_entry *a, const struct file_entry *b)
{
    bool same = strcmp(a->name, b->name) == 0 && a->bytes == b->bytes &&
                a->hashes == b->hashes;
    for (int h = 0; same && h < a->hashes; h++)
        same = strcmp(a->hash[h].name, b->hash[h].name) == 0 &&
               strcmp(a->hash[h].hex, b->hash[h].hex) == 0;
    return same;
}

/* With what was there before put in its place. */
static bool is_there(const struct mds_pack *pack, int64_t s,
                     const struct cache_shard *want, int64_t samples,
                     const struct mds_layout *layout)
{
    struct cache_shard got;
    memset(&got, 0xA5, sizeof got);
    const struct mds_shard_info info = mds_pack_shard(pack, s);
    mds_pack_files(pack, s, &got);
    return same_file(&got.raw, &want->raw) && same_file(&got.zip, &want->zip) &&
           (want->compression == NULL
                ? got.compression == NULL
                : got.compression != NULL &&
                      strcmp(got.compression, want->compression) == 0) &&
           info.bytes == want->raw.bytes && info.samples == samples &&
           info.layout == layout;
}

/* Runs of random lengths of each form. */
static void test_any(void)
{
    enum { SHARDS = 4000 };
    static struct cache_shard want[SHARDS];
    static const struct mds_layout *layout[SHARDS];
    static int64_t samples[SHARDS];
    static const struct mds_layout layouts[2];
    struct mds_pack pack = { 0 };
    int64_t total = 0;
    int failed = 0, wrong = 0, lost = 0, form = 0, of = 0;
    for (int64_t s = 0; s < SHARDS; s++) {
        if (s == 0 || random_next() % 10 == 0) {
            form = (int)(random_next() % 7);
            of = (int)(random_next() % 2);
        }
        make_shard(s, form, &want[s]);
        layout[s] = &layouts[of];
        samples[s] = random_next() % 3;
        total += samples[s];
        failed +=
            mds_pack_add(&pack, &want[s], samples[s], layout[s]) != ERR_OK;
    }
    tap_is_int(failed, 0, "%d shards of all forms are packed", SHARDS);
    for (int64_t s = 0; s < SHARDS; s++)
        wrong += !is_there(&pack, s, &want[s], samples[s], layout[s]);
    tap_is_int(wrong, 0, "each comes out as it went in");
    int64_t at = 0;
    for (int64_t s = 0; s < SHARDS; s++)
        for (int64_t n = 0; n < samples[s]; n++, at++) {
            int64_t number = -1;
            lost += mds_pack_find(&pack, at, &number) != s || number != n;
        }
    tap_ok(at == total && lost == 0, "each sample is found");
    char *digits = malloc(64 * SHARDS);
    for (int d = 0; d < 64 * SHARDS; d++)
        digits[d] = "0123456789abcdef"[random_next() % 16];
    digits[64 * 1234 + 5] = 'A';
    tap_ok(mds_pack_add_sha256(&pack, digits) == ERR_DATA,
           "sums that are none: %s", err_text());
    digits[64 * 1234 + 5] = 'a';
    tap_is_int(mds_pack_add_sha256(&pack, digits), ERR_OK, "sums beside them");
    for (int64_t s = 0; s < SHARDS; s++) {
        struct file_sum *more = &want[s].raw.hash[want[s].raw.hashes++];
        more->name = "sha256";
        snprintf(more->hex, 65, "%.64s", digits + 64 * s);
        wrong += !is_there(&pack, s, &want[s], samples[s], layout[s]);
    }
    tap_is_int(wrong, 0, "... are there, and all else as before");
    struct buffer images = { 0 };
    struct mds_pack taken;
    static struct mds_layout *list[SHARDS];
    int64_t lists = 0;
    for (int64_t s = 0; s < SHARDS; s++)
        if (s == 0 || layout[s] != layout[s - 1])
            list[lists++] = (struct mds_layout *)(uintptr_t)layout[s];
    failed =
        buffer_add(&images, "12345678", 8) != ERR_OK ||
        mds_pack_image(&pack, &images) != ERR_OK ||
        mds_pack_take((const char *)images.data + 8, list, &taken) != ERR_OK;
    mds_pack_release(&pack);
    for (int64_t s = 0; !failed && s < SHARDS; s++)
        wrong += !is_there(&taken, s, &want[s], samples[s], layout[s]);
    tap_ok(!failed && wrong == 0, "an image of it has all");
    mds_pack_release(&taken);
    buffer_free(&images);
    free(digits);
}

/* Of what data sets have by far most often. */
static void test_bytes(int form, double most, const char *what)
{
    static const struct mds_layout layout;
    struct mds_pack pack = { 0 };
    struct cache_shard files;
    int failed = 0;
    for (int64_t s = 0; s < MANY; s++) {
        make_shard(s, form, &files);
        failed += mds_pack_add(&pack, &files, 1, &layout) != ERR_OK;
    }
    double bytes = (double)mds_pack_bytes(&pack) / MANY;
    tap_ok(failed == 0 && bytes <= most, "%s: %.1f bytes a shard, at most %.0f",
           what, bytes, most);
    mds_pack_release(&pack);
}

int main(void)
{
    test_any();
    test_bytes(0, 48, "sha256");
    test_bytes(1, 64, "packed, in groups of 100");
    test_bytes(2, 64, "names of no rule");
    return tap_done();
}
