/* Checksums by Streaming's names. The values are those of Python's hashlib and
 * xxhash over the bytes 0 to 255, 41 times. */
#include "src/data/codec/checksum.h"

#include "tests/tap.h"

#define BYTES ((size_t)256 * 41)

static const struct {
    const char *name, *hex;
} values[] = {
    { "md5", "1331b9b75081fd83166e2e96c434a064" },
    { "sha1", "027ddd430a5edd4b3c18a872151feef92a901817" },
    { "sha224", "161d6d457e5af245aa516a824f7c5b12907a42c7f1861536905c6793" },
    { "sha256",
      "ab6b9b1d71dcfec981b828ca8b9d280b6cf90fb42d788542331933d444aed8cf" },
    { "sha384",
      "be920abd2c5992594d6d26305893d5bec7300e62d212e2992e6eecc40f445d08"
      "90c3d82e953431f62ed815e968b11f5c" },
    { "sha512",
      "d36758a1cf2db22adf13ff0827a84af0900c3a0d83d284de084df5dcfba8f748"
      "272b030e0a6d9976eed5b1a9696b2408e6dacb3faaa9f619f3d18057eab81946" },
    { "sha3_224", "29c6435321dfa1a932bdda8290ffccb739c1add089e456c4ac9b3a8c" },
    { "sha3_256",
      "dd552a6ffd0c691b7b1ce115feb97c6c7dadaaae1fa5a6dad5dd0908d4fdd26b" },
    { "sha3_384",
      "dbf7cb12c9e39fbcd2b7b87ea82d769de36a6f44c4f55f75532758c0253f6d32"
      "bde93952e557f907e5137f76eb9497be" },
    { "sha3_512",
      "5295343439505cb8f3abe0145d095548bbb5d876b8c164ec0209589cfaf71d4b"
      "08d63ea79c966aee89220e2d5ed896bb237ed51d2ba8186e3b8ad094fa74f2f9" },
    { "blake2b",
      "dc0a063a32b85fb400cc3aa31db8374a3e9ed3c5bfb08d258bebf37828fed05f"
      "a680edf266f8a12d84f0eb66a720099061fa674c6f2202b88e8883c340bfb3b8" },
    { "blake2s",
      "e0b785244e61e10742d3a05d87a525e59f271900e3c42b8c44951491c8223112" },
    { "xxh32", "6934bd0e" },
    { "xxh64", "02eabcb0bce4891a" },
    { "xxh3_64", "2a8b6dc0df3b0f10" },
    { "xxh3_128", "e2f49a0dd7c88d932a8b6dc0df3b0f10" },
    { "xxh128", "e2f49a0dd7c88d932a8b6dc0df3b0f10" },
};

/* In pieces of this size, as a file comes. */
static enum err sum(const char *name, const uint8_t *data, size_t piece,
                    char hex[CHECKSUM_TEXT_BYTES])
{
    enum err rc = ERR_OK;
    struct checksum *checksum = NULL;
    TRY_OUT(checksum_create(name, &checksum));
    for (size_t at = 0; at < BYTES; at += piece)
        TRY_OUT(checksum_update(checksum, data + at,
                                piece < BYTES - at ? piece : BYTES - at));
    TRY_OUT(checksum_finish(checksum, hex));
out:
    checksum_destroy(checksum);
    return rc;
}

int main(void)
{
    static uint8_t data[BYTES];
    char hex[CHECKSUM_TEXT_BYTES];
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (uint8_t)i;
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        tap_is_int((long long)checksum_digits(values[v].name),
                   (long long)strlen(values[v].hex), "digits of %s",
                   values[v].name);
        tap_is_int(sum(values[v].name, data, BYTES, hex), ERR_OK, "%s",
                   values[v].name);
        tap_is_str(hex, values[v].hex, "... its value");
        tap_is_int(sum(values[v].name, data, 77, hex), ERR_OK, "in pieces");
        tap_is_str(hex, values[v].hex, "... the same");
    }
    tap_is_int((long long)checksum_digits("crc32"), 0, "an unknown name");
    return tap_done();
}
