/* Writes MANIFEST.json, and reads it with its checks of size and CRC. The text
 * is parsed in ckpt_manifest_parse.c. */
#include "checkpoint/files/ckpt_manifest.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/clock.h"
#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"

#define MANIFEST_BYTES_MAX ((size_t)1 << 30)
#define TENSOR_BYTES_MAX ((int64_t)1 << 62)
/* So many extents are looked at for the one that another goes on with: those
 * between two that do belong to tensors which end, or begin, in one of the shards. */
#define RUN_LOOK 64

enum err ckpt_manifest_elements(enum dtype dtype, int dims,
                                const int64_t *shape, int64_t *elements)
{
    assert(dims >= 0 && dims <= CKPT_DIMS_MAX);
    int64_t product = 1;
    for (int i = 0; i < dims; i++)
        if (shape[i] < 0 ||
            __builtin_mul_overflow(product, shape[i], &product) ||
            product >= TENSOR_BYTES_MAX / (int64_t)dtype_bytes(dtype))
            return err_set(ERR_CHECKPOINT,
                           "impossible tensor shape (dimension %d is %" PRId64
                           ")",
                           i, shape[i]);
    *elements = product;
    return ERR_OK;
}

int64_t ckpt_manifest_block_count(int64_t bytes)
{
    assert(bytes >= 0);
    return (bytes + CKPT_BLOCK_BYTES - 1) / CKPT_BLOCK_BYTES;
}

/* --- names --- */

int64_t ckpt_manifest_step_after(const char *name, size_t length,
                                 const char *prefix)
{
    size_t skip = strlen(prefix);
    if (length < skip + CKPT_STEP_DIGITS || strncmp(name, prefix, skip) != 0 ||
        length > skip + 18)
        return -1;
    int64_t step = 0;
    for (size_t i = skip; i < length; i++) {
        if (!isdigit((unsigned char)name[i]))
            return -1;
        step = step * 10 + (name[i] - '0');
    }
    bool padded = length > skip + CKPT_STEP_DIGITS && name[skip] == '0';
    return padded ? -1 : step;
}

int64_t ckpt_manifest_step_of(const char *path)
{
    size_t length = strlen(path);
    while (length > 0 && path[length - 1] == '/')
        length--;
    size_t start = length;
    while (start > 0 && path[start - 1] != '/')
        start--;
    return ckpt_manifest_step_after(path + start, length - start,
                                    CKPT_STEP_PREFIX);
}

bool ckpt_manifest_uuid_valid(const char *uuid)
{
    size_t length = strlen(uuid);
    for (size_t i = 0; i < length; i++)
        if (!isgraph((unsigned char)uuid[i]))
            return false;
    return length > 0 && length < CKPT_UUID_BYTES;
}

/* --- writing --- */

static enum err no_memory(void)
{
    return err_set(ERR_MEMORY, "checkpoint manifest: out of memory");
}

int64_t ckpt_manifest_end(const struct ckpt_shard *shard, int count)
{
    if (count == 0)
        return 0;
    const struct ckpt_extent *last = &shard->extents[count - 1];
    return last->offset + last->bytes;
}

static void print_numbers(FILE *out, const int64_t *numbers, int count)
{
    for (int i = 0; i < count; i++)
        fprintf(out, "%s%" PRId64, i == 0 ? "[" : ",", numbers[i]);
    fputs(count == 0 ? "[]" : "]", out);
}

static void print_extent(FILE *out, const struct ckpt_extent *extent)
{
    const struct ckpt_part *part = &extent->part;
    const int64_t numbers[] = { extent->tensor, part->begin, part->end,
                                extent->offset };
    if (!part->boxed) {
        print_numbers(out, numbers, 4);
        return;
    }
    fprintf(out, "[%d,", extent->tensor);
    print_numbers(out, part->origin, extent->dims);
    fprintf(out, ",");
    print_numbers(out, part->sides, extent->dims);
    fprintf(out, ",%" PRId64 "]", extent->offset);
}

/* Whether extent i goes on with extent k of the shard before; by how much it is
 * longer. */
static bool goes_on(const struct ckpt_shard *shard, int i,
                    const struct ckpt_shard *before, int k, int64_t *longer)
{
    const struct ckpt_extent *now = &shard->extents[i];
    const struct ckpt_extent *old = &before->extents[k];
    *longer = now->part.end - now->part.begin - old->part.end + old->part.begin;
    return now->tensor == old->tensor && now->part.begin == old->part.end &&
           !now->part.boxed && !old->part.boxed &&
           now->offset - ckpt_manifest_end(shard, i) ==
               old->offset - ckpt_manifest_end(before, k);
}

static void print_extents(FILE *out, const struct ckpt_shard *shard,
                          const struct ckpt_shard *before)
{
    int next = 0, count;
    for (int i = 0; i < shard->extent_count; i += count) {
        int64_t longer, more;
        int old = next, left = before->extent_count - next;
        int stop = next + (left < RUN_LOOK ? left : RUN_LOOK);
        while (old < stop && !goes_on(shard, i, before, old, &longer))
            old++;
        fputs(i == 0 ? "" : ",", out);
        count = 1;
        if (old == stop) {
            print_extent(out, &shard->extents[i]);
            continue;
        }
        while (i + count < shard->extent_count &&
               old + count < before->extent_count &&
               goes_on(shard, i + count, before, old + count, &more) &&
               more == longer)
            count++;
        next = old + count;
        print_numbers(out, (int64_t[]){ old, count, longer }, 3);
    }
}

static void print_shard(FILE *out, const struct ckpt_shard *shard,
                        const struct ckpt_shard *before)
{
    fprintf(out,
            "{\"file\":\"%s\",\"bytes\":%" PRId64 ",\"frame_crc32c\":%" PRIu32
            ",\"pieces\":[",
            shard->file, shard->bytes, shard->frame_crc);
    print_extents(out, shard, before);
    if (shard->crc_offset > 0) {
        fprintf(out, "],\"crc32c_offset\":%" PRId64 "}", shard->crc_offset);
        return;
    }
    fprintf(out, "],\"block_crc32c\":[");
    for (int64_t b = 0; b < shard->block_count; b++)
        fprintf(out, "%s%" PRIu32, b == 0 ? "" : ",", shard->blocks[b]);
    fprintf(out, "]}");
}

/* All members but the lists, one a line. */
static bool print_members(FILE *out, const struct ckpt_manifest_head *head)
{
    const char *uuid =
        json_string_value(json_object_get(head->state, "run_uuid"));
    json_t *state =
        head->state != NULL ? json_deep_copy(head->state) : json_object();
    json_t *view = json_null();
    if (head->view.bytes > 0)
        view = json_pack("{s:s,s:I,s:I}", "file", CKPT_VIEW_FILE, "bytes",
                         (json_int_t)head->view.bytes, "crc32c",
                         (json_int_t)head->view.crc);
    json_t *all = json_pack(
        "{s:s, s:i, s:s, s:I, s:i, s:s, s:f, s:o, s:o}", "format",
        CKPT_MANIFEST_FORMAT, "version", CKPT_MANIFEST_VERSION, "run_uuid",
        uuid != NULL ? uuid : "", "step", (json_int_t)head->step, "ranks",
        head->ranks, "attempt", head->attempt, "created", clock_wall(), "state",
        state, "view", view);
    bool good = all != NULL;
    const char *name;
    json_t *value;
    json_object_foreach(all, name, value)
    {
        char *text = NULL;
        good = good && jsontext_make(value, 0, &text) == ERR_OK;
        if (good)
            fprintf(out, "\"%s\": %s,\n", name, text);
        free(text);
    }
    json_decref(all);
    return good;
}

static void print_tensors(FILE *out, const struct ckpt_manifest_head *head)
{
    fprintf(out, "\"tensors\": [");
    for (int i = 0; i < head->item_count; i++) {
        const struct ckpt_item *item = &head->items[i];
        fprintf(out, "%s\n{\"name\":\"%s\",\"dtype\":\"%s\",\"shape\":",
                i == 0 ? "" : ",", item->name, dtype_name(item->dtype));
        print_numbers(out, item->shape, item->dims);
        fprintf(out, "}");
    }
    fprintf(out, "\n],\n");
}

static bool print_all(FILE *out, const struct ckpt_manifest_head *head,
                      const struct ckpt_shard *shards, int shard_count)
{
    const struct ckpt_shard none = { 0 };
    fprintf(out, "{\n");
    bool good = print_members(out, head);
    print_tensors(out, head);
    fprintf(out, "\"shards\": [");
    for (int i = 0; i < shard_count; i++) {
        fputs(i == 0 ? "\n" : ",\n", out);
        print_shard(out, &shards[i], i == 0 ? &none : &shards[i - 1]);
    }
    fprintf(out, "\n],\n%s", CKPT_MANIFEST_CRC_BEFORE);
    return good;
}

enum err ckpt_manifest_format(const struct ckpt_manifest_head *head,
                              const struct ckpt_shard *shards, int shard_count,
                              char **text, size_t *bytes)
{
    assert(shard_count >= 0 && head->item_count >= 0);
    *text = NULL;
    FILE *out = open_memstream(text, bytes);
    if (out == NULL)
        return no_memory();
    bool good = print_all(out, head, shards, shard_count);
    if (fflush(out) == 0 && good && *text != NULL)
        fprintf(out, "%08" PRIx32 "%s", crc32c(0, *text, *bytes),
                CKPT_MANIFEST_CRC_AFTER);
    good &= !ferror(out);
    good &= fclose(out) == 0 && *text != NULL;
    if (good)
        return ERR_OK;
    free(*text);
    *text = NULL;
    return no_memory();
}

/* --- reading --- */

enum err ckpt_manifest_read(const char *checkpoint_dir, char **text,
                            size_t *bytes, struct ckpt_manifest **out)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *data = NULL;
    size_t length = 0;
    *out = NULL;
    TRY_OUT(fsio_path(path, "%s/%s", checkpoint_dir, CKPT_MANIFEST_FILE));
    rc = fsio_read_file(path, MANIFEST_BYTES_MAX, &data, &length);
    if (rc == ERR_DATA)
        rc = err_prefix(ERR_CHECKPOINT, "not a whole checkpoint");
    if (rc != ERR_OK)
        goto out;
    TRY_OUT(ckpt_manifest_parse(data, length, path, out));
    int64_t step = ckpt_manifest_step_of(checkpoint_dir);
    if (step >= 0 && step != (*out)->step)
        TRY_OUT(err_set(ERR_CHECKPOINT,
                        "%s: holds step %" PRId64
                        ", not what the folder's name says",
                        path, (*out)->step));
    if (text != NULL) {
        *text = data;
        *bytes = length;
        data = NULL;
    }
out:
    if (rc != ERR_OK) {
        ckpt_manifest_destroy(*out);
        *out = NULL;
    }
    free(data);
    return rc;
}

static enum err check_size(const char *dir, const char *file, int64_t bytes)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    struct stat status;
    TRY(fsio_path(path, "%s/%s", dir, file));
    if (stat(path, &status) != 0)
        rc = errno == ENOENT
                 ? err_set(ERR_CHECKPOINT, "%s: file is missing", path)
                 : err_errno("%s: stat", path);
    else if (status.st_size != bytes)
        rc = err_set(ERR_CHECKPOINT, "%s: has %lld bytes, must have %" PRId64,
                     path, (long long)status.st_size, bytes);
    return rc;
}

enum err ckpt_manifest_check_sizes(const struct ckpt_manifest *manifest,
                                   const char *checkpoint_dir)
{
    for (int i = 0; i < manifest->shard_count; i++)
        TRY(check_size(checkpoint_dir, manifest->shards[i].file,
                       manifest->shards[i].bytes));
    return ERR_OK;
}

enum err ckpt_manifest_share(struct comm *comm, int root, char **text,
                             size_t *bytes)
{
    enum err rc = ERR_OK;
    int64_t size = (int64_t)*bytes;
    assert(root >= 0 && root < comm_size(comm));
    TRY(comm_broadcast(comm, &size, sizeof size, root));
    if (comm_rank(comm) != root) {
        *bytes = (size_t)size;
        rc = new_room(text, *bytes + 1);
    }
    TRY(comm_agree(comm, rc));
    return comm_broadcast(comm, *text, *bytes, root);
}

void ckpt_manifest_dataset(const char *tensor, int number,
                           char out[CKPT_DATASET_BYTES])
{
    if (number == 0)
        snprintf(out, CKPT_DATASET_BYTES, "%s", tensor);
    else
        snprintf(out, CKPT_DATASET_BYTES, "%s %d", tensor, number + 1);
}

/* Counts how many a tensor has, then puts each behind those before it; first[t +
 * 1] is where the next of tensor t goes, and in the end where they end. */
enum err ckpt_manifest_extents(const struct ckpt_manifest *manifest,
                               struct ckpt_placed **list, size_t **first)
{
    size_t tensors = (size_t)manifest->tensor_count;
    const struct ckpt_shard *shards = manifest->shards;
    *list = NULL;
    TRY(new_zeroed(first, tensors + 2));
    for (int s = 0; s < manifest->shard_count; s++)
        for (int p = 0; p < shards[s].extent_count; p++)
            (*first)[shards[s].extents[p].tensor + 2]++;
    for (size_t t = 1; t < tensors + 2; t++)
        (*first)[t] += (*first)[t - 1];
    TRY(new_room(list, (*first)[tensors + 1] + 1));
    for (int s = 0; s < manifest->shard_count; s++)
        for (int p = 0; p < shards[s].extent_count; p++) {
            const struct ckpt_extent *extent = &shards[s].extents[p];
            (*list)[(*first)[extent->tensor + 1]++] =
                (struct ckpt_placed){ extent, s };
        }
    return ERR_OK;
}

enum err ckpt_manifest_items(const struct ckpt_manifest *manifest,
                             struct ckpt_item **items)
{
    TRY(new_zeroed(items, (size_t)manifest->tensor_count + 1));
    for (int t = 0; t < manifest->tensor_count; t++) {
        const struct ckpt_tensor *tensor = &manifest->tensors[t];
        struct ckpt_item *item = &(*items)[t];
        item->dtype = tensor->dtype;
        item->dims = tensor->dims;
        memcpy(item->name, tensor->name, sizeof item->name);
        memcpy(item->shape, tensor->shape, sizeof item->shape);
    }
    return ERR_OK;
}

void ckpt_manifest_free_shard(struct ckpt_shard *shard)
{
    free(shard->extents);
    free(shard->blocks);
    shard->extents = NULL;
    shard->blocks = NULL;
}

void ckpt_manifest_destroy(struct ckpt_manifest *manifest)
{
    if (manifest == NULL)
        return;
    for (int i = 0; i < manifest->shard_count; i++)
        ckpt_manifest_free_shard(&manifest->shards[i]);
    free(manifest->shards);
    free(manifest->tensors);
    json_decref(manifest->state);
    free(manifest);
}

static int name_order(const void *a, const void *b)
{
    const struct ckpt_named *x = a, *y = b;
    return strcmp(x->name, y->name);
}

void ckpt_named_sort(struct ckpt_named *list, size_t count)
{
    qsort(list, count, sizeof *list, name_order);
}

int ckpt_named_find(const struct ckpt_named *list, size_t count,
                    const char *name)
{
    struct ckpt_named key = { .name = name };
    const struct ckpt_named *found =
        bsearch(&key, list, count, sizeof *list, name_order);
    return found != NULL ? found->index : -1;
}

enum err ckpt_named_tensors(const struct ckpt_manifest *manifest,
                            struct ckpt_named **list)
{
    size_t count = (size_t)manifest->tensor_count;
    TRY(new_room(list, count + 1));
    for (size_t t = 0; t < count; t++)
        (*list)[t] = (struct ckpt_named){ manifest->tensors[t].name, (int)t };
    ckpt_named_sort(*list, count);
    return ERR_OK;
}
