/* Makes the prompts of tasks.
 *
 *   preamble   prompt_string, and of each shot
 *              [example_delimiter] prelimiter context continuation_delimiter
 *              answer
 *   context    [example_delimiter] prelimiter context continuation_delimiter
 *   then       the continuation, of which each choice makes a row
 *
 * in which the delimiter in brackets is not there before the very first part. Of
 * a schema it is the other way round: the options are contexts, and the
 * continuation is one.
 *
 * These three are encoded each by itself and their tokens joined. To encode the
 * joined text would be the obvious way, and give other tokens at the seams: a
 * tokenizer merges "Answer: " with what follows. But it must be known which
 * tokens are the continuation's, for these alone are scored; and scores are to be
 * those of LLM Foundry, which joins tokens. Hence also the blank that goes to the
 * continuation and not to the context: " Paris" is one token of most
 * vocabularies, and "Answer: " with a blank at its end is an odd text. */
#include "src/eval/icl_prompts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/new.h"
#include "src/eval/python_random.h"
#include "src/text/unicode.h"

/* What an answer may take beyond the longest, after thoughts. */
#define THOUGHT_ROOM 10

struct icl_prompts {
    const struct icl_task *task;
    const struct icl_part *part;
    const struct tokenizer *tokenizer;
    struct tokenizer_encoder *encoder;
    struct icl_shots *shots;
    bool blank;            /* before a continuation */
    int64_t positions;     /* for prompts and continuations */
    int64_t generated_max; /* tokens */
    int64_t next;          /* example */
    /* of the example at work: */
    struct buffer preamble, text;
    struct token_list context, answer;
};

/* --- shots --- */

/* LLM Foundry samples the numbers of as many examples as shots are wanted, out of
 * all, the one at hand among them. If that is in the sample, it goes, and numbers
 * are drawn until one is neither it nor there already. All of this is done with a
 * set, and shots are written in the order in which Python walks through it, which
 * is neither that of the sample nor that of the numbers: so both CPython's
 * generator and its sets are needed to show the same examples in the same order
 * (python_random.h). One generator serves the whole task, and what it draws for
 * an example depends on all that came before. */
struct icl_shots {
    struct python_random random;
    int64_t count, shots;
    int64_t at;    /* whose turn it is */
    int64_t *list; /* [shots + 1] */
};

enum err icl_shots_create(int64_t count, int64_t shots, uint64_t seed,
                          struct icl_shots **out)
{
    assert(count > 0 && count <= UINT32_MAX && shots >= 0);
    struct icl_shots *choice = NULL;
    TRY(new_zeroed(&choice, 1));
    choice->count = count;
    choice->shots = shots < count ? shots : count - 1;
    enum err rc = new_room(&choice->list, (size_t)(choice->shots + 1));
    if (rc != ERR_OK) {
        free(choice);
        return rc;
    }
    python_random_seed(&choice->random, seed);
    *out = choice;
    return ERR_OK;
}

void icl_shots_destroy(struct icl_shots *choice)
{
    if (choice == NULL)
        return;
    free(choice->list);
    free(choice);
}

/* The example itself gives its place to another one that was not drawn. */
static enum err shots_replace(struct icl_shots *choice, struct python_set *set)
{
    int64_t other;
    python_set_remove(set, choice->at);
    do
        other = python_random_choice(&choice->random, choice->count);
    while (other == choice->at || python_set_has(set, other));
    return python_set_add(set, other);
}

enum err icl_shots_next(struct icl_shots *choice, const int64_t **list,
                        int64_t *listed)
{
    enum err rc = ERR_OK;
    struct python_set set = { 0 };
    assert(choice->at < choice->count);
    if (choice->shots > 0)
        TRY(python_random_sample(&choice->random, choice->count, choice->shots,
                                 choice->list));
    for (int64_t i = 0; i < choice->shots; i++)
        TRY_OUT(python_set_add(&set, choice->list[i]));
    if (python_set_has(&set, choice->at))
        TRY_OUT(shots_replace(choice, &set));
    assert((int64_t)set.used == choice->shots);
    python_set_list(&set, choice->list);
    *list = choice->list;
    *listed = (int64_t)set.used;
    choice->at++;
out:
    python_set_free(&set);
    return rc;
}

/* --- prompts --- */

static enum err add(struct buffer *out, const char *text)
{
    return buffer_add(out, text, strlen(text));
}

/* A field, without the white space around it. */
static enum err add_field(const struct icl_task *task, struct buffer *out,
                          const char *text)
{
    size_t bytes = strlen(text), front = 0;
    if (task->strip) {
        front = unicode_blank_front(text, bytes);
        bytes -= front;
        bytes -= unicode_blank_back(text + front, bytes);
    }
    return buffer_add(out, text + front, bytes);
}

/* What an example that is shown ends with. Options are as they are. */
static enum err add_answer(const struct icl_task *task, struct buffer *out,
                           const struct icl_record *record)
{
    if (task->kind == ICL_MULTIPLE_CHOICE)
        return add(out, record->options[record->gold]);
    if (record->thought != NULL) {
        TRY(add_field(task, out, record->thought));
        TRY(add(out, task->cot_delimiter));
    }
    return add_field(task, out, record->answer);
}

/* A schema's prelimiter comes before the delimiter, for whatever reason. */
static enum err add_context(const struct icl_task *task, struct buffer *out,
                            const struct icl_record *record, bool first)
{
    const char *delimiter = first ? "" : task->example_delimiter;
    bool schema = task->kind == ICL_SCHEMA;
    TRY(add(out, schema ? task->prelimiter : delimiter));
    TRY(add(out, schema ? delimiter : task->prelimiter));
    TRY(schema ? add(out, record->options[record->gold])
               : add_field(task, out, record->context));
    return add(out, task->continuation_delimiter);
}

static enum err encode(struct icl_prompts *prompts, const struct buffer *text,
                       unsigned flags, struct token_list *out)
{
    return tokenizer_encode(prompts->encoder, text->data, text->bytes,
                            flags | TOKENIZER_SPECIAL, out);
}

/* The text of the preamble into prompts->preamble. */
static enum err write_preamble(struct icl_prompts *prompts)
{
    const struct icl_task *task = prompts->task;
    struct buffer *out = &prompts->preamble;
    const int64_t *list;
    int64_t count;
    out->bytes = 0;
    TRY(add(out, task->prompt_string));
    TRY(icl_shots_next(prompts->shots, &list, &count));
    for (int64_t i = 0; i < count; i++) {
        const struct icl_record *record = prompts->part->records[list[i]];
        TRY(add_context(task, out, record, out->bytes == 0));
        TRY(add_answer(task, out, record));
    }
    return ERR_OK;
}

/* Tokens of the preamble, with those that the tokenizer puts around a text; what
 * ends a text must go, for it goes on. One that is nothing but that token keeps
 * it: in many vocabularies the same token begins texts, and something has to come
 * before the first that is predicted. */
static enum err encode_preamble(struct icl_prompts *prompts)
{
    struct token_list *out = &prompts->context;
    int32_t eos = tokenizer_eos(prompts->tokenizer);
    out->count = 0;
    TRY(encode(prompts, &prompts->preamble, TOKENIZER_TEMPLATE, out));
    if (eos >= 0 && out->count > 1 && out->token[out->count - 1] == eos)
        out->count--;
    return ERR_OK;
}

/* prompts->text without the white space at its end. */
static void strip_back(struct icl_prompts *prompts)
{
    struct buffer *text = &prompts->text;
    if (prompts->task->strip)
        text->bytes -=
            unicode_blank_back((const char *)text->data, text->bytes);
}

static enum err encode_answer(struct icl_prompts *prompts)
{
    prompts->answer.count = 0;
    return encode(prompts, &prompts->text, 0, &prompts->answer);
}

/* The continuation `answer` into prompts->answer; `field`: of a record, not of
 * its options. */
static enum err make_answer(struct icl_prompts *prompts, const char *answer,
                            bool field)
{
    struct buffer *text = &prompts->text;
    text->bytes = 0;
    TRY(add(text, " "));
    TRY(field ? add_field(prompts->task, text, answer) : add(text, answer));
    bool has = text->bytes > 1 && text->data[1] == ' ';
    if (has || !prompts->blank)
        memmove(text->data, text->data + 1, --text->bytes);
    return encode_answer(prompts);
}

/* A row of prompts->context and prompts->answer. Where both are too long the
 * context loses tokens at its left, the most distant ones; the answer never does,
 * or scores of rows would be of different things. */
static enum err add_row(struct icl_prompts *prompts,
                        struct icl_example *example)
{
    const struct token_list *context = &prompts->context;
    const struct token_list *answer = &prompts->answer;
    size_t room = (size_t)prompts->positions, kept = context->count;
    if (answer->count >= room)
        return err_set(ERR_DATA,
                       "a continuation of %zu tokens, where the model takes "
                       "%zu with at least one before it",
                       answer->count, room);
    if (kept > room - answer->count) {
        kept = room - answer->count;
        example->cut = true;
    }
    if (kept == 0)
        return err_set(ERR_DATA,
                       "nothing comes before what is to be predicted, and the "
                       "tokenizer puts no token there");
    assert(kept + answer->count <= room);
    TRY(array_room(&example->rows, &example->row_capacity,
                   example->row_count + 1));
    example->rows[example->row_count++] =
        (struct icl_row){ example->tokens.count,
                          (int64_t)(kept + answer->count),
                          (int64_t)answer->count };
    TRY(token_list_add(&example->tokens,
                       context->token + (context->count - kept), kept));
    return token_list_add(&example->tokens, answer->token, answer->count);
}

static enum err add_continued(struct icl_prompts *prompts,
                              struct icl_example *example, const char *answer,
                              bool field)
{
    TRY(make_answer(prompts, answer, field));
    if (prompts->answer.count == 0)
        return err_set(ERR_DATA, "the continuation '%s' has no token", answer);
    return add_row(prompts, example);
}

/* One context, and a row for each continuation. */
static enum err make_rows(struct icl_prompts *prompts,
                          struct icl_example *example)
{
    const struct icl_task *task = prompts->task;
    const struct icl_record *record = example->record;
    struct buffer *text = &prompts->text;
    text->bytes = 0;
    TRY(add_context(task, text, record, prompts->preamble.bytes == 0));
    strip_back(prompts);
    TRY(encode(prompts, text, 0, &prompts->context));
    if (task->kind == ICL_LANGUAGE_MODELING)
        return add_continued(prompts, example, record->answer, true);
    if (task->kind == ICL_GENERATION) {
        prompts->answer.count = 0;
        return add_row(prompts, example);
    }
    for (int64_t i = 0; i < record->option_count; i++)
        TRY(add_continued(prompts, example, record->options[i], false));
    return ERR_OK;
}

/* A row for each context, all with the same continuation. */
static enum err make_schema(struct icl_prompts *prompts,
                            struct icl_example *example)
{
    const struct icl_task *task = prompts->task;
    const struct icl_record *record = example->record;
    struct buffer *text = &prompts->text;
    size_t preamble = prompts->context.count;
    for (int64_t i = 0; i < record->option_count; i++) {
        prompts->context.count = preamble;
        text->bytes = 0;
        if (prompts->preamble.bytes > 0) {
            /* only the delimiter is stripped, not what is before it */
            TRY(add(text, task->continuation_delimiter));
            strip_back(prompts);
            size_t kept = text->bytes;
            text->bytes = 0;
            TRY(add(text, task->prelimiter));
            TRY(add(text, task->example_delimiter));
            TRY(add(text, record->options[i]));
            TRY(buffer_add(text, task->continuation_delimiter, kept));
        } else {
            TRY(add(text, task->prelimiter));
            TRY(add(text, record->options[i]));
        }
        TRY(encode(prompts, text, 0, &prompts->context));
        TRY(add_continued(prompts, example, record->answer, true));
    }
    return ERR_OK;
}

enum err icl_prompts_next(struct icl_prompts *prompts,
                          struct icl_example *example)
{
    int64_t number = prompts->next++;
    assert(number < prompts->part->count);
    /* in any case, since it draws the shots */
    TRY(write_preamble(prompts));
    if (example == NULL)
        return ERR_OK;
    example->number = number;
    example->record = prompts->part->records[number];
    example->tokens.count = 0;
    example->row_count = 0;
    example->cut = false;
    TRY(encode_preamble(prompts));
    enum err rc = prompts->task->kind == ICL_SCHEMA
                      ? make_schema(prompts, example)
                      : make_rows(prompts, example);
    return rc == ERR_DATA ? err_prefix(rc, "%s:%lld", prompts->task->file,
                                       (long long)example->record->line)
                          : rc;
}

/* Answers count as they stand in the file, before anything is stripped. */
static enum err measure_answer(struct icl_prompts *prompts,
                               const struct icl_record *record,
                               const char *answer)
{
    prompts->text.bytes = 0;
    if (record->thought != NULL) {
        TRY(add(&prompts->text, record->thought));
        TRY(add(&prompts->text, prompts->task->cot_delimiter));
    }
    TRY(add(&prompts->text, answer));
    prompts->answer.count = 0;
    TRY(encode(prompts, &prompts->text, TOKENIZER_TEMPLATE, &prompts->answer));
    if ((int64_t)prompts->answer.count > prompts->generated_max)
        prompts->generated_max = (int64_t)prompts->answer.count;
    return ERR_OK;
}

/* How many tokens an answer may have: as many as the longest of the whole part,
 * so that it does not depend on which examples are scored. They must fit behind
 * the prompt, whose room shrinks by them. */
static enum err measure_answers(struct icl_prompts *prompts)
{
    const struct icl_part *part = prompts->part;
    for (int64_t i = 0; i < part->count; i++) {
        const struct icl_record *record = part->records[i];
        TRY(measure_answer(prompts, record, record->answer));
        for (int64_t a = 0; a < record->option_count; a++)
            TRY(measure_answer(prompts, record, record->options[a]));
    }
    if (prompts->task->cot_delimiter[0] != '\0')
        prompts->generated_max += THOUGHT_ROOM;
    if (prompts->generated_max == 0)
        prompts->generated_max = 1;
    if (prompts->generated_max >= prompts->positions)
        return err_set(ERR_DATA,
                       "%s: answers have up to %lld tokens, where the model "
                       "takes %lld with at least one before them",
                       prompts->task->file, (long long)prompts->generated_max,
                       (long long)prompts->positions);
    prompts->positions -= prompts->generated_max;
    assert(prompts->positions > 0);
    return ERR_OK;
}

static enum err fill(struct icl_prompts *prompts)
{
    const struct icl_task *task = prompts->task;
    TRY(tokenizer_encoder_create(prompts->tokenizer, &prompts->encoder));
    TRY(icl_shots_create(prompts->part->count, task->shots, task->seed,
                         &prompts->shots));
    /* byte-level vocabularies have a word with the blank before it as a token;
     * where this is two tokens a blank of ours would be one of its own */
    TRY(add(&prompts->text, " a"));
    TRY(encode_answer(prompts));
    prompts->blank = prompts->answer.count == 1;
    return task->kind == ICL_GENERATION ? measure_answers(prompts) : ERR_OK;
}

enum err icl_prompts_create(const struct icl_task *task,
                            const struct icl_part *part,
                            const struct tokenizer *tokenizer,
                            int64_t positions, struct icl_prompts **out)
{
    struct icl_prompts *prompts = NULL;
    assert(part->count > 0 && positions > 0);
    TRY(new_zeroed(&prompts, 1));
    prompts->task = task;
    prompts->part = part;
    prompts->tokenizer = tokenizer;
    prompts->positions = positions;
    enum err rc = fill(prompts);
    return new_or_none(rc, prompts, out, icl_prompts_destroy);
}

void icl_prompts_destroy(struct icl_prompts *prompts)
{
    if (prompts == NULL)
        return;
    tokenizer_encoder_destroy(prompts->encoder);
    icl_shots_destroy(prompts->shots);
    buffer_free(&prompts->preamble);
    buffer_free(&prompts->text);
    free(prompts->context.token);
    free(prompts->answer.token);
    free(prompts);
}

int64_t icl_prompts_generated_max(const struct icl_prompts *prompts)
{
    return prompts->generated_max;
}

void icl_example_free(struct icl_example *example)
{
    free(example->tokens.token);
    free(example->rows);
    *example = (struct icl_example){ 0 };
}
