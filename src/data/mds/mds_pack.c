/* Packs and unpacks the shards of an index.
 *
 *   record: raw bytes u32 [zip bytes u64] raw checksums, zip checksums
 *           [where its names are u32]
 *   form:   [zip: 1 or 0] sums of raw [sums of zip, compression, ending]
 *   sums:   how many, u8, and their names
 *
 * A form is what the records of a run have alike, and tells how to read them.
 * Texts in it end with a NUL. Of a checksum that is not known there is the name
 * only. */
#include "src/data/mds/mds_pack.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/new.h"
#include "src/data/codec/checksum.h"

/* A number in a name is an int64_t. */
#define MDS_PACK_DIGITS_MAX 17

struct mds_run {
    int64_t first;     /* shard */
    size_t at, stride; /* of its record, between records */
    const struct mds_layout *layout;
    uint8_t *form;
    size_t form_bytes;
    /* the first one's raw file; NULL: each record has the place of its names */
    char *name;
    size_t number_at; /* where a number is in the name */
    int digits;       /* of it */
    int64_t number;
};

void mds_pack_release(struct mds_pack *pack)
{
    for (int64_t r = 0; r < pack->run_count && !pack->lent; r++) {
        free(pack->runs[r].form);
        free(pack->runs[r].name);
    }
    free(pack->runs);
    buffer_free(&pack->form);
    if (pack->lent)
        return;
    free(pack->first);
    free(pack->sha256);
    buffer_free(&pack->records);
    buffer_free(&pack->names);
}

static enum err mds_pack_text(struct buffer *to, const char *text)
{
    return buffer_add(to, text, strlen(text) + 1);
}

static int mds_pack_nibble(char digit)
{
    return digit <= '9' ? digit - '0' : digit - 'a' + 10;
}

static enum err mds_pack_hex(struct buffer *to, const char *hex)
{
    for (; hex[0] != '\0'; hex += 2) {
        uint8_t byte =
            (uint8_t)(mds_pack_nibble(hex[0]) << 4 | mds_pack_nibble(hex[1]));
        TRY(buffer_add(to, &byte, 1));
    }
    return ERR_OK;
}

/* What the zip file's name has behind the raw one's; NULL: it is another. */
static const char *mds_pack_ending(const struct cache_shard *files)
{
    size_t length = strlen(files->raw.name);
    if (files->zip.name[0] == '\0')
        return "";
    return strncmp(files->zip.name, files->raw.name, length) == 0
               ? files->zip.name + length
               : NULL;
}

static enum err mds_pack_form_sums(struct buffer *form,
                                   const struct file_entry *file)
{
    uint8_t count = (uint8_t)file->hashes;
    TRY(buffer_add(form, &count, 1));
    for (int h = 0; h < file->hashes; h++)
        TRY(mds_pack_text(form, file->hash[h].name));
    return ERR_OK;
}

static enum err mds_pack_form(struct buffer *form,
                              const struct cache_shard *files)
{
    const char *ending = mds_pack_ending(files);
    uint8_t zip = files->zip.name[0] != '\0';
    form->bytes = 0;
    TRY(buffer_add(form, &zip, 1));
    TRY(mds_pack_form_sums(form, &files->raw));
    if (!zip)
        return ERR_OK;
    TRY(mds_pack_form_sums(form, &files->zip));
    TRY(mds_pack_text(form, files->compression));
    return mds_pack_text(form, ending != NULL ? ending : "");
}

/* The last number in the first one's name; without one none is counted on. */
static enum err mds_pack_name(struct mds_run *run,
                              const struct cache_shard *files)
{
    const char *name = files->raw.name;
    size_t end = strlen(name);
    while (end > 0 && (name[end - 1] < '0' || name[end - 1] > '9'))
        end--;
    size_t begin = end;
    while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9')
        begin--;
    if (end == begin || end - begin > MDS_PACK_DIGITS_MAX ||
        mds_pack_ending(files) == NULL)
        return ERR_OK;
    run->number_at = begin;
    run->digits = (int)(end - begin);
    run->number = strtoll(name + begin, NULL, 10);
    return new_text(&run->name, name);
}

/* The name of the shard that is `later` after the first. */
static void mds_pack_count_on(const struct mds_run *run, int64_t later,
                              char name[FILE_NAME_BYTES])
{
    /* a digit more than the first has may be too long: then it is not its */
    int length =
        snprintf(name, FILE_NAME_BYTES, "%.*s%0*lld%s", (int)run->number_at,
                 run->name, run->digits, (long long)(run->number + later),
                 run->name + run->number_at + run->digits);
    if (length >= FILE_NAME_BYTES)
        name[0] = '\0';
}

/* Whether the run's rule makes the names of a shard of its form. */
static bool mds_pack_is_next(const struct mds_run *run, int64_t later,
                             const struct cache_shard *files)
{
    char name[FILE_NAME_BYTES];
    mds_pack_count_on(run, later, name);
    return strcmp(name, files->raw.name) == 0 && mds_pack_ending(files) != NULL;
}

/* Names behind the record that is last. */
static enum err mds_pack_add_names(struct mds_pack *pack, const char *raw,
                                   const char *zip, const char *ending)
{
    uint32_t at = (uint32_t)pack->names.bytes;
    TRY(mds_pack_text(&pack->names, raw));
    TRY(buffer_add(&pack->names, zip, strlen(zip)));
    TRY(mds_pack_text(&pack->names, ending));
    return buffer_add(&pack->records, &at, sizeof at);
}

/* The run whose one shard has a name that the next one's does not follow. */
static enum err mds_pack_unrule(struct mds_pack *pack, struct mds_run *run)
{
    const uint8_t *end = run->form + run->form_bytes;
    const char *ending = (const char *)end - 1;
    if (run->form[0] == 0)
        ending = "";
    else /* the last text */
        while (ending[-1] != '\0')
            ending--;
    TRY(mds_pack_add_names(pack, run->name, run->form[0] ? run->name : "",
                           ending));
    run->stride = pack->records.bytes - run->at;
    free(run->name);
    run->name = NULL;
    return ERR_OK;
}

/* The run that a shard belongs to, maybe a new one. */
static enum err mds_pack_run(struct mds_pack *pack,
                             const struct cache_shard *files,
                             const struct mds_layout *layout,
                             struct mds_run **out)
{
    struct mds_run *run =
        pack->run_count > 0 ? &pack->runs[pack->run_count - 1] : NULL;
    const struct buffer *form = &pack->form;
    *out = run;
    if (run != NULL && run->layout == layout &&
        run->form_bytes == form->bytes &&
        memcmp(run->form, form->data, form->bytes) == 0) {
        int64_t later = pack->shards - run->first;
        if (run->name == NULL || mds_pack_is_next(run, later, files))
            return ERR_OK;
        if (later == 1)
            return mds_pack_unrule(pack, run);
    }
    TRY(array_room(&pack->runs, &pack->run_room, pack->run_count + 1));
    run = &pack->runs[pack->run_count++];
    *run = (struct mds_run){ .first = pack->shards,
                             .at = pack->records.bytes,
                             .layout = layout,
                             .form_bytes = form->bytes };
    *out = run;
    TRY(new_room(&run->form, form->bytes));
    memcpy(run->form, form->data, form->bytes);
    return mds_pack_name(run, files);
}

static enum err mds_pack_add_sums(struct buffer *records,
                                  const struct file_entry *file)
{
    for (int h = 0; h < file->hashes; h++)
        if (checksum_digits(file->hash[h].name) > 0)
            TRY(mds_pack_hex(records, file->hash[h].hex));
    return ERR_OK;
}

enum err mds_pack_add(struct mds_pack *pack, const struct cache_shard *files,
                      int64_t samples, const struct mds_layout *layout)
{
    uint32_t raw = (uint32_t)files->raw.bytes;
    struct mds_run *run = NULL;
    TRY(mds_pack_form(&pack->form, files));
    TRY(mds_pack_run(pack, files, layout, &run));
    size_t begin = pack->records.bytes;
    TRY(buffer_add(&pack->records, &raw, sizeof raw));
    if (pack->form.data[0] != 0)
        TRY(buffer_add(&pack->records, &files->zip.bytes,
                       sizeof files->zip.bytes));
    TRY(mds_pack_add_sums(&pack->records, &files->raw));
    TRY(mds_pack_add_sums(&pack->records, &files->zip));
    if (run->name == NULL)
        TRY(mds_pack_add_names(pack, files->raw.name, files->zip.name, ""));
    run->stride = pack->records.bytes - begin;
    TRY(array_room(&pack->first, &pack->first_room, pack->shards + 2));
    int64_t first = pack->shards == 0 ? 0 : pack->first[pack->shards];
    pack->first[pack->shards++] = first;
    pack->first[pack->shards] = first + samples;
    return ERR_OK;
}

enum err mds_pack_add_sha256(struct mds_pack *pack, const char *digits)
{
    struct buffer bytes = { 0 };
    size_t count = 64 * (size_t)pack->shards;
    char one[65] = "";
    enum err rc = ERR_OK;
    assert(pack->sha256 == NULL);
    TRY(buffer_reserve(&bytes, count / 2));
    for (size_t at = 0; at < count; at += 64) {
        memcpy(one, digits + at, 64);
        if (strspn(one, "0123456789abcdef") != 64)
            TRY_OUT(err_set(ERR_DATA, "'hashes.sha256' is not 64 lower-case "
                                      "hexadecimal digits"));
        TRY_OUT(mds_pack_hex(&bytes, one));
    }
    pack->sha256 = bytes.data;
    bytes.data = NULL;
out:
    buffer_free(&bytes);
    return rc;
}

/* An image: the pack, the runs, what the pack points to, and each run's form and
 * name. What points somewhere points anywhere there. */
enum err mds_pack_image(const struct mds_pack *pack, struct buffer *images)
{
    size_t shards = (size_t)pack->shards;
    assert(shards > 0);
    TRY(buffer_add(images, "\0\0\0\0\0\0\0", -images->bytes % 8));
    TRY(buffer_add(images, pack, sizeof *pack));
    TRY(buffer_add(images, pack->first, (shards + 1) * sizeof *pack->first));
    TRY(buffer_add(images, pack->runs,
                   (size_t)pack->run_count * sizeof *pack->runs));
    TRY(buffer_add(images, pack->records.data, pack->records.bytes));
    TRY(buffer_add(images, pack->names.data, pack->names.bytes));
    TRY(buffer_add(images, pack->sha256,
                   pack->sha256 != NULL ? 32 * shards : 0));
    for (int64_t r = 0; r < pack->run_count; r++) {
        const struct mds_run *run = &pack->runs[r];
        TRY(buffer_add(images, run->form, run->form_bytes));
        TRY(buffer_add(images, run->name,
                       run->name != NULL ? strlen(run->name) + 1 : 0));
    }
    return ERR_OK;
}

/* The next so many bytes, which nobody writes. */
static void *mds_pack_next(const char **at, size_t bytes)
{
    *at += bytes;
    return (void *)(uintptr_t)(*at - bytes);
}

enum err mds_pack_take(const char *at, struct mds_layout *const *layouts,
                       struct mds_pack *pack)
{
    const struct mds_layout *last = NULL;
    struct mds_run *runs = NULL;
    at += -(uintptr_t)at % 8;
    struct mds_pack all = *(struct mds_pack *)mds_pack_next(&at, sizeof all);
    size_t shards = (size_t)all.shards, count = (size_t)all.run_count;
    TRY(new_room(&runs, count));
    all.first = mds_pack_next(&at, (shards + 1) * sizeof *all.first);
    all.runs = memcpy(runs, mds_pack_next(&at, count * sizeof *runs),
                      count * sizeof *runs);
    all.records.data = mds_pack_next(&at, all.records.bytes);
    all.names.data = mds_pack_next(&at, all.names.bytes);
    if (all.sha256 != NULL)
        all.sha256 = mds_pack_next(&at, 32 * shards);
    for (struct mds_run *run = runs; run < runs + count; run++) {
        layouts += last != NULL && run->layout != last;
        last = run->layout;
        run->layout = *layouts;
        run->form = mds_pack_next(&at, run->form_bytes);
        if (run->name != NULL)
            run->name = mds_pack_next(&at, strlen(at) + 1);
    }
    all.form = (struct buffer){ 0 };
    all.lent = true;
    *pack = all;
    return ERR_OK;
}

static const struct mds_run *mds_pack_run_of(const struct mds_pack *pack,
                                             int64_t shard)
{
    int64_t low = 0, high = pack->run_count - 1; /* it is in [low, high] */
    assert(shard >= 0 && shard < pack->shards);
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (pack->runs[middle].first <= shard)
            low = middle;
        else
            high = middle - 1;
    }
    return &pack->runs[low];
}

static const uint8_t *mds_pack_record(const struct mds_pack *pack,
                                      const struct mds_run *run, int64_t shard)
{
    return pack->records.data + run->at +
           run->stride * (size_t)(shard - run->first);
}

struct mds_shard_info mds_pack_shard(const struct mds_pack *pack, int64_t shard)
{
    uint32_t bytes;
    const struct mds_run *run = mds_pack_run_of(pack, shard);
    memcpy(&bytes, mds_pack_record(pack, run, shard), sizeof bytes);
    return (struct mds_shard_info){
        .bytes = bytes,
        .samples = pack->first[shard + 1] - pack->first[shard],
        .layout = run->layout,
    };
}

/* The checksums of a file; *form and *record go on behind them. */
static void mds_pack_sums(const char **form, const uint8_t **record,
                          struct file_entry *file)
{
    file->hashes = (uint8_t) * (*form)++;
    for (int h = 0; h < file->hashes; h++) {
        struct file_sum *hash = &file->hash[h];
        hash->name = *form;
        *form += strlen(*form) + 1;
        size_t count = checksum_digits(hash->name) / 2;
        digest_hex(*record, count, hash->hex);
        *record += count;
    }
}

void mds_pack_files(const void *of, int64_t shard, struct cache_shard *out)
{
    const struct mds_pack *pack = of;
    const struct mds_run *run = mds_pack_run_of(pack, shard);
    const uint8_t *record = mds_pack_record(pack, run, shard);
    const char *form = (const char *)run->form;
    const char *ending = "";
    uint32_t raw, at;
    bool zip = *form++ != 0;
    memcpy(&raw, record, sizeof raw);
    record += sizeof raw;
    out->raw.bytes = raw;
    out->zip.bytes = out->zip.hashes = 0;
    out->compression = NULL;
    if (zip) {
        memcpy(&out->zip.bytes, record, sizeof out->zip.bytes);
        record += sizeof out->zip.bytes;
    }
    mds_pack_sums(&form, &record, &out->raw);
    if (zip) {
        mds_pack_sums(&form, &record, &out->zip);
        out->compression = form;
        ending = form + strlen(form) + 1;
    }
    if (run->name != NULL) {
        mds_pack_count_on(run, shard - run->first, out->raw.name);
        snprintf(out->zip.name, FILE_NAME_BYTES, "%s%s",
                 zip ? out->raw.name : "", ending);
    } else {
        memcpy(&at, record, sizeof at);
        const char *name = (const char *)pack->names.data + at;
        snprintf(out->raw.name, FILE_NAME_BYTES, "%s", name);
        snprintf(out->zip.name, FILE_NAME_BYTES, "%s", name + strlen(name) + 1);
    }
    if (pack->sha256 == NULL)
        return;
    struct file_sum *more = &out->raw.hash[out->raw.hashes++];
    more->name = "sha256";
    digest_hex(pack->sha256 + 32 * shard, 32, more->hex);
}

/* The last shard whose first sample is at or before `index`; of several with
 * the same first sample that is the only one with samples. */
int64_t mds_pack_find(const struct mds_pack *pack, int64_t index,
                      int64_t *number)
{
    int64_t low = 0, high = pack->shards - 1; /* it is in [low, high] */
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (pack->first[middle] <= index)
            low = middle;
        else
            high = middle - 1;
    }
    assert(index >= pack->first[low] && index < pack->first[low + 1]);
    *number = index - pack->first[low];
    return low;
}

size_t mds_pack_bytes(const struct mds_pack *pack)
{
    size_t bytes = ((size_t)pack->shards + 1) * sizeof *pack->first +
                   pack->records.bytes + pack->names.bytes +
                   (size_t)pack->run_count * sizeof *pack->runs;
    for (int64_t r = 0; r < pack->run_count; r++)
        bytes += pack->runs[r].form_bytes +
                 (pack->runs[r].name != NULL ? strlen(pack->runs[r].name) : 0);
    return bytes + (pack->sha256 != NULL ? 32 * (size_t)pack->shards : 0);
}
