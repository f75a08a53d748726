/* Generated answers: how they are normalised, where they end, which are right. */
#include "src/eval/icl_answer.h"

#include "tests/data_fixture.h"

#define NEED fixture_need

/* What CPython 3.11 makes of them with LLM Foundry's normalize_answer(). */
static const struct {
    const char *text, *want;
} normal[] = {
    { "The  Cat_and THE-dog!", "cat and dog" },
    { "a", "" },
    { "An apple a day.", "apple day" },
    { "Th\xc3\xa9\xc3\xa2tre the\xe2\x80\x99 end",
      "th\xc3\xa9\xc3\xa2tre end" },
    { "x\xc2\xa0the\xe2\x80\x83y", "x y" },
    { "3.14", "3 14" },
    { "\xc3\x9cn\xc3\xaf"
      "code \xc3\x84\xc3\x96",
      "\xc3\xbcn\xc3\xaf"
      "code \xc3\xa4\xc3\xb6" },
    { "__a__b", "b" },
    { "Anna's", "anna s" },
    { "a\xcc\x81 b", "\xcc\x81 b" },
    { "\xc4\xb0stanbul", "i\xcc\x87stanbul" },
    { "the\xe2\x82\xac the1 1the", "\xe2\x82\xac the1 1the" },
    { "\xff", "\xef\xbf\xbd" },
    { "", "" },
};

static const struct {
    const char *stop, *delimiter;
    bool normalize;
    const char *text, *answer, *alias;
    bool right;
} judged[] = {
    { NULL, "", true, " Paris, of course", "paris", NULL, true },
    { NULL, "", true, "It is Paris", "paris", NULL, false },
    { NULL, "", true, "the Seine", "x", "SEINE", true },
    { NULL, "", false, "  Paris\n", "Paris ", NULL, true },
    { NULL, "", false, "paris", "Paris", NULL, false },
    { "\n\n", "answer is ", false, "so the answer is 7.\n\nQ", "7", NULL,
      true },
    { "\n\n", "answer is ", false, "7\n\nthe answer is 8", "8", NULL, false },
    { "\n\n", "answer is ", false, "answer is 1 answer is 2", "2", NULL, true },
    { "[0-9]+", "", false, "abc1", "abc1", NULL, false },
    { "[0-9]+", "", false, "abc1", "abc", NULL, true },
    { NULL, "", true, "anything", "the", NULL, true }, /* begins with "" */
};

/* Repetitions within each other, which have to be tried in all ways. */
static void test_slow(struct icl_task *task)
{
    static const char text[] = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    struct icl_answer *answer = NULL;
    const struct icl_record record = { .answer = text };
    const char *cleaned;
    bool right = true;
    task->stops[0] = "(x+x+)+[yz]";
    task->cot_delimiter = "";
    NEED(icl_answer_create(task, &answer));
    NEED(icl_answer_stops(answer, (const uint8_t *)text, strlen(text), &right));
    tap_ok(!right, "a stop that takes too long is none");
    NEED(icl_answer_judge(answer, &record, (const uint8_t *)text, strlen(text),
                          &right, &cleaned));
    tap_ok(right, "and all of the text is judged");
    icl_answer_destroy(answer);
}

/* Half a character would be found within one. */
static void test_delimiter(struct icl_task *task)
{
    static const char *const halves[] = { "\xc3", "a\xf0\x9f\x98", "\xa9" };
    struct icl_answer *answer = NULL;
    task->stops[0] = NULL;
    for (size_t h = 0; h < sizeof halves / sizeof halves[0]; h++) {
        task->cot_delimiter = halves[h];
        tap_ok(icl_answer_create(task, &answer) == ERR_USAGE, "%s", err_text());
    }
    task->cot_delimiter = "\xc3\xa9";
    NEED(icl_answer_create(task, &answer));
    icl_answer_destroy(answer);
}

static void test_answers(void)
{
    struct icl_task task;
    struct icl_answer *answer = NULL;
    struct icl_record record = { .answer = "x" };
    const char *cleaned;
    bool right;
    icl_task_default(&task);
    NEED(icl_answer_create(&task, &answer));
    for (size_t n = 0; n < sizeof normal / sizeof normal[0]; n++) {
        NEED(icl_answer_judge(answer, &record, (const uint8_t *)normal[n].text,
                              strlen(normal[n].text), &right, &cleaned));
        tap_is_str(cleaned, normal[n].want, "normalised");
    }
    icl_answer_destroy(answer);
    for (size_t j = 0; j < sizeof judged / sizeof judged[0]; j++) {
        const char *text = judged[j].text;
        task.stops[0] = judged[j].stop;
        task.cot_delimiter = judged[j].delimiter;
        task.normalize = judged[j].normalize;
        record.answer = judged[j].answer;
        record.options = &judged[j].alias;
        record.option_count = judged[j].alias != NULL;
        NEED(icl_answer_create(&task, &answer));
        NEED(icl_answer_judge(answer, &record, (const uint8_t *)text,
                              strlen(text), &right, &cleaned));
        tap_ok(right == judged[j].right, "case %d, for '%s'", (int)j,
               record.answer);
        icl_answer_destroy(answer);
    }
    task.stops[0] = "(";
    answer = NULL;
    tap_ok(icl_answer_create(&task, &answer) == ERR_USAGE, "%s", err_text());
    task.stops[0] = "\\C";
    tap_ok(icl_answer_create(&task, &answer) == ERR_USAGE, "%s", err_text());
    test_slow(&task);
    test_delimiter(&task);
    task.stops[0] = "a";
    task.stops[1] = "\n";
    NEED(icl_answer_create(&task, &answer));
    NEED(icl_answer_stops(answer, (const uint8_t *)"bc\n", 3, &right));
    tap_ok(right, "one of two stops is found");
    NEED(icl_answer_stops(answer, NULL, 0, &right));
    tap_ok(!right, "and none in nothing");
    icl_answer_destroy(answer);
}

int main(void)
{
    test_answers();
    return tap_done();
}
