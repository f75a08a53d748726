/* Scores examples with a model, by LLM Foundry's rules.
 *
 * Of a row only its span counts, the tokens of the continuation, each by what the
 * model gives it after all tokens before it; the context costs nothing. A row's
 * score is exp(mean cross entropy of the span): the perplexity of the
 * continuation. By the mean, not the sum, a long choice does not lose for its
 * length alone. Where there are choices the row of the least score is chosen; of
 * language_modeling an example is right if each token of the span is the
 * likeliest; of generation what was written is compared (icl_answer.c).
 *
 * Examples differ in length, number of rows and, generated, in when they end.
 * So there are no batches that wait for their longest one: as in generation
 * (src/infer/generate.c) each slot asks for what its example needs next, one
 * call computes it for all, each slot hears what came of it, and one whose
 * example is done takes the next in the next call. Since examples end in any
 * order, lines about them go into a place of their own and are joined at the
 * end. */
#include "src/eval/icl_score.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/base/real.h"
#include "src/eval/icl_answer.h"
#include "src/eval/icl_lines.h"

/* A slot of the model, and the example that has it. */
struct slot {
    struct icl_example example;
    bool busy;
    bool begun;             /* its row */
    int64_t row;            /* at work */
    struct token_list held; /* what the slot of the model holds */
    struct token_list feed; /* what it reads of its row */
    size_t fed;             /* of that, so far */
    float *scores;          /* [rows] */
    int64_t score_capacity; /* rows */
    bool likeliest;         /* each token of the row was */
    int64_t generated;      /* tokens */
    struct buffer text;     /* that was generated */
    struct tokenizer_decoder decoder;
    float *nll;      /* [positions] */
    int32_t *argmax; /* [positions] */
};

struct scorer {
    const struct icl_task *task;
    const struct icl_part *part;
    const struct tokenizer *tokenizer;
    const struct icl_model *model;
    const struct icl_score_range *range;
    struct icl_score *out;
    struct icl_prompts *prompts;
    struct icl_answer *answer; /* NULL: nothing is generated */
    int64_t next;              /* example */
    struct buffer *lines;      /* [end - begin], or NULL */
    struct slot *slots;        /* [model->slots] */
    struct infer_tokens *list; /* [model->slots] */
};

static void slot_free(struct slot *slot)
{
    icl_example_free(&slot->example);
    free(slot->held.token);
    free(slot->feed.token);
    free(slot->scores);
    buffer_free(&slot->text);
    free(slot->nll);
    free(slot->argmax);
}

static enum err slot_take(struct scorer *scorer, struct slot *slot)
{
    TRY(icl_prompts_next(scorer->prompts, &slot->example));
    scorer->next++;
    scorer->out->cut += slot->example.cut;
    slot->busy = true;
    slot->begun = false;
    slot->row = 0;
    slot->generated = 0;
    slot->text.bytes = 0;
    /* what it goes on from is a text */
    slot->decoder = (struct tokenizer_decoder){ .inside = true };
    return array_room(&slot->scores, &slot->score_capacity,
                      slot->example.row_count);
}

/* What the slot has to read of its row: all but what it holds, and but the last
 * token of what is predicted, which predicts nothing.
 *
 *     c c c c s s s      c: context, s: span of 3
 *           * * *        tokens whose logits are wanted: those before the span's
 *
 * So the context's last token is read again even where the slot holds it: its
 * logits were not kept. Of a row that is to go on by itself it is the last token
 * of all. */
static enum err slot_begin_row(struct scorer *scorer, struct slot *slot,
                               int64_t number)
{
    const struct icl_row *row = &slot->example.rows[slot->row];
    const int32_t *tokens = icl_example_tokens(&slot->example, slot->row);
    int64_t last = row->count - (row->span > 0);
    int64_t known = row->count - row->span - 1, keep = 0;
    while (keep < known && (size_t)keep < slot->held.count &&
           slot->held.token[keep] == tokens[keep])
        keep++;
    assert(known >= 0 && keep <= known && keep < last);
    scorer->model->cut(scorer->model->self, number, keep);
    slot->held.count = (size_t)keep;
    slot->begun = true;
    slot->feed.count = slot->fed = 0;
    return token_list_add(&slot->feed, tokens + keep, (size_t)(last - keep));
}

/* The slot's part of the next call, of up to `room` tokens. */
static enum err slot_ask(struct scorer *scorer, struct slot *slot,
                         int64_t number, int64_t room, struct infer_tokens *ask)
{
    const struct icl_row *row = &slot->example.rows[slot->row];
    if (!slot->begun)
        TRY(slot_begin_row(scorer, slot, number));
    int64_t fed = (int64_t)slot->fed, left = (int64_t)slot->feed.count - fed;
    int64_t wanted = row->span > 0 ? row->span : 1;
    int64_t first = (int64_t)slot->feed.count - wanted; /* that is wanted */
    int64_t count = left < room ? left : room;
    int64_t at = fed > first ? fed - first : 0; /* of what is wanted */
    assert(left > 0 && room > 0 && first >= 0);
    *ask = (struct infer_tokens){
        .slot = number,
        .count = count,
        .tokens = slot->feed.token + fed,
        .wanted = fed + count > first ? fed + count - first - at : 0,
    };
    assert(ask->wanted >= 0 && ask->wanted <= count);
    if (scorer->task->kind == ICL_LANGUAGE_MODELING || row->span == 0)
        ask->argmax = slot->argmax + at;
    if (row->span > 0) {
        ask->labels = icl_example_tokens(&slot->example, slot->row) +
                      (row->count - row->span) + at;
        ask->nll = slot->nll + at;
    }
    return ERR_OK;
}

/* exp(mean cross entropy). The mean is rounded to fp32 before exp and the score
 * after it, as torch has them: scores that are equal there are equal here, and
 * of equal ones the first is chosen. The sum is fp64. */
static void slot_score_row(struct slot *slot, bool argmax)
{
    const struct icl_row *row = &slot->example.rows[slot->row];
    const int32_t *labels =
        icl_example_tokens(&slot->example, slot->row) + row->count - row->span;
    double sum = 0.0;
    assert(row->span > 0 && row->span < row->count);
    slot->likeliest = true;
    for (int64_t i = 0; i < row->span; i++) {
        sum += slot->nll[i];
        if (argmax)
            slot->likeliest = slot->likeliest && slot->argmax[i] == labels[i];
    }
    slot->scores[slot->row] =
        (float)real_exp((double)(float)(sum / (double)row->span));
}

/* Scores that are not numbers are not chosen. */
static int64_t least(const float *scores, int64_t count)
{
    int64_t choice = 0;
    assert(count > 0);
    for (int64_t i = 1; i < count; i++)
        if (scores[i] < scores[choice] || isnan(scores[choice]))
            choice = i;
    return choice;
}

static enum err slot_finish(struct scorer *scorer, struct slot *slot)
{
    const struct icl_example *example = &slot->example;
    struct icl_outcome outcome = { 0 };
    assert(slot->busy && example->number >= scorer->range->begin &&
           example->number < scorer->range->end);
    slot->busy = false;
    if (scorer->answer != NULL) {
        TRY(buffer_reserve(&slot->text, 1));
        outcome.text = slot->text.data;
        outcome.bytes = slot->text.bytes;
        TRY(icl_answer_judge(scorer->answer, example->record, outcome.text,
                             outcome.bytes, &outcome.right, &outcome.compared));
    } else {
        outcome.scores = slot->scores;
        outcome.choice = least(slot->scores, example->row_count);
        outcome.right = scorer->task->kind == ICL_LANGUAGE_MODELING
                            ? slot->likeliest
                            : outcome.choice == example->record->gold;
    }
    scorer->out->examples++;
    scorer->out->right += outcome.right;
    if (scorer->lines == NULL)
        return ERR_OK;
    return icl_lines_add(
        scorer->task, scorer->part, example, &outcome,
        &scorer->lines[example->number - scorer->range->begin]);
}

/* One more token was generated: greedily, as LLM Foundry asks for. It ends the
 * answer if it ends a text, if there are as many as the longest answer has, or
 * if a stop text is there now. Else it is what the slot reads next. */
static enum err slot_generate(struct scorer *scorer, struct slot *slot,
                              bool *done)
{
    int32_t token = slot->argmax[0];
    const uint8_t *text;
    size_t bytes;
    *done = ++slot->generated == icl_prompts_generated_max(scorer->prompts) ||
            token == tokenizer_eos(scorer->tokenizer);
    /* rows of the vocabulary that no token has write nothing */
    if (token < tokenizer_vocab_size(scorer->tokenizer) &&
        !tokenizer_is_special(scorer->tokenizer, token)) {
        TRY(tokenizer_decode_next(scorer->tokenizer, &slot->decoder, token,
                                  &text, &bytes));
        TRY(buffer_add(&slot->text, text, bytes));
    }
    if (!*done)
        TRY(icl_answer_stops(scorer->answer, slot->text.data, slot->text.bytes,
                             done));
    slot->feed.count = slot->fed = 0;
    return token_list_add(&slot->feed, &token, 1);
}

/* A call has read so many tokens of the slot's. */
static enum err slot_hear(struct scorer *scorer, struct slot *slot,
                          size_t count)
{
    bool done = false;
    assert(slot->begun && slot->fed + count <= slot->feed.count);
    TRY(token_list_add(&slot->held, slot->feed.token + slot->fed, count));
    slot->fed += count;
    if (slot->fed < slot->feed.count)
        return ERR_OK;
    if (scorer->answer != NULL) {
        TRY(slot_generate(scorer, slot, &done));
    } else {
        slot_score_row(slot, scorer->task->kind == ICL_LANGUAGE_MODELING);
        slot->begun = false;
        done = ++slot->row == slot->example.row_count;
    }
    return done ? slot_finish(scorer, slot) : ERR_OK;
}

/* Fills the list with what slots ask for; free ones take an example. */
static enum err ask_all(struct scorer *scorer, int *count)
{
    int64_t room = scorer->model->rows;
    *count = 0;
    for (int64_t s = 0; s < scorer->model->slots && room > 0; s++) {
        struct slot *slot = &scorer->slots[s];
        struct infer_tokens *ask = &scorer->list[*count];
        if (!slot->busy && scorer->next < scorer->range->end)
            TRY(slot_take(scorer, slot));
        if (!slot->busy)
            continue;
        TRY(slot_ask(scorer, slot, s, room, ask));
        room -= ask->count;
        (*count)++;
    }
    return ERR_OK;
}

static enum err hear_all(struct scorer *scorer, int count)
{
    for (int i = 0; i < count; i++) {
        const struct infer_tokens *asked = &scorer->list[i];
        TRY(slot_hear(scorer, &scorer->slots[asked->slot],
                      (size_t)asked->count));
    }
    return ERR_OK;
}

/* Until nobody has anything left. During training weights are spread over the
 * ranks, so a call is made by all of them or it hangs, though they have different
 * numbers of examples left. Before each they agree whether anybody has some, and
 * who has none makes the call with an empty list, which only lends its weights.
 * For the same reason this rank's failure is kept while the others go on; only
 * when ranks cannot be reached there is nobody to go on with. */
static enum err score_all(struct scorer *scorer, struct err_kept *kept)
{
    const struct icl_model *model = scorer->model;
    enum err rc;
    for (;;) {
        int count = 0;
        if (kept->code == ERR_OK)
            err_keep(kept, ask_all(scorer, &count));
        if (kept->code != ERR_OK)
            count = 0;
        bool any = count > 0;
        if (model->any != NULL)
            TRY(model->any(model->self, any, &any));
        if (!any)
            return err_again(kept);
        rc = model->forward(model->self, scorer->list, count);
        if (rc == ERR_COMM)
            return rc;
        if (kept->code == ERR_OK)
            err_keep(kept, rc);
        if (kept->code == ERR_OK)
            err_keep(kept, hear_all(scorer, count));
    }
}

static enum err scorer_fill(struct scorer *scorer)
{
    const struct icl_model *model = scorer->model;
    const struct icl_score_range *range = scorer->range;
    size_t slots = (size_t)model->slots;
    TRY(icl_prompts_create(scorer->task, scorer->part, scorer->tokenizer,
                           model->positions, &scorer->prompts));
    if (scorer->task->kind == ICL_GENERATION)
        TRY(icl_answer_create(scorer->task, &scorer->answer));
    TRY(new_zeroed(&scorer->slots, slots));
    TRY(new_zeroed(&scorer->list, slots));
    if (range->lines)
        TRY(new_zeroed(&scorer->lines,
                       (size_t)(range->end - range->begin) + 1));
    for (size_t s = 0; s < slots; s++) {
        TRY(new_room(&scorer->slots[s].nll, (size_t)model->positions));
        TRY(new_room(&scorer->slots[s].argmax, (size_t)model->positions));
    }
    /* shots are drawn one example after the other, also for those before */
    for (; scorer->next < range->begin; scorer->next++)
        TRY(icl_prompts_next(scorer->prompts, NULL));
    return ERR_OK;
}

static void scorer_free(struct scorer *scorer)
{
    int64_t count = scorer->range->end - scorer->range->begin;
    for (int64_t i = 0; scorer->lines != NULL && i < count; i++)
        buffer_free(&scorer->lines[i]);
    for (int64_t s = 0; scorer->slots != NULL && s < scorer->model->slots; s++)
        slot_free(&scorer->slots[s]);
    free(scorer->lines);
    free(scorer->slots);
    free(scorer->list);
    icl_answer_destroy(scorer->answer);
    icl_prompts_destroy(scorer->prompts);
}

static enum err scorer_run(struct scorer *scorer)
{
    const struct icl_model *model = scorer->model;
    struct err_kept kept;
    for (int64_t s = 0; s < model->slots; s++)
        model->cut(model->self, s, 0);
    err_keep(&kept, scorer_fill(scorer));
    TRY(score_all(scorer, &kept));
    int64_t count = scorer->range->end - scorer->range->begin;
    for (int64_t i = 0; scorer->lines != NULL && i < count; i++)
        TRY(buffer_add(&scorer->out->lines, scorer->lines[i].data,
                       scorer->lines[i].bytes));
    return ERR_OK;
}

enum err
icl_score_part(const struct icl_task *task, const struct icl_part *part,
               const struct tokenizer *tokenizer, const struct icl_model *model,
               const struct icl_score_range *range, struct icl_score *out)
{
    struct scorer scorer = {
        .task = task,
        .part = part,
        .tokenizer = tokenizer,
        .model = model,
        .range = range,
        .out = out,
    };
    assert(0 <= range->begin && range->begin <= range->end &&
           range->end <= part->count && model->slots > 0);
    *out = (struct icl_score){ 0 };
    enum err rc = scorer_run(&scorer);
    scorer_free(&scorer);
    return rc;
}
