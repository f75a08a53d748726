/* A tokenizer for a Python peer: "encode FILE" reads records (flags, bytes, text)
 * from standard input and writes for each its tokens and the text that they
 * give (count, tokens, bytes, text), all numbers uint32; "encode FILE TEXT"
 * prints the megabytes per second of processor time of one thread. */
#include <string.h>
#include <time.h>

#include "src/base/array.h"
#include "src/base/fsio.h"
#include "src/text/tokenizer/tokenizer.h"
#include "tests/interop/need.h"

#define TEXT_BYTES_MAX ((size_t)1 << 30)

static void put(const void *data, size_t size, size_t count)
{
    uint32_t number = (uint32_t)count;
    fwrite(&number, sizeof number, 1, stdout);
    fwrite(data, size, count, stdout);
}

static void answer(const struct tokenizer *tokenizer,
                   struct tokenizer_encoder *encoder)
{
    struct token_list list = { 0 };
    struct buffer text = { 0 }, back = { 0 };
    uint32_t head[2];
    while (fread(head, sizeof head, 1, stdin) == 1) {
        struct tokenizer_decoder decoder = { 0 };
        list.count = text.bytes = back.bytes = 0;
        need(buffer_reserve(&text, head[1] + 1));
        if (fread(text.data, 1, head[1], stdin) != head[1])
            exit(1);
        need(tokenizer_encode(encoder, text.data, head[1], head[0], &list));
        for (size_t i = 0; i < list.count; i++) {
            const uint8_t *part = NULL;
            size_t bytes = 0;
            need(tokenizer_decode_next(tokenizer, &decoder, list.token[i],
                                       &part, &bytes));
            need(buffer_add(&back, part, bytes));
        }
        put(list.token, sizeof *list.token, list.count);
        put(back.data, 1, back.bytes);
        fflush(stdout);
    }
    free(list.token);
    buffer_free(&text);
    buffer_free(&back);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void measure(struct tokenizer_encoder *encoder, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    double best = 0;
    struct token_list list = { 0 };
    need(fsio_read_file(path, TEXT_BYTES_MAX, &text, &bytes));
    for (int round = 0; round < 3; round++) {
        double begun = seconds();
        list.count = 0;
        need(tokenizer_encode(encoder, (uint8_t *)text, bytes, 1, &list));
        double rate = 1e-6 * (double)bytes / (seconds() - begun);
        best = rate > best ? rate : best;
    }
    printf("%.1f\n", best);
    free(list.token);
    free(text);
}

int main(int argc, char **argv)
{
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_encoder *encoder = NULL;
    if (argc < 2)
        return 64;
    need(tokenizer_create(argv[1], &tokenizer));
    need(tokenizer_encoder_create(tokenizer, &encoder));
    if (argc > 2)
        measure(encoder, argv[2]);
    else
        answer(tokenizer, encoder);
    tokenizer_encoder_destroy(encoder);
    tokenizer_destroy(tokenizer);
    return 0;
}
