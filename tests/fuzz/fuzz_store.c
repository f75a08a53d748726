/* Addresses, S3's answers and files of credentials, whose kind is the first
 * byte. What an address becomes must be an address again. */

#include "src/data/remote/store_url.h"
#include "tests/fuzz/fuzz.h"

static void try_url(const char *text)
{
    struct store_url url;
    char address[4 * FSIO_PATH_MAX];
    char room[64];
    if (store_url_parse(text, &url) == ERR_OK) {
        assert(store_url_is(text));
        assert(strchr(url.place, '@') == NULL &&
               strpbrk(url.path, "?#") == NULL);
        if (store_url_encode(url.path, "a b%/ü", false, address,
                             sizeof address) == ERR_OK) {
            assert(strpbrk(address, "?# @") == NULL);
            assert(store_url_decode(address) == ERR_OK);
            assert(strncmp(address, url.path, strlen(url.path)) == 0);
        }
        (void)store_url_encode(url.path, text, true, room, sizeof room);
        (void)store_url_decode(url.path);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char out[32];
    if (bytes == 0)
        return 0;
    char *text = malloc(bytes);
    if (text == NULL)
        return 0;
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = '\0';
    if (data[0] == 'x') {
        store_url_tag(text, bytes - 1, "Code", out, sizeof out);
        assert(strlen(out) < sizeof out && strpbrk(out, "<\n") == NULL);
    } else if (data[0] == 'i') {
        if (store_url_ini(text, "default", "region", out, sizeof out))
            assert(strlen(out) < sizeof out && strchr(out, '\n') == NULL);
    } else {
        try_url(text);
    }
    free(text);
    return 0;
}
