/* The staging copy: every byte, and none beyond, for any length and source. */

#include "checkpoint/ckpt_saver_private.h"
#include "tests/tap.h"

#define ROOM ((size_t)1 << 17)
#define GUARD 0xa5

int main(void)
{
    static const size_t sizes[] = { 0,     1,     63,    64,    4095,  4096,
                                    16383, 16384, 16385, 49153, 98304, 100003 };
    static const size_t offsets[] = { 0, 1, 4, 63 };
    unsigned char *from = malloc(ROOM);
    unsigned char *to = aligned_alloc(CKPT_STAGE_ALIGN, ROOM);
    for (size_t i = 0; i < ROOM; i++)
        from[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t o = 0; o < sizeof offsets / sizeof offsets[0]; o++) {
            size_t bytes = sizes[s];
            memset(to, GUARD, ROOM);
            ckpt_stage_copy(to, from + offsets[o], bytes);
            bool guarded = true;
            for (size_t i = bytes; i < ROOM; i++)
                guarded &= to[i] == GUARD;
            tap_ok(memcmp(to, from + offsets[o], bytes) == 0 && guarded,
                   "%zu bytes from an address + %zu", bytes, offsets[o]);
        }
    free(to);
    free(from);
    return tap_done();
}
