/* A checkpoint's manifest: what is accepted keeps what the header promises, and is
 * written and read as the same. An input is all of it before its CRC. */
#include <inttypes.h>

#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/digest.h"
#include "tests/fuzz/fuzz.h"

static void check_shard(const struct ckpt_manifest *m,
                        const struct ckpt_shard *shard)
{
    int64_t blocks = 0, end = 0;
    assert(strncmp(shard->file, "shard", 5) == 0 && !strstr(shard->file, ".."));
    for (int i = 0; i < shard->extent_count; i++) {
        const struct ckpt_extent *extent = &shard->extents[i];
        const struct ckpt_tensor *tensor = &m->tensors[extent->tensor];
        assert(extent->tensor >= 0 && extent->tensor < m->tensor_count);
        assert(extent->dims == tensor->dims && extent->bytes > 0);
        assert(ckpt_part_check(&extent->part, tensor->dims, tensor->shape, "",
                               "") == ERR_OK);
        assert(extent->offset >= end && extent->block == blocks);
        end = extent->offset + extent->bytes;
        blocks += ckpt_manifest_block_count(extent->bytes);
    }
    assert(end <= shard->bytes && blocks == shard->block_count);
    assert((shard->blocks == NULL) == (shard->crc_offset > 0));
    assert(shard->blocks != NULL ||
           (shard->crc_offset >= end &&
            shard->crc_offset + 4 * blocks <= shard->bytes));
}

/* Who writes has looked at names. */
static bool is_plain(const struct ckpt_manifest *m)
{
    bool plain = true;
    for (int t = 0; t < m->tensor_count; t++)
        for (const char *c = m->tensors[t].name; *c != 0; c++)
            plain &= *c > ' ' && *c <= '~' && *c != '"' && *c != '\\';
    for (int s = 0; s < m->shard_count; s++)
        for (const char *c = m->shards[s].file; *c != 0; c++)
            plain &= *c > ' ' && *c <= '~';
    return plain;
}

static void check_again(const struct ckpt_manifest *m)
{
    struct ckpt_item *items = NULL;
    struct ckpt_manifest *again = NULL;
    char *text = NULL;
    size_t bytes;
    assert(ckpt_manifest_items(m, &items) == ERR_OK);
    struct ckpt_manifest_head head = { .step = m->step,
                                       .ranks = m->ranks,
                                       .attempt = "",
                                       .state = m->state,
                                       .view = m->view,
                                       .items = items,
                                       .item_count = m->tensor_count };
    assert(ckpt_manifest_format(&head, m->shards, m->shard_count, &text,
                                &bytes) == ERR_OK);
    assert(ckpt_manifest_parse(text, bytes, "again", &again) == ERR_OK);
    assert(again->bytes == m->bytes && again->shard_count == m->shard_count);
    for (int s = 0; s < m->shard_count; s++) {
        const struct ckpt_shard *a = &m->shards[s], *b = &again->shards[s];
        assert(a->extent_count == b->extent_count && a->bytes == b->bytes);
        assert(a->crc_offset == b->crc_offset);
        for (int i = 0; i < a->extent_count; i++) {
            const struct ckpt_extent *x = &a->extents[i], *y = &b->extents[i];
            assert(x->tensor == y->tensor && x->offset == y->offset);
            assert(x->bytes == y->bytes && x->part.begin == y->part.begin);
        }
    }
    ckpt_manifest_destroy(again);
    free(items);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ckpt_manifest *manifest = NULL;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    fwrite(data, 1, bytes, out);
    fputs(CKPT_MANIFEST_CRC_BEFORE, out);
    fflush(out);
    fprintf(out, "%08" PRIx32 "%s", crc32c(0, text, length),
            CKPT_MANIFEST_CRC_AFTER);
    fclose(out);
    if (ckpt_manifest_parse(text, length, "m", &manifest) == ERR_OK) {
        for (int s = 0; s < manifest->shard_count; s++)
            check_shard(manifest, &manifest->shards[s]);
        if (is_plain(manifest))
            check_again(manifest);
    }
    ckpt_manifest_destroy(manifest);
    free(text);
    return 0;
}
