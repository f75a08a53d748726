#include "src/base/digest.h"

#include "tests/tap.h"

/* FIPS 180-2 examples. */
static const struct {
    const char *name;
    const char *data;
    const char *want;
} cases[] = {
    { "nothing", "",
      "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
    { "abc", "abc",
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
    { "two blocks", "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
};

static void test_cases(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t bytes = strlen(cases[i].data);
        char hex[65] = "";
        tap_is_int(digest_bytes(cases[i].data, bytes, hex), ERR_OK,
                   "digest of %s", cases[i].name);
        tap_is_str(hex, cases[i].want, "value for %s", cases[i].name);
    }
}

static void test_streaming(void)
{
    enum err rc = ERR_OK;
    struct digest *digest = NULL;
    char hex[65] = "";
    char block[1000];
    memset(block, 'a', sizeof block);
    TRY_OUT(digest_create(&digest));
    for (int i = 0; i < 1000; i++) {
        TRY_OUT(digest_update(digest, block, 7));
        TRY_OUT(digest_update(digest, block, 0));
        TRY_OUT(digest_update(digest, block, sizeof block - 7));
    }
    TRY_OUT(digest_finish(digest, hex));
out:
    tap_is_int(rc, ERR_OK, "stream a million bytes");
    tap_is_str(
        hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
        "value for a million times 'a'");
    digest_destroy(digest);
}

int main(void)
{
    test_cases();
    test_streaming();
    digest_destroy(NULL);
    tap_ok(true, "destroy takes NULL");
    return tap_done();
}
