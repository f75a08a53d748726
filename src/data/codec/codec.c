/* The table of compressions. Files are unpacked in codec_reader.c and
 * codec_unpack.c.
 *
 * A codec unpacks by steps over two windows, what is left to read and the room
 * for what comes out (struct codec_flow), as zlib has it: a call goes on as far
 * as either allows. So no codec knows files or sizes, and one loop drives all
 * of them. `complete` says that all that has begun has ended. Only there may
 * the input end, which tells a file that was cut short from a whole one. */
#include "src/data/codec/codec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const struct codec codec_table[] = {
    { "zstd", "zst", "libzstd-dev", 1, 22, &codec_zstd_ops },
    { "gz", "gz", "zlib1g-dev", 0, 9, &codec_gz_ops },
    { "bz2", "bz2", "libbz2-dev", 1, 9, &codec_bz2_ops },
    { "snappy", "snappy", NULL, 0, 0, &codec_snappy_ops },
    { "br", "br", "libbrotli-dev", 0, 11, &codec_br_ops },
};
#define CODEC_COUNT (sizeof codec_table / sizeof codec_table[0])

/* ":3" or "" behind the name. */
static enum err codec_check_level(const struct codec *codec, const char *text)
{
    char *end = NULL;
    if (text[0] == '\0')
        return ERR_OK;
    long value = strtol(text + 1, &end, 10);
    if (codec->level_max == 0)
        return err_set(ERR_DATA,
                       "compression '%s' has no levels; leave '%.20s' out",
                       codec->name, text);
    bool padded = text[1] == '0' && text[2] != '\0';
    if (text[1] < '0' || text[1] > '9' || padded || *end != '\0' ||
        value < codec->level_min || value > codec->level_max)
        return err_set(
            ERR_DATA, "compression '%s' has levels %d to %d, not '%.20s'",
            codec->name, codec->level_min, codec->level_max, text + 1);
    return ERR_OK;
}

enum err codec_check(const struct codec *codec)
{
    if (codec->ops->step != NULL || codec->ops->unpack != NULL)
        return ERR_OK;
    return err_set(ERR_UNSUPPORTED,
                   "compression '%s' is not in this build; install its "
                   "library (%s) and build again",
                   codec->name, codec->package);
}

enum err codec_find(const char *text, const struct codec **out)
{
    assert(text != NULL && out != NULL);
    size_t length = strcspn(text, ":");
    const struct codec *codec = NULL;
    for (size_t c = 0; c < CODEC_COUNT; c++)
        if (strlen(codec_table[c].name) == length &&
            strncmp(codec_table[c].name, text, length) == 0)
            codec = &codec_table[c];
    if (codec == NULL)
        return err_set(ERR_DATA,
                       "compression '%.40s' is not known; there are zstd, gz, "
                       "bz2, snappy and br",
                       text);
    TRY(codec_check(codec));
    TRY(codec_check_level(codec, text + length));
    *out = codec;
    return ERR_OK;
}

/* Files are called by what programs append (.zst) and by what Streaming does
 * (.zstd); both count. */
const struct codec *codec_by_extension(const char *path)
{
    const char *end = strrchr(path, '.');
    for (size_t c = 0; end != NULL && c < CODEC_COUNT; c++) {
        const struct codec *codec = &codec_table[c];
        if (strcmp(codec->extension, end + 1) == 0 ||
            strcmp(codec->name, end + 1) == 0)
            return codec;
    }
    return NULL;
}

/* "BZh9" and what begins a block or, in an empty stream, its end: letters alone
 * could be a text's. */
static bool codec_is_bz2(const uint8_t *data, size_t bytes)
{
    return bytes >= 10 && memcmp(data, "BZh", 3) == 0 && data[3] >= '1' &&
           data[3] <= '9' &&
           (memcmp(data + 4, "\x31\x41\x59\x26\x53\x59", 6) == 0 ||
            memcmp(data + 4, "\x17\x72\x45\x38\x50\x90", 6) == 0);
}

/* A frame, or one to be skipped, as parallel programs put before theirs. */
static bool codec_is_zstd(const uint8_t *data, size_t bytes)
{
    return bytes >= 4 && (memcmp(data, "\x28\xb5\x2f\xfd", 4) == 0 ||
                          ((data[0] & 0xf0) == 0x50 &&
                           memcmp(data + 1, "\x2a\x4d\x18", 3) == 0));
}

/* For files whose name says nothing, such as stdin. A text may begin with any
 * letters, so marks that are letters alone are not enough. */
const struct codec *codec_by_magic(const uint8_t *data, size_t bytes)
{
    const struct codec_ops *ops = NULL;
    if (codec_is_zstd(data, bytes))
        ops = &codec_zstd_ops;
    else if (bytes >= 3 && memcmp(data, "\x1f\x8b\x08", 3) == 0)
        ops = &codec_gz_ops;
    else if (codec_is_bz2(data, bytes))
        ops = &codec_bz2_ops;
    for (size_t c = 0; ops != NULL && c < CODEC_COUNT; c++)
        if (codec_table[c].ops == ops)
            return &codec_table[c];
    return NULL;
}
