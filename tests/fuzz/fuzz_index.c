/* index.json of an MDS data set: what is accepted keeps what the header
 * promises. */

#include "src/data/mds/mds_index.h"
#include "tests/fuzz/fuzz.h"

static void check_file(const struct file_entry *file)
{
    size_t length = strlen(file->name);
    assert(length > 0 && file->name[0] != '/' && file->bytes >= 0);
    assert(strcmp(file->name, "..") != 0 && strncmp(file->name, "../", 3) != 0);
    assert(strstr(file->name, "/../") == NULL);
    assert(length < 3 || strcmp(file->name + length - 3, "/..") != 0);
    for (int h = 0; h < file->hashes; h++)
        assert(file->hash[h].name != NULL &&
               strlen(file->hash[h].hex) ==
                   checksum_digits(file->hash[h].name));
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

static void write_index(const void *data, size_t bytes)
{
    char path[FSIO_PATH_MAX];
    (void)fuzz_folder_make();
    if (fsio_path(path, "%s/" MDS_INDEX_NAME, fuzz_folder) != ERR_OK)
        abort();
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, bytes, file) != bytes ||
        fclose(file) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct mds_index *index = NULL;
    int64_t samples = 0;
    write_index(data, bytes);
    if (mds_index_read(fuzz_folder, &index) != ERR_OK)
        return 0;
    for (int64_t s = 0; s < index->shards; s++) {
        const struct mds_shard_info info = mds_pack_shard(&index->pack, s);
        struct cache_shard files;
        mds_pack_files(&index->pack, s, &files);
        check_file(&files.raw);
        if (files.zip.name[0] != '\0') {
            assert(files.compression != NULL);
            check_file(&files.zip);
        }
        assert(info.bytes == files.raw.bytes);
        assert(info.bytes >= 8 + 4 * info.samples && info.samples >= 0);
        check_layout(info.layout);
        samples += info.samples;
    }
    assert(samples == index->samples);
    mds_index_destroy(index);
    return 0;
}
