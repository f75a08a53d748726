/* index.json of an MDS data set: what is accepted keeps what the header
 * promises. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/data/mds/mds_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_file(const struct mds_file *file)
{
    size_t length = strlen(file->name);
    assert(length > 0 && file->name[0] != '/' && file->bytes >= 0);
    assert(strcmp(file->name, "..") != 0 && strncmp(file->name, "../", 3) != 0);
    assert(strstr(file->name, "/../") == NULL);
    assert(length < 3 || strcmp(file->name + length - 3, "/..") != 0);
    for (int h = 0; h < file->hashes; h++)
        assert(file->hash[h].name != NULL && file->hash[h].hex != NULL);
}

static void check_layout(const struct mds_layout *layout)
{
    int64_t head = 0;
    assert(layout->columns > 0 && layout->columns <= MDS_LAYOUT_COLUMNS_MAX);
    for (int c = 0; c < layout->columns; c++) {
        assert(layout->column[c].bytes == MDS_ENCODING_VARIABLE ||
               layout->column[c].bytes > 0);
        head += layout->column[c].bytes < 0 ? 4 : 0;
    }
    assert(head == layout->head_bytes);
    if (mds_layout_check(layout) == ERR_OK)
        assert(layout->role[MDS_TOKENS] >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct mds_index *index = NULL;
    int64_t samples = 0;
    char *text = malloc(bytes + 1);
    if (text == NULL)
        return 0;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (mds_index_parse("index.json", text, bytes, &index) != ERR_OK)
        return 0;
    for (int64_t s = 0; s < index->shards; s++) {
        const struct mds_shard_info *info = &index->shard[s];
        check_file(&info->raw);
        if (info->zip.name != NULL) {
            assert(info->compression != NULL);
            check_file(&info->zip);
        }
        assert(info->raw.bytes >= 8 + 4 * info->samples);
        assert(info->samples >= 0);
        check_layout(info->layout);
        samples += info->samples;
    }
    assert(samples == index->samples);
    mds_index_destroy(index);
    return 0;
}
