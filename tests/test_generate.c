/* The loop of generation over an infer that is played here: its logits are a
 * function of all tokens that a slot holds, or those of a text that is to come.
 * The real one is in generate.bats. */

#include "src/base/rng.h"
#include "src/infer/generate.h"
#include "src/text/unicode.h"
#include "tests/tap.h"

#define VOCAB 257
#define SLOTS 8
#define POSITIONS 64

struct infer {
    int64_t length[SLOTS];
    int32_t held[SLOTS][POSITIONS];
    const uint8_t *script; /* what comes behind script_at tokens; NULL */
    size_t script_bytes, script_at;
    int calls;
    int64_t computed; /* tokens */
    int fail_at;      /* call that fails; 0: none */
};

static uint64_t draw_index;

static double uniform(void)
{
    return rng_uniform(11, rng_stream("test"), draw_index++);
}

static void play_logits(const struct infer *infer, int64_t slot, int64_t length,
                        float *logits)
{
    uint64_t hash = 17;
    for (int64_t i = 0; i < length; i++)
        hash = rng_u64(hash, 0, (uint64_t)infer->held[slot][i]);
    for (int64_t v = 0; v < VOCAB; v++)
        logits[v] = (float)(8 * rng_uniform(hash, 1, (uint64_t)v));
    size_t at = (size_t)length - infer->script_at;
    if (infer->script != NULL)
        logits[at < infer->script_bytes ? infer->script[at] : 256] = 100;
}

enum err infer_forward(struct infer *infer, const struct param_access *access,
                       const struct infer_tokens *list, int count)
{
    (void)access;
    if (++infer->calls == infer->fail_at)
        return err_set(ERR_IO, "played");
    for (int c = 0; c < count; c++) {
        const struct infer_tokens *call = &list[c];
        int64_t s = call->slot;
        if (call->count < 1 || infer->length[s] + call->count > POSITIONS)
            return err_set(ERR_INTERNAL, "no such call");
        for (int64_t i = 0; i < call->count; i++) {
            float logits[VOCAB];
            double sum = 0;
            int64_t wanted = i - (call->count - call->wanted);
            infer->held[s][infer->length[s]++] = call->tokens[i];
            if (wanted < 0)
                continue;
            play_logits(infer, s, infer->length[s], logits);
            if (call->logits != NULL)
                memcpy(call->logits + wanted * VOCAB, logits, sizeof logits);
            for (int v = 0; v < VOCAB; v++)
                sum += exp(logits[v]);
            if (call->nll != NULL)
                call->nll[wanted] =
                    (float)(log(sum) - logits[call->labels[wanted]]);
        }
        infer->computed += call->count;
    }
    return ERR_OK;
}

int64_t infer_length(const struct infer *infer, int64_t slot)
{
    return infer->length[slot];
}

void infer_cut(struct infer *infer, int64_t slot, int64_t length)
{
    if (length < infer->length[slot])
        infer->length[slot] = length;
}

/* --- what tests share --- */

static struct tokenizer *tokenizer;
static struct infer infer;
static const int32_t eos = 256;

/* What hooks have heard. */
struct heard {
    struct buffer text[64]; /* of prompts, as it came */
    struct buffer whole[64];
    enum generate_end end[64];
    size_t tokens[64], reused[64];
    size_t results; /* in order so far */
    bool in_order, valid;
    int before, stop_at; /* calls; 0: never */
};

static enum err hear_before(void *arg, bool *stop)
{
    struct heard *heard = arg;
    *stop = ++heard->before == heard->stop_at;
    return ERR_OK;
}

static enum err hear_text(void *arg, size_t prompt, const char *text,
                          size_t bytes)
{
    struct heard *heard = arg;
    heard->valid &=
        bytes > 0 && unicode_valid((const uint8_t *)text, bytes) == bytes;
    return buffer_add(&heard->text[prompt], text, bytes);
}

static enum err hear_result(void *arg, size_t prompt,
                            const struct generate_result *result)
{
    struct heard *heard = arg;
    heard->in_order &= prompt == heard->results++;
    heard->end[prompt] = result->end;
    heard->tokens[prompt] = result->count;
    heard->reused[prompt] = result->reused;
    return buffer_add(&heard->whole[prompt], result->text, result->bytes);
}

static void forget(struct heard *heard)
{
    for (int p = 0; p < 64; p++) {
        buffer_free(&heard->text[p]);
        buffer_free(&heard->whole[p]);
    }
    *heard = (struct heard){ .in_order = true, .valid = true };
}

static struct generate *make(int64_t sequences, int64_t rows)
{
    struct generate *generate = NULL;
    infer = (struct infer){ .calls = 0 };
    const struct generate_model model = { .infer = &infer,
                                          .sequences = sequences,
                                          .positions = POSITIONS,
                                          .rows = rows,
                                          .vocab_size = VOCAB,
                                          .vocab = VOCAB,
                                          .tokenizer = tokenizer };
    if (generate_create(&model, &generate) != ERR_OK)
        exit(1);
    return generate;
}

static enum err run(struct generate *generate,
                    const struct generate_options *options,
                    const struct generate_prompt *prompts, size_t count,
                    struct heard *heard)
{
    const struct generate_hooks hooks = { .arg = heard,
                                          .before = hear_before,
                                          .text = hear_text,
                                          .result = hear_result };
    forget(heard);
    heard->stop_at = 0;
    return generate_run(generate, options, prompts, count, &hooks);
}

static bool is_text(const struct buffer *text, const char *want)
{
    return text->bytes == strlen(want) &&
           memcmp(text->bytes > 0 ? (const char *)text->data : "", want,
                  text->bytes) == 0;
}

static struct generate_options options_of(int64_t max_tokens)
{
    return (struct generate_options){ .sample = sample_options_default,
                                      .max_tokens = max_tokens,
                                      .eos = &eos,
                                      .eos_count = 1 };
}

/* --- tests --- */

/* However many slots and rows there are, each prompt has its text. */
static void test_batches(void)
{
    enum { PROMPTS = 20 };
    static const int64_t rooms[][2] = { { 1, 1 }, { 1, 64 }, { 2, 3 },
                                        { 4, 4 }, { 8, 9 },  { 8, 300 } };
    static struct heard heard, alone;
    int32_t tokens[PROMPTS][40];
    struct generate_prompt prompts[PROMPTS];
    struct generate_options options = options_of(20);
    options.sample.temperature = 2;
    for (size_t p = 0; p < PROMPTS; p++) {
        prompts[p] =
            (struct generate_prompt){ tokens[p], 1 + (size_t)(uniform() * 39) };
        /* some begin alike, so that slots keep something */
        for (size_t i = 0; i < 40; i++)
            tokens[p][i] = p % 3 > 0 && i < 12 ? tokens[p - p % 3][i]
                                               : (int32_t)(uniform() * 256);
    }
    for (size_t r = 0; r < sizeof rooms / sizeof *rooms; r++) {
        struct heard *here = r == 0 ? &alone : &heard;
        struct generate *generate = make(rooms[r][0], rooms[r][1]);
        bool same = run(generate, &options, prompts, PROMPTS, here) == ERR_OK;
        int ended = 0;
        for (size_t p = 0; p < PROMPTS; p++) {
            same = same && here->whole[p].bytes == alone.whole[p].bytes &&
                   here->whole[p].bytes == here->text[p].bytes &&
                   memcmp(here->whole[p].data, alone.whole[p].data,
                          here->whole[p].bytes) == 0 &&
                   memcmp(here->whole[p].data, here->text[p].data,
                          here->whole[p].bytes) == 0;
            ended += here->end[p] == GENERATE_MAX_TOKENS;
        }
        tap_ok(same && here->in_order && here->valid &&
                   here->results == PROMPTS && ended < PROMPTS,
               "%d slots, %d rows: the same texts, in order; %d of %d went on "
               "to the end",
               (int)rooms[r][0], (int)rooms[r][1], ended, PROMPTS);
        generate_destroy(generate);
    }
    forget(&heard);
    forget(&alone);
}

/* A text that comes behind the prompt "ab", and what becomes of it. */
static void test_texts(void)
{
    static const struct {
        const char *name, *comes;
        const char *stop[3];
        int64_t max_tokens;
        const char *want;
        enum generate_end end;
    } rows[] = {
        { "to its end", "hello", TUPLE(NULL), 40, "hello", GENERATE_EOS },
        { "nothing", "", TUPLE(NULL), 40, "", GENERATE_EOS },
        { "as many as wanted", "hello", TUPLE(NULL), 3, "hel",
          GENERATE_MAX_TOKENS },
        { "exactly as many", "hello", TUPLE(NULL), 5, "hello",
          GENERATE_MAX_TOKENS },
        { "a stop text across tokens", "one two three", TUPLE("two"), 40,
          "one ", GENERATE_STOP },
        { "at the beginning", "one", TUPLE("one"), 40, "", GENERATE_STOP },
        { "the one that begins first", "abcdef", TUPLE("cde", "bcdef", "d"), 40,
          "a", GENERATE_STOP },
        { "begun and not ended", "a stx", TUPLE("stop"), 40, "a stx",
          GENERATE_EOS },
        { "begun at the end", "a sto", TUPLE("stop"), 40, "a sto",
          GENERATE_EOS },
        { "another within one that is begun", "xab", TUPLE("abc", "b"), 40,
          "xa", GENERATE_STOP },
        { "again from within", "aaab", TUPLE("aab"), 40, "a", GENERATE_STOP },
        { "with a character of many bytes",
          "Gr\xC3\xBC\xC3\x9F"
          "e, ja",
          TUPLE("\xC3\x9F"), 40, "Gr\xC3\xBC", GENERATE_STOP },
        { "characters of many bytes", "\xC3\xBC \xE2\x82\xAC \xF0\x9F\x98\x80.",
          TUPLE(NULL), 40, "\xC3\xBC \xE2\x82\xAC \xF0\x9F\x98\x80.",
          GENERATE_EOS },
        { "half a character at the end", "a\xF0\x9F\x98", TUPLE(NULL), 40,
          "a\xEF\xBF\xBD", GENERATE_EOS },
        { "what is no UTF-8",
          "\xFF"
          "a\xC3(\x80",
          TUPLE(NULL), 40,
          "\xEF\xBF\xBD"
          "a\xEF\xBF\xBD(\xEF\xBF\xBD",
          GENERATE_EOS },
    };
    static struct heard heard;
    static const int32_t prompt[] = { 'a', 'b' };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct generate *generate = make(2, 2);
        struct generate_options options = options_of(rows[i].max_tokens);
        options.stop = rows[i].stop;
        while (options.stop_count < 3 &&
               rows[i].stop[options.stop_count] != NULL)
            options.stop_count++;
        infer.script = (const uint8_t *)rows[i].comes;
        infer.script_bytes = strlen(rows[i].comes);
        infer.script_at = 2;
        bool good =
            run(generate, &options, &(struct generate_prompt){ prompt, 2 }, 1,
                &heard) == ERR_OK;
        tap_ok(good && is_text(&heard.whole[0], rows[i].want) &&
                   is_text(&heard.text[0], rows[i].want) && heard.valid &&
                   heard.end[0] == rows[i].end,
               "%s: '%.*s', %s", rows[i].name, (int)heard.whole[0].bytes,
               (const char *)heard.whole[0].data,
               generate_end_names[heard.end[0]]);
        generate_destroy(generate);
    }
    forget(&heard);
}

/* Bytes as tokens and stop texts of few letters, in any order. */
static void test_random_texts(void)
{
    int wrong = 0;
    for (int n = 0; n < 4000; n++) {
        uint8_t bytes[24];
        char stops[3][5] = { "" };
        const char *stop[3] = { stops[0], stops[1], stops[2] };
        size_t count = (size_t)(uniform() * 24), end = 0, shown = 0;
        struct buffer want = { 0 };
        struct generate_text text = { 0 };
        struct generate_text_options options = { tokenizer, stop,
                                                 (size_t)(uniform() * 4) };
        static const uint8_t letters[] = { 'a',  'b',  0xC3, 0xA4,
                                           0xE2, 0x82, 0xAC, 0xF0 };
        for (size_t i = 0; i < count; i++)
            bytes[i] = letters[(int)(uniform() * (n % 2 == 0 ? 2 : 8))];
        for (int s = 0; s < 3; s++)
            for (int i = 0; i < 1 + (int)(uniform() * 4); i++)
                stops[s][i] = uniform() < 0.5 ? 'a' : 'b';
        unicode_repair(bytes, count, &want);
        for (bool found = false; end < want.bytes && !found; end += !found)
            for (size_t s = 0; s < options.stop_count; s++)
                found |= want.bytes - end >= strlen(stop[s]) &&
                         memcmp(want.data + end, stop[s], strlen(stop[s])) == 0;
        generate_text_begin(&text, &options, NULL, 0);
        bool good = true;
        for (size_t i = 0; i < count && good; i++) {
            generate_text_add(&text, bytes[i]);
            good = text.ready >= shown && text.ready <= text.text.bytes &&
                   text.ready <= end &&
                   unicode_valid(text.text.data + shown, text.ready - shown) ==
                       text.ready - shown;
            shown = text.ready;
        }
        generate_text_end(&text);
        good = good && text.text.bytes == end && text.ready == end &&
               text.stopped == (end < want.bytes) &&
               (end == 0 || memcmp(text.text.data, want.data, end) == 0);
        wrong += !good;
        buffer_free(&want);
        generate_text_free(&text);
    }
    tap_is_int(wrong, 0, "4000 random texts end where they should");
}

static void test_ends(void)
{
    static struct heard heard;
    static const int32_t ends[] = { 'x', 'y' };
    int32_t prompt[POSITIONS + 1] = { 1, 2, 3 };
    struct generate *generate = make(1, 64);
    struct generate_options options = options_of(1000);
    options.eos = ends;
    options.eos_count = 2;
    infer.script = (const uint8_t *)"helloy there";
    infer.script_bytes = 12;
    infer.script_at = 3;
    run(generate, &options, &(struct generate_prompt){ prompt, 3 }, 1, &heard);
    tap_ok(heard.end[0] == GENERATE_EOS && heard.tokens[0] == 5 &&
               is_text(&heard.whole[0], "hello"),
           "the second of several tokens that end a text");
    options.eos_count = 0;
    infer.script = NULL;
    for (int64_t count = POSITIONS - 2; count <= POSITIONS; count++) {
        run(generate, &options,
            &(struct generate_prompt){ prompt, (size_t)count }, 1, &heard);
        tap_ok(heard.end[0] == GENERATE_CONTEXT &&
                   heard.tokens[0] == (size_t)(POSITIONS - count + 1) &&
                   infer.length[0] == POSITIONS,
               "a prompt of %d tokens in %d places has %d more", (int)count,
               POSITIONS, (int)heard.tokens[0]);
    }
    generate_destroy(generate);
    forget(&heard);
}

/* A conversation: what a slot has is not computed again. */
static void test_reuse(void)
{
    static struct heard heard;
    int32_t prompt[40] = { 5, 6, 7, 8, 9, 10 };
    struct generate *generate = make(1, 64);
    struct generate_options options = options_of(4);
    options.eos_count = 0;
    run(generate, &options, &(struct generate_prompt){ prompt, 6 }, 1, &heard);
    tap_ok(infer.computed == 9 && heard.reused[0] == 0,
           "the first turn: 6 and 3 tokens");
    /* the answer as it lies in the slot, and the next message */
    memcpy(prompt, infer.held[0], 9 * sizeof *prompt);
    for (int i = 9; i < 15; i++)
        prompt[i] = i;
    infer.computed = 0;
    run(generate, &options, &(struct generate_prompt){ prompt, 15 }, 1, &heard);
    tap_ok(infer.computed == 9 && heard.reused[0] == 9,
           "the second: its 6 and 3");
    infer.computed = 0;
    run(generate, &options, &(struct generate_prompt){ prompt, 15 }, 1, &heard);
    tap_ok(infer.computed == 4 && heard.reused[0] == 14,
           "once more: the last token, for its logits, and 3");
    prompt[2]++;
    infer.computed = 0;
    run(generate, &options, &(struct generate_prompt){ prompt, 15 }, 1, &heard);
    tap_ok(infer.computed == 16 && heard.reused[0] == 2,
           "another: all behind what differs");
    generate_destroy(generate);
    forget(&heard);
}

static void test_interrupted(void)
{
    static struct heard heard;
    static const int32_t tokens[] = { 1, 2, 3, 4, 5, 6 };
    struct generate_prompt prompts[6];
    struct generate *generate = make(2, 2);
    struct generate_options options = options_of(10);
    const struct generate_hooks hooks = { .arg = &heard,
                                          .before = hear_before,
                                          .result = hear_result };
    options.eos_count = 0;
    for (size_t p = 0; p < 6; p++)
        prompts[p] = (struct generate_prompt){ tokens + p, 1 };
    forget(&heard);
    heard.stop_at = 15;
    tap_ok(generate_run(generate, &options, prompts, 6, &hooks) == ERR_OK &&
               heard.results == 4 && heard.end[1] == GENERATE_MAX_TOKENS &&
               heard.end[2] == GENERATE_INTERRUPTED && heard.tokens[2] == 4 &&
               heard.end[3] == GENERATE_INTERRUPTED && heard.in_order,
           "interrupted: those that were begun have results");
    heard.stop_at = 0;
    heard.results = 0;
    infer.fail_at = infer.calls + 3;
    tap_ok(generate_run(generate, &options, prompts, 6, &hooks) == ERR_IO,
           "a call that fails ends it: %s", err_text());
    heard.results = 0;
    tap_ok(generate_run(generate, &options, prompts, 6, &hooks) == ERR_OK &&
               heard.results == 6,
           "and another run begins anew");
    generate_destroy(generate);
    forget(&heard);
}

static void test_refused(void)
{
    int32_t tokens[POSITIONS + 1] = { 1 };
    static struct heard heard;
    struct generate *generate = make(1, 64);
    struct generate_options options = options_of(10);
    struct generate_prompt prompts[] = { { tokens, 3 }, { tokens, 0 } };
    tap_ok(run(generate, &options, prompts, 2, &heard) == ERR_USAGE &&
               infer.calls == 0,
           "an empty prompt: %s", err_text());
    prompts[1].count = POSITIONS + 1;
    tap_ok(run(generate, &options, prompts, 2, &heard) == ERR_USAGE &&
               infer.calls == 0,
           "one that is too long: %s", err_text());
    options.first = 5; /* as on a rank: 5 and 8 of all */
    options.stride = 3;
    tap_ok(run(generate, &options, prompts, 2, &heard) == ERR_USAGE &&
               strncmp(err_text(), "prompt 8: ", 10) == 0,
           "named among all: %s", err_text());
    options = options_of(10);
    prompts[1].count = 3;
    tokens[2] = VOCAB;
    tap_ok(run(generate, &options, prompts, 2, &heard) == ERR_USAGE,
           "no such token: %s", err_text());
    tokens[2] = 0;
    options.stop = &(const char *){ "" };
    options.stop_count = 1;
    tap_ok(run(generate, &options, prompts, 2, &heard) == ERR_USAGE,
           "an empty stop text: %s", err_text());
    options.stop_count = 0;
    options.max_tokens = 0;
    tap_ok(run(generate, &options, prompts, 2, &heard) == ERR_USAGE,
           "no new token: %s", err_text());
    options.max_tokens = 1;
    options.sample.top_p = 2;
    tap_ok(run(generate, &options, prompts, 2, &heard) == ERR_USAGE,
           "a share above 1: %s", err_text());
    generate_destroy(generate);
    forget(&heard);
}

static void test_score(void)
{
    int32_t tokens[POSITIONS + 1];
    double whole = 0, want = 0, nll = -1;
    for (int i = 0; i <= POSITIONS; i++)
        tokens[i] = (int32_t)(uniform() * 256);
    struct generate *generate = make(1, 64);
    tap_ok(generate_score(generate, tokens, 30, NULL, &whole) == ERR_OK,
           "a score");
    for (int64_t i = 1; i < 30; i++) {
        float logits[VOCAB];
        double sum = 0;
        memcpy(infer.held[0], tokens, 30 * sizeof *tokens);
        play_logits(&infer, 0, i, logits);
        for (int v = 0; v < VOCAB; v++)
            sum += exp(logits[v]);
        want += (float)(log(sum) - logits[tokens[i]]);
    }
    tap_is_close(whole, want, 0, "is the sum over all tokens but the first");
    generate_destroy(generate);
    generate = make(1, 7);
    generate_score(generate, tokens, 30, NULL, &nll);
    tap_is_close(nll, whole, 0, "in calls of 7 tokens, too");
    generate_score(generate, tokens, 30, NULL, &nll);
    tap_is_close(nll, whole, 0, "and again in the same slot");
    generate_score(generate, tokens, 1, NULL, &nll);
    tap_is_close(nll, 0, 0, "one token has none");
    generate_score(generate, tokens, 0, NULL, &nll);
    tap_is_close(nll, 0, 0, "nor has none");
    tap_ok(generate_score(generate, tokens, POSITIONS, NULL, &nll) == ERR_OK,
           "a text that fills the slot");
    tap_ok(generate_score(generate, tokens, POSITIONS + 1, NULL, &nll) ==
               ERR_USAGE,
           "one that does not fit: %s", err_text());
    generate_destroy(generate);
}

int main(void)
{
    if (tokenizer_create("bytes", &tokenizer) != ERR_OK)
        return 1;
    test_batches();
    test_texts();
    test_random_texts();
    test_ends();
    test_reuse();
    test_interrupted();
    test_refused();
    test_score();
    tokenizer_destroy(tokenizer);
    return tap_done();
}
