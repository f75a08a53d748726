/* The copy of the state from memory to memory that training waits for, with
 * stores past the cache. An ordinary store first reads the line that it is about
 * to overwrite, a third of all traffic, and leaves it in the cache, where the
 * training's own data was. Copies from a device are
 * src/train/state/on_checkpoint_copies.c. */
#include "checkpoint/ckpt_saver_private.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

#define LINE_BYTES 64 /* of the cache */
/* Several pages are copied side by side: one stream does not keep the memory
 * busy. */
#define PAGE_BYTES 4096
#define PAGES 4
#define BLOCK_BYTES ((size_t)PAGES * PAGE_BYTES)

static void copy_line(char *to, const char *from)
{
    __m128i *out = (__m128i *)(void *)to;
    const __m128i *in = (const __m128i *)(const void *)from;
    __m128i a = _mm_loadu_si128(in);
    __m128i b = _mm_loadu_si128(in + 1);
    __m128i c = _mm_loadu_si128(in + 2);
    __m128i d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
}

static size_t copy_blocks(char *to, const char *from, size_t bytes)
{
    size_t end = bytes / BLOCK_BYTES * BLOCK_BYTES;
    for (size_t block = 0; block < end; block += BLOCK_BYTES)
        for (size_t line = 0; line < PAGE_BYTES; line += LINE_BYTES)
            for (size_t page = 0; page < BLOCK_BYTES; page += PAGE_BYTES) {
                size_t at = block + page + line;
                _mm_prefetch(from + at + BLOCK_BYTES, _MM_HINT_T0);
                copy_line(to + at, from + at);
            }
    /* Before another thread is told of them. */
    _mm_sfence();
    return end;
}
#endif

void ckpt_stage_copy(void *to, const void *from, size_t bytes)
{
    assert((uintptr_t)to % CKPT_STAGE_ALIGN == 0);
    assert((char *)to + bytes <= (const char *)from ||
           (const char *)from + bytes <= (char *)to);
    size_t done = 0;
#ifdef __SSE2__
    done = copy_blocks(to, from, bytes);
#endif
    if (bytes > done)
        memcpy((char *)to + done, (const char *)from + done, bytes - done);
}
